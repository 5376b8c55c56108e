import { Button, Group, Select } from '@mantine/core';
import { IconFilterOff, IconPlayerPlay } from '@tabler/icons-react';
import { useEffect } from 'react';
import { Link, useSearchParams } from 'react-router';
import { useListQuery, useQuery } from '../query';
import { follow } from '../api';
import { graphql } from '../gql';
import type { BootstrapStatus, CleanupStatus } from '../gql/graphql';
import { useLook } from '../look';
import { problemOf } from '../problem';
import { useSocket } from '../socket';
import { usePath, useTenant } from '../tenant';
import { Empty, LinkTo, Loading, Notice, Page, ProblemAlert, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';
import { BootstrapMark, words } from '../ui/status';

const BootstrapsDocument = graphql(`
  query Bootstraps(
    $tenant: ID!
    $account: ID
    $pool: ID
    $statuses: [BootstrapStatus!]
    $waitReasons: [String!]
    $cleanups: [CleanupStatus!]
    $after: String
  ) {
    bootstraps(
      tenantId: $tenant
      accountId: $account
      poolId: $pool
      statuses: $statuses
      waitReasons: $waitReasons
      cleanups: $cleanups
      first: 25
      after: $after
    ) {
      nodes {
        id
        status
        step
        waitReason
        machineId
        createdAt
        failure {
          reason
        }
        account {
          id
          name
        }
        pool {
          id
          name
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const BootstrapsChanged = graphql(`
  subscription BootstrapsChanged($tenant: ID!, $after: String) {
    bootstrapStatusChanged(tenantId: $tenant, after: $after) {
      cursor
    }
  }
`);

const WaitingForPeople = graphql(`
  query WaitingForPeople($tenant: ID!) {
    uncertain: bootstraps(tenantId: $tenant, waitReasons: ["CLAIM_UNCERTAIN"], first: 1) {
      nodes {
        id
      }
    }
    blocked: bootstraps(tenantId: $tenant, cleanups: [BLOCKED], first: 1) {
      nodes {
        id
      }
    }
  }
`);

interface Choice {
  label: string;
  statuses?: BootstrapStatus[];
  waitReasons?: string[];
  cleanups?: CleanupStatus[];
}

const choices: Record<string, Choice> = {
  all: { label: 'All' },
  running: { label: 'Running', statuses: ['CLAIMING', 'IDENTIFYING', 'PREPARING', 'INSTALLING', 'INSTALLED'] },
  joined: { label: 'Joined', statuses: ['JOINED'] },
  failed: { label: 'Failed', statuses: ['FAILED'] },
  uncertain: { label: 'Order uncertain', waitReasons: ['CLAIM_UNCERTAIN'] },
  blocked: { label: 'Cleaning up stuck', cleanups: ['BLOCKED'] },
};

/** What a bootstrap waits for, and what becomes of its machine, makes no event, so it is looked at. */
const lookEvery = 5000;

const context = { additionalTypenames: ['Bootstrap'] };

export default function Bootstraps() {
  const tenant = useTenant();
  const path = usePath();
  const socket = useSocket();
  const [params, setParams] = useSearchParams();
  const after = useAfter();
  const choice = params.get('show') ?? 'all';
  const { statuses, waitReasons, cleanups } = choices[choice] ?? {};
  const account = params.get('account');
  const pool = params.get('pool');
  const [{ data, error }, again] = useListQuery({
    query: BootstrapsDocument,
    variables: { tenant, account, pool, statuses, waitReasons, cleanups, after },
    context,
  });
  const [{ data: waiting }, askWaiting] = useQuery({ query: WaitingForPeople, variables: { tenant }, context });
  const runs = data?.bootstraps?.nodes;
  const show = (value: string) => {
    setParams(
      (old) => {
        if (value === 'all') old.delete('show');
        else old.set('show', value);
        old.delete('after');
        return old;
      },
      { replace: true },
    );
  };

  useEffect(
    () =>
      follow({
        socket,
        document: BootstrapsChanged,
        variables: (cursor) => ({ tenant, after: cursor }),
        cursorOf: (message) => message.bootstrapStatusChanged.cursor,
        onData: () => {
          again({ requestPolicy: 'network-only' });
          askWaiting({ requestPolicy: 'network-only' });
        },
        onConnection: () => undefined,
        onProblem: () => undefined, // the list itself says what is wrong
      }),
    [socket, tenant, again, askWaiting],
  );

  useLook(again, lookEvery);
  useLook(askWaiting, lookEvery);

  return (
    <Page title="Bootstraps" about="Each turns one machine into a host of a pool. It goes on by itself, whether or not anybody looks.">
      {[
        { nodes: waiting?.uncertain?.nodes, value: 'uncertain', text: 'An order needs a person to say what became of it.' },
        { nodes: waiting?.blocked?.nodes, value: 'blocked', text: 'Cleaning up after a bootstrap needs a person.' },
      ].map(
        ({ nodes, value, text }) =>
          nodes &&
          nodes.length > 0 &&
          choice !== value && (
            <Notice key={value} color="yellow">
              <Group justify="space-between">
                {text}
                <Button
                  size="xs"
                  variant="default"
                  onClick={() => setParams({ show: value })} // of every account and pool
                >
                  Show
                </Button>
              </Group>
            </Notice>
          ),
      )}
      <Group>
        <Select
          aria-label="Which bootstraps"
          data={Object.entries(choices).map(([value, { label }]) => ({ value, label }))}
          value={choice}
          onChange={(value) => show(value ?? 'all')}
          allowDeselect={false}
          w={180}
        />
        {(account ?? pool) && (
          <Button variant="default" leftSection={<IconFilterOff size={16} />} onClick={() => setParams({}, { replace: true })}>
            Only those of one {account ? 'account' : 'pool'}
          </Button>
        )}
      </Group>
      {error && !runs && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {runs?.length === 0 && (
        <Empty
          icon={IconPlayerPlay}
          title={choice === 'all' && !account && !pool ? 'No bootstrap yet' : 'None of these'}
          action={
            <Button component={Link} to={path('/offers')} variant="default">
              See the offers
            </Button>
          }
        >
          Pick an offer, or a machine of an account, and bootstrap it.
        </Empty>
      )}
      {runs && runs.length > 0 && (
        <DataTable
          label="Bootstraps"
          rows={runs}
          keyOf={({ id }) => id}
          columns={[
            {
              title: 'Bootstrap',
              cell: ({ id }) => (
                <LinkTo to={path(`/bootstraps/${id}`)} mono>
                  …{id.slice(-8)}
                </LinkTo>
              ),
            },
            {
              title: 'State',
              cell: ({ status, waitReason, failure }) => (
                <Group gap="xs" wrap="nowrap">
                  <BootstrapMark status={status} waitReason={waitReason} />
                  {failure && <span>{words(failure.reason)}</span>}
                </Group>
              ),
            },
            {
              title: 'Account',
              cell: ({ account: of }) => (of ? <LinkTo to={path(`/accounts/${of.id}`)}>{of.name}</LinkTo> : 'Deleted'),
            },
            { title: 'Pool', cell: ({ pool: of }) => (of ? <LinkTo to={path(`/pools/${of.id}`)}>{of.name}</LinkTo> : '–') },
            {
              title: 'Machine',
              cell: ({ machineId }) => machineId ?? '–',
              whole: ({ machineId }) => machineId ?? undefined,
              className: 'mono cut',
            },
            { title: 'Requested', cell: ({ createdAt }) => <When at={createdAt} /> },
          ]}
        />
      )}
      <Pages info={data?.bootstraps?.pageInfo} />
    </Page>
  );
}
