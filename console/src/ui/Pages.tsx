import { Button, Group } from '@mantine/core';
import { useState } from 'react';

interface PagesProps {
  info: { hasNextPage: boolean; endCursor?: string | null } | null | undefined;
  after: string | null;
  onChange: (after: string | null) => void;
}

/** Walks a list by its cursors. Shows nothing where all is on one page. */
export function Pages({ info, after, onChange }: PagesProps) {
  const [before, setBefore] = useState<(string | null)[]>([]);
  if (!info?.hasNextPage && after === null) return null;
  return (
    <Group justify="flex-end" gap="xs">
      <Button
        variant="default"
        size="xs"
        disabled={after === null}
        onClick={() => {
          onChange(before.at(-1) ?? null);
          setBefore(before.slice(0, -1));
        }}
      >
        Back
      </Button>
      <Button
        variant="default"
        size="xs"
        disabled={!info?.hasNextPage}
        onClick={() => {
          setBefore([...before, after]);
          onChange(info?.endCursor ?? null);
        }}
      >
        More
      </Button>
    </Group>
  );
}
