import { Button, Group, Table, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconPlayerPlay, IconServer2 } from '@tabler/icons-react';
import { useState } from 'react';
import { Link, useNavigate, useParams } from 'react-router';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import { failureOf } from '../mutate';
import { problemOf, problemOfError, type Problem } from '../problem';
import { useMay } from '../rights';
import { usePath, useTenant } from '../tenant';
import { Confirm, Empty, Facts, Id, LinkTo, Loading, Notice, Page, ProblemAlert, say, Section, TableFrame, When } from '../ui';
import { BootstrapMark } from '../ui/status';
import { CheckAccount, DeleteAccount } from './accountActions';
import { CheckMark } from './Accounts';

const AccountDocument = graphql(`
  query Account($tenant: ID!, $account: ID!) {
    providerAccount(tenantId: $tenant, accountId: $account) {
      id
      name
      provider {
        name
        displayName
        capabilities {
          offers
          machines
          bootstrap
        }
      }
      config
      version
      createdAt
      updatedAt
      check {
        ok
        reason
        message
        at
      }
      bootstraps(first: 10) {
        nodes {
          id
          status
          waitReason
          machineId
          createdAt
        }
        pageInfo {
          hasNextPage
        }
      }
    }
  }
`);

const MachinesDocument = graphql(`
  query Machines($tenant: ID!, $account: ID!) {
    providerAccount(tenantId: $tenant, accountId: $account) {
      id
      machines {
        id
        name
        kind
        region
        status
        addresses
      }
    }
  }
`);

const context = { additionalTypenames: ['Bootstrap', 'ProviderAccount'] };

