import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { IconGhost2 } from '@tabler/icons-react';
import { useState } from 'react';
import { useMutation } from 'urql';
import { useListQuery } from '../query';
import { graphql } from '../gql';
import type { OrphansQuery } from '../gql/graphql';
import { useLook } from '../look';
import { priceText } from '../offers';
import { problemOf, type Problem } from '../problem';
import { useMay } from '../rights';
import { usePath, useTenant } from '../tenant';
import { Empty, LinkTo, Loading, Mark, Page, ProblemAlert, say, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';

const OrphansDocument = graphql(`
  query Orphans($tenant: ID!, $after: String) {
    orphans(tenantId: $tenant, first: 25, after: $after) {
      nodes {
        id
        accountId
        kind
        machineId
        operationId
        bootstrapId
        hostId
        price {
          hourly
          monthly
          setup
          currency
          taxIncluded
        }
        firstSeenAt
        lastSeenAt
        resolvedAt
        release {
          requestedAt
          requestedBy
          attempts
          lastError
          nextTryAt
          droppedAt
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const ReleaseMachine = graphql(`
  mutation ReleaseMachine($input: ReleaseMachineInput!) {
    releaseMachine(input: $input) {
      orphan {
        id
        resolvedAt
        release {
          requestedAt
        }
      }
    }
  }
`);

type Orphan = NonNullable<OrphansQuery['orphans']>['nodes'][number];

const context = { additionalTypenames: ['Orphan'] };

function isGoing({ resolvedAt, release }: Orphan): boolean {
  return !resolvedAt && release != null && !release.droppedAt;
}

export default function Orphans() {
  const tenant = useTenant();
  const after = useAfter();
  const [{ data, error }, again] = useListQuery({ query: OrphansDocument, variables: { tenant, after }, context });
  const [releasing, setReleasing] = useState<Orphan | null>(null);
  const orphans = data?.orphans?.nodes;
  const underWay = orphans?.some((orphan) => isGoing(orphan)) ?? false;
  useLook(again, underWay ? 3000 : 15_000);
  return (
    <Page
      title="Orphans"
      about="Machines that only one side knows: the provider has one that nothing of ours owns, or a host’s machine is not there."
    >
      {error && !orphans && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {orphans?.length === 0 && (
        <Empty icon={IconGhost2} title="No orphan was found">
          Each account is compared with what its provider lists from time to time. Nothing needs you here.
        </Empty>
      )}
      {orphans && orphans.length > 0 && (
        <DataTable
          label="Orphans"
          rows={orphans}
          keyOf={({ id }) => id}
          columns={[
            { title: 'Machine', cell: ({ machineId }) => machineId, className: 'mono' },
            { title: 'What is wrong', cell: (orphan) => <Wrong orphan={orphan} /> },
            { title: 'Price', cell: ({ price }) => priceText(price) },
            { title: 'First seen', cell: ({ firstSeenAt }) => <When at={firstSeenAt} /> },
            { title: 'Last seen', cell: ({ lastSeenAt }) => <When at={lastSeenAt} /> },
            { title: '', cell: (orphan) => <GiveBack orphan={orphan} onRelease={() => setReleasing(orphan)} /> },
          ]}
        />
      )}
      <Pages info={data?.orphans?.pageInfo} />
      <Modal opened={releasing !== null} onClose={() => setReleasing(null)} title="Give this machine back?" centered>
        {releasing && <Release orphan={releasing} onDone={() => setReleasing(null)} />}
      </Modal>
    </Page>
  );
}

function Wrong({ orphan }: { orphan: Orphan }) {
  const path = usePath();
  return (
    <>
      <Group gap="xs">
        <State orphan={orphan} />
        {orphan.bootstrapId && <LinkTo to={path(`/bootstraps/${orphan.bootstrapId}`)}>its bootstrap</LinkTo>}
        <LinkTo to={path(`/accounts/${orphan.accountId}`)}>its account</LinkTo>
      </Group>
      {!orphan.resolvedAt && orphan.release && <Going release={orphan.release} />}
    </>
  );
}

function GiveBack({ orphan, onRelease }: { orphan: Orphan; onRelease: () => void }) {
  const manages = useMay('PROVIDERS_MANAGE', orphan.accountId);
  if (!manages || orphan.resolvedAt || isGoing(orphan) || orphan.kind !== 'NOT_OURS') return null;
  return (
    <Button size="xs" variant="default" onClick={onRelease} aria-label={`Give back ${orphan.machineId}`}>
      Give back
    </Button>
  );
}

function State({ orphan }: { orphan: Orphan }) {
  if (orphan.resolvedAt) return <Mark color="gray">{orphan.release && !orphan.release.droppedAt ? 'Given back' : 'Settled'}</Mark>;
  if (isGoing(orphan)) return <Mark color="blue">Being given back</Mark>;
  return <Mark color="yellow">{orphan.kind === 'NOT_OURS' ? 'Nothing of ours owns it' : 'Not at the provider'}</Mark>;
}

/** How far a person's word has come that the machine is to be given back. */
function Going({ release }: { release: NonNullable<Orphan['release']> }) {
  return (
    <Text size="sm" c="dimmed" maw={360}>
      {release.droppedAt
        ? 'It was not given back: the provider has another machine of this id now.'
        : `${release.requestedBy} asked for it. ${release.attempts > 0 ? `Tried ${release.attempts === 1 ? 'once' : `${release.attempts} times`}.` : ''}`}
      {release.lastError && ` The provider said: ${release.lastError}`}
      {release.nextTryAt && release.lastError && (
        <>
          {' '}
          Next try <When at={release.nextTryAt} show="time" />.
        </>
      )}
    </Text>
  );
}

function Release({ orphan, onDone }: { orphan: Orphan; onDone: () => void }) {
  const tenant = useTenant();
  const [typed, setTyped] = useState('');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, release] = useMutation(ReleaseMachine);
  const send = async () => {
    const result = await release({ input: { tenantId: tenant, orphanId: orphan.id, machineId: typed } });
    if (result.error) {
      setProblem(problemOf(result.error));
      return;
    }
    say('The machine is being given back.');
    onDone();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <Stack>
        <Text size="sm">The machine and all that is on it are lost. Type its id, so that it is surely the one that you mean:</Text>
        <Text className="mono">{orphan.machineId}</Text>
        <TextInput
          label="Machine id"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value.trim())}
          data-autofocus
          autoComplete="off"
        />
        {problem && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
            Back
          </Button>
          <Button type="submit" color="red" disabled={typed !== orphan.machineId} loading={fetching}>
            Give it back
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
