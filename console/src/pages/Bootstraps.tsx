import { Button, Group, Select, Table } from '@mantine/core';
import { IconPlayerPlay } from '@tabler/icons-react';
import { useEffect, useState } from 'react';
import { Link } from 'react-router';
import { useQuery } from '../query';
import { follow } from '../api';
import { graphql } from '../gql';
import type { BootstrapStatus } from '../gql/graphql';
import { problemOf } from '../problem';
import { useSocket } from '../socket';
import { usePath, useTenant } from '../tenant';
import { Empty, LinkTo, Loading, Page, ProblemAlert, TableFrame, When } from '../ui';
import { Pages } from '../ui/Pages';
import { BootstrapMark, words } from '../ui/status';

const BootstrapsDocument = graphql(`
  query Bootstraps($tenant: ID!, $statuses: [BootstrapStatus!], $after: String) {
    bootstraps(tenantId: $tenant, statuses: $statuses, first: 25, after: $after) {
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

const choices: Record<string, { label: string; statuses: BootstrapStatus[] | null }> = {
  all: { label: 'All', statuses: null },
  running: { label: 'Running', statuses: ['CLAIMING', 'IDENTIFYING', 'PREPARING', 'INSTALLING', 'INSTALLED'] },
  joined: { label: 'Joined', statuses: ['JOINED'] },
  failed: { label: 'Failed', statuses: ['FAILED'] },
};

const context = { additionalTypenames: ['Bootstrap'] };

export default function Bootstraps() {
  const tenant = useTenant();
  const path = usePath();
  const socket = useSocket();
  const [choice, setChoice] = useState('all');
  const [after, setAfter] = useState<string | null>(null);
  const statuses = choices[choice]?.statuses ?? null;
  const [{ data, error }, again] = useQuery({ query: BootstrapsDocument, variables: { tenant, statuses, after }, context });
  const runs = data?.bootstraps?.nodes;

  useEffect(
    () =>
      follow({
        socket,
        document: BootstrapsChanged,
        variables: (cursor) => ({ tenant, after: cursor }),
        cursorOf: (message) => message.bootstrapStatusChanged.cursor,
        onData: () => again({ requestPolicy: 'network-only' }),
        onConnection: () => undefined,
        onProblem: () => undefined, // the list itself says what is wrong
      }),
    [socket, tenant, again],
  );

  return (
    <Page title="Bootstraps" about="Each turns one machine into a host of a pool. It goes on by itself, whether or not anybody looks.">
      <Group>
        <Select
          aria-label="Which bootstraps"
          data={Object.entries(choices).map(([value, { label }]) => ({ value, label }))}
          value={choice}
          onChange={(value) => {
            setChoice(value ?? 'all');
            setAfter(null);
          }}
          allowDeselect={false}
          w={150}
        />
      </Group>
      {error && !runs && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {runs?.length === 0 && (
        <Empty
          icon={IconPlayerPlay}
          title={choice === 'all' ? 'No bootstrap yet' : 'None of these'}
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
        <TableFrame label="Bootstraps">
          <Table verticalSpacing="sm" horizontalSpacing="md" highlightOnHover miw={760}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Bootstrap</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th>Account</Table.Th>
                <Table.Th>Pool</Table.Th>
                <Table.Th>Machine</Table.Th>
                <Table.Th>Requested</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {runs.map((run) => (
                <Table.Tr key={run.id}>
                  <Table.Td>
                    <LinkTo to={path(`/bootstraps/${run.id}`)} mono>
                      …{run.id.slice(-8)}
                    </LinkTo>
                  </Table.Td>
                  <Table.Td>
                    <Group gap="xs" wrap="nowrap">
                      <BootstrapMark status={run.status} waitReason={run.waitReason} />
                      {run.failure && <span>{words(run.failure.reason)}</span>}
                    </Group>
                  </Table.Td>
                  <Table.Td>
                    {run.account ? <LinkTo to={path(`/accounts/${run.account.id}`)}>{run.account.name}</LinkTo> : 'Deleted'}
                  </Table.Td>
                  <Table.Td>{run.pool ? <LinkTo to={path(`/pools/${run.pool.id}`)}>{run.pool.name}</LinkTo> : '–'}</Table.Td>
                  <Table.Td className="mono">{run.machineId ?? '–'}</Table.Td>
                  <Table.Td>
                    <When at={run.createdAt} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableFrame>
      )}
      <Pages key={choice} info={data?.bootstraps?.pageInfo} after={after} onChange={setAfter} />
    </Page>
  );
}
