import { Button, Group, Switch, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconServer2 } from '@tabler/icons-react';
import { useState } from 'react';
import { Link, useParams, useSearchParams } from 'react-router';
import { useMutation } from 'urql';
import { useListQuery } from '../query';
import { graphql } from '../gql';
import { useLook } from '../look';
import { failureOf } from '../mutate';
import { problemOf } from '../problem';
import { useMay } from '../rights';
import { usePath, useTenant, useWorkplace } from '../tenant';
import { Confirm, duration, Empty, Facts, Id, LinkTo, Loading, Mark, Page, ProblemAlert, say, Section, useNow, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';
import { classText, ofHosts } from './poolText';

const PoolDocument = graphql(`
  query Pool($tenant: ID!, $pool: ID!, $removed: Boolean!, $after: String) {
    pool(tenantId: $tenant, poolId: $pool) {
      id
      name
      class
      agent
      archivedAt
      createdAt
      account {
        id
        name
      }
      hosts(includeRemoved: $removed, first: 25, after: $after) {
        nodes {
          id
          machineId
          bootstrapId
          joinedAt
          lastSeenAt
          agentVersion
          certificateNotAfter
          removedAt
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  }
`);

const ArchivePool = graphql(`
  mutation ArchivePool($input: ArchivePoolInput!) {
    archivePool(input: $input) {
      pool {
        id
        archivedAt
      }
    }
  }
`);

const RemoveHost = graphql(`
  mutation RemoveHost($input: RemoveHostInput!) {
    removeHost(input: $input) {
      host {
        id
        removedAt
      }
    }
  }
`);

/** An agent reports every half minute; one that missed three times is worth a look. */
const quietAfter = 95_000;

const context = { additionalTypenames: ['Pool', 'Host'] };

export default function Pool() {
  const { permissions } = useWorkplace();
  const tenant = useTenant();
  const path = usePath();
  const { poolId = '' } = useParams();
  const [params, setParams] = useSearchParams();
  const removed = params.has('removed');
  const after = useAfter();
  const [{ data, error }, again] = useListQuery({ query: PoolDocument, variables: { tenant, pool: poolId, removed, after }, context });
  const [, archive] = useMutation(ArchivePool);
  const [, remove] = useMutation(RemoveHost);
  const [archiving, archiveDialog] = useDisclosure();
  const [removing, setRemoving] = useState<string | null>(null);
  const manages = useMay('POOLS_MANAGE', poolId);
  const removesHosts = manages && permissions.has('POOLS_MANAGE');
  const now = useNow(10_000);
  useLook(again, 15_000);
  const trail = [{ label: 'Pools and hosts', to: path('/pools') }];
  const pool = data?.pool;
  if (!pool) {
    return (
      <Page title="Pool" trail={trail}>
        {error ? <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} /> : <Loading />}
      </Page>
    );
  }
  const takesHosts = !pool.archivedAt && pool.agent === 'BCD' && ofHosts(pool.class);
  return (
    <Page
      title={pool.name}
      trail={trail}
      actions={
        manages &&
        !pool.archivedAt && (
          <Button variant="default" onClick={archiveDialog.open}>
            Archive
          </Button>
        )
      }
    >
      <Facts
        items={[
          ['Made of', classText(pool.class)],
          ['Agent', pool.agent === 'BCD' ? 'bcd' : 'None'],
          [
            'Account',
            pool.account ? (
              <LinkTo key="a" to={path(`/accounts/${pool.account.id}`)}>
                {pool.account.name}
              </LinkTo>
            ) : (
              'None'
            ),
          ],
          ['Id', <Id key="i" value={pool.id} />],
          ['Created', <When key="c" at={pool.createdAt} />],
          ['Archived', pool.archivedAt ? <When key="x" at={pool.archivedAt} /> : 'No'],
        ]}
      />
      <Section
        title="Hosts"
        actions={
          <Group gap="md">
            <Switch
              label="Removed ones too"
              checked={removed}
              onChange={(event) => setParams(event.currentTarget.checked ? { removed: 'yes' } : {}, { replace: true })}
            />
            <Button size="xs" variant="default" component={Link} to={`${path('/bootstraps')}?pool=${poolId}`}>
              See its bootstraps
            </Button>
          </Group>
        }
      >
        {pool.hosts.nodes.length === 0 ? (
          <Empty
            icon={IconServer2}
            title="No host yet"
            action={
              takesHosts && (
                <Button component={Link} to={path('/offers')} variant="default">
                  See the offers
                </Button>
              )
            }
          >
            {takesHosts
              ? 'Bootstrap an offer or a machine into this pool.'
              : 'Bootstraps put hosts into pools of hosts that run the bcd agent and are not archived. This is none.'}
          </Empty>
        ) : (
          <DataTable
            label="Hosts"
            rows={pool.hosts.nodes}
            keyOf={({ id }) => id}
            columns={[
              { title: 'Host', cell: ({ id }) => <Id value={id} /> },
              {
                title: 'Agent',
                cell: ({ removedAt, lastSeenAt, agentVersion }) => (
                  <Group gap="xs" wrap="nowrap">
                    {removedAt ? <Mark color="gray">Removed</Mark> : <Heard quiet={now - Date.parse(lastSeenAt)} />}
                    {agentVersion}
                  </Group>
                ),
              },
              { title: 'Machine', cell: ({ machineId }) => machineId, whole: ({ machineId }) => machineId, className: 'mono cut' },
              { title: 'Joined', cell: ({ joinedAt }) => <When at={joinedAt} show="day" /> },
              { title: 'Certificate until', cell: ({ certificateNotAfter }) => <When at={certificateNotAfter} show="day" /> },
              {
                title: 'Bootstrap',
                cell: ({ bootstrapId }) => (
                  <LinkTo to={path(`/bootstraps/${bootstrapId}`)} mono>
                    …{bootstrapId.slice(-8)}
                  </LinkTo>
                ),
              },
              removesHosts && {
                title: '',
                cell: ({ id, removedAt }) =>
                  !removedAt && (
                    <Button size="xs" variant="default" onClick={() => setRemoving(id)} aria-label={`Remove ${id}`}>
                      Remove
                    </Button>
                  ),
              },
            ]}
          />
        )}
        <Pages info={pool.hosts.pageInfo} />
      </Section>
      <Confirm
        opened={archiving}
        onClose={archiveDialog.close}
        title={`Archive ${pool.name}?`}
        action="Archive"
        danger
        run={async () => {
          const failure = failureOf(await archive({ input: { tenantId: tenant, poolId } }));
          if (!failure) say(`${pool.name} is archived.`);
          return failure;
        }}
      >
        <Text size="sm">Its name is free again, and no host can be put into it any more. This cannot be taken back.</Text>
      </Confirm>
      <Confirm
        opened={removing !== null}
        onClose={() => setRemoving(null)}
        title="Remove this host?"
        action="Remove"
        danger
        run={async () => {
          const failure = failureOf(await remove({ input: { tenantId: tenant, hostId: removing ?? '' } }));
          if (!failure) say('The host is removed.');
          return failure;
        }}
      >
        <Text size="sm">Its certificates are refused at once. The machine itself is left as it is, and may be bootstrapped again.</Text>
      </Confirm>
    </Page>
  );
}

function Heard({ quiet }: { quiet: number }) {
  return quiet < quietAfter ? <Mark color="green">Heard</Mark> : <Mark color="yellow">Quiet for {duration(quiet)}</Mark>;
}
