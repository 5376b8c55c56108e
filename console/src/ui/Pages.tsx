import { Button, Group } from '@mantine/core';
import { useLocation, useNavigate, useSearchParams } from 'react-router';

/** The cursor that the present page of a list begins behind. It is in the address: a reload stays, and the browser's own back works. */
export function useAfter(): string | null {
  const [params] = useSearchParams();
  return params.get('after');
}

interface PagesProps {
  info: { hasNextPage: boolean; endCursor?: string | null } | null | undefined;
}

/** Walks a list by its cursors. Shows nothing where all is on one page. */
export function Pages({ info }: PagesProps) {
  const [params, setParams] = useSearchParams();
  const { state } = useLocation() as { state: unknown };
  const navigate = useNavigate();
  const after = params.get('after');
  const go = (to: string | null, options: { state?: unknown; replace?: boolean }) => {
    setParams((old) => {
      if (to === null) old.delete('after');
      else old.set('after', to);
      return old;
    }, options);
  };
  const back = () => {
    if (state === walked) void navigate(-1);
    else go(null, { replace: true }); // who came by a link to this page has none before it
  };
  if (!info?.hasNextPage && after === null) return null;
  return (
    <Group justify="flex-end" gap="xs">
      <Button variant="default" size="xs" disabled={after === null} onClick={back}>
        Back
      </Button>
      <Button
        variant="default"
        size="xs"
        disabled={!info?.hasNextPage}
        onClick={() => {
          go(info?.endCursor ?? null, { state: walked });
        }}
      >
        More
      </Button>
    </Group>
  );
}

/** The state of an entry of the browser's history that another page of the list stands before. */
const walked = 'walked';