export default function Account() {
  const tenant = useTenant();
  const path = usePath();
  const navigate = useNavigate();
  const { accountId = '' } = useParams();
  const [{ data, error }, again] = useQuery({ query: AccountDocument, variables: { tenant, account: accountId }, context });
  const [{ fetching: checking }, check] = useMutation(CheckAccount);
  const [, remove] = useMutation(DeleteAccount);
  const [deleting, { open, close }] = useDisclosure();
  const [problem, setProblem] = useState<Problem | null>(null);
  const manages = useMay('PROVIDERS_MANAGE', accountId);
  const account = data?.providerAccount;
  const trail = [{ label: 'Accounts', to: path('/accounts') }];
  if (!account) {
    return (
      <Page title="Account" trail={trail}>
        {error ? <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} /> : <Loading />}
      </Page>
    );
  }
  const actions = manages && (
    <>
      <Button
        variant="default"
        loading={checking}
        onClick={() => void check({ input: { tenantId: tenant, accountId } }).then((result) => setProblem(failureOf(result)))}
      >
        Check
      </Button>
      <Button variant="default" component={Link} to={path(`/accounts/${accountId}/edit`)}>
        Edit
      </Button>
      <Button variant="default" onClick={open}>
        Delete
      </Button>
    </>
  );
  return (
    <Page title={account.name} trail={trail} actions={actions}>
      {problem && <ProblemAlert problem={problem} />}
      {account.check && !account.check.ok && (
        <Notice color="red" title="The last check failed">
          {account.check.message} {account.check.reason === 'credentials' && 'No call of this account goes out until it is corrected.'}
        </Notice>
      )}
      <Facts
        items={[
          ['Provider', account.provider.displayName],
          ['Last check', <CheckMark key="check" check={account.check ?? null} />],
          ['Checked', <When key="at" at={account.check?.at} />],
          ['Id', <Id key="id" value={account.id} />],
          ['Connected', <When key="created" at={account.createdAt} />],
          ['Changed', <When key="updated" at={account.updatedAt} />],
        ]}
      />
      <Section title="Settings">
        <pre className="surface log" tabIndex={0} aria-label="Settings">
          {JSON.stringify(account.config, null, 2)}
        </pre>
      </Section>
      {account.provider.capabilities.machines && <Machines accountId={accountId} manages={manages} />}
      <Section
        title="Bootstraps"
        actions={
          <Group gap="xs">
            {account.provider.capabilities.offers && (
              <Button size="xs" variant="default" component={Link} to={`${path('/offers')}?account=${accountId}`}>
                See its offers
              </Button>
            )}
            {account.bootstraps.pageInfo.hasNextPage && (
              <Button size="xs" variant="default" component={Link} to={`${path('/bootstraps')}?account=${accountId}`}>
                See all
              </Button>
            )}
          </Group>
        }
      >
        {account.bootstraps.nodes.length === 0 ? (
          <Empty icon={IconPlayerPlay} title="Nothing was bootstrapped through this account">
            Pick one of its offers or machines and turn it into a host.
          </Empty>
        ) : (
          <TableFrame label="Bootstraps">
            <Table verticalSpacing="sm" horizontalSpacing="md" miw={480}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Bootstrap</Table.Th>
                  <Table.Th>State</Table.Th>
                  <Table.Th>Machine</Table.Th>
                  <Table.Th>Requested</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {account.bootstraps.nodes.map((run) => (
                  <Table.Tr key={run.id}>
                    <Table.Td>
                      <LinkTo to={path(`/bootstraps/${run.id}`)} mono>
                        …{run.id.slice(-8)}
                      </LinkTo>
                    </Table.Td>
                    <Table.Td>
                      <BootstrapMark status={run.status} waitReason={run.waitReason} />
                    </Table.Td>
                    <Table.Td className="mono cut" title={run.machineId ?? undefined}>
                      {run.machineId ?? '–'}
                    </Table.Td>
                    <Table.Td>
                      <When at={run.createdAt} />
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </TableFrame>
        )}
      </Section>
      <Confirm
        opened={deleting}
        onClose={close}
        title={`Delete ${account.name}?`}
        action="Delete"
        danger
        run={async () => {
          const failure = failureOf(await remove({ input: { tenantId: tenant, accountId } }));
          if (failure) return failure;
          say(`${account.name} is deleted.`);
          await navigate(path('/accounts'), { replace: true });
          return null;
        }}
      >
        <Text size="sm">The account goes; its machines at the provider stay, and so do its secrets.</Text>
      </Confirm>
    </Page>
  );
}

function Machines({ accountId, manages }: { accountId: string; manages: boolean }) {
  const tenant = useTenant();
  const path = usePath();
  const [{ data, error, fetching }, again] = useQuery({
    query: MachinesDocument,
    variables: { tenant, account: accountId },
    requestPolicy: 'network-only',
  });
  const machines = data?.providerAccount?.machines;
  const [first] = error?.graphQLErrors ?? [];
  const reload = () => again({ requestPolicy: 'network-only' });
  return (
    <Section
      title="Machines"
      actions={
        <Button size="xs" variant="default" onClick={reload} loading={fetching}>
          Reload
        </Button>
      }
    >
      {error && !machines && <ProblemAlert problem={first ? problemOfError(first) : problemOf(error)} retry={reload} />}
      {!machines && !error && <Loading rows={2} />}
      {machines?.length === 0 && (
        <Empty icon={IconServer2} title="The account has no machine">
          Order one by bootstrapping an offer.
        </Empty>
      )}
      {machines && machines.length > 0 && (
        <TableFrame label="Machines">
          <Table verticalSpacing="sm" horizontalSpacing="md" miw={640}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th>Kind</Table.Th>
                <Table.Th>Region</Table.Th>
                <Table.Th>Status</Table.Th>
                <Table.Th>Addresses</Table.Th>
                {manages && <Table.Th aria-label="Actions" />}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {machines.map((machine) => (
                <Table.Tr key={machine.id}>
                  <Table.Td className="cut" title={machine.name}>
                    {machine.name || <span className="mono">{machine.id}</span>}
                  </Table.Td>
                  <Table.Td>{machine.kind === 'METAL' ? 'Dedicated' : 'Virtual'}</Table.Td>
                  <Table.Td>{machine.region}</Table.Td>
                  <Table.Td>{machine.status}</Table.Td>
                  <Table.Td className="mono" style={{ whiteSpace: 'nowrap' }}>
                    {machine.addresses.join(', ') || '–'}
                  </Table.Td>
                  {manages && (
                    <Table.Td ta="right">
                      <Button
                        size="xs"
                        variant="light"
                        component={Link}
                        to={`${path('/bootstraps/new')}?account=${accountId}&machine=${encodeURIComponent(machine.id)}`}
                        aria-label={`Bootstrap ${machine.name || machine.id}`}
                      >
                        Bootstrap
                      </Button>
                    </Table.Td>
                  )}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableFrame>
      )}
    </Section>
  );
}
