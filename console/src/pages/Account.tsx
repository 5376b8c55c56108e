import { Button, Group, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconPlayerPlay, IconServer2 } from '@tabler/icons-react';
import { useState } from 'react';
import { Link, useNavigate, useParams } from 'react-router';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import { useLook } from '../look';
import { failureOf } from '../mutate';
import { problemOf, problemOfError, type Problem } from '../problem';
import { useMay } from '../rights';
import { usePath, useTenant } from '../tenant';
import { Confirm, Empty, Facts, Id, LinkTo, Loading, Notice, Page, ProblemAlert, say, Section, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { BootstrapMark, isFinal } from '../ui/status';
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
        inUse
      }
    }
  }
`);

/** How often the states of bootstraps are looked at, while one runs. */
const lookEvery = 5000;

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
  const running = account?.bootstraps.nodes.some(({ status }) => !isFinal(status)) ?? false;
  useLook(again, running ? lookEvery : null);
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
          <DataTable
            label="Bootstraps"
            rows={account.bootstraps.nodes}
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
              { title: 'State', cell: ({ status, waitReason }) => <BootstrapMark status={status} waitReason={waitReason} /> },
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
        <DataTable
          label="Machines"
          rows={machines}
          keyOf={({ id }) => id}
          columns={[
            {
              title: 'Name',
              cell: ({ id, name }) => name || <span className="mono">{id}</span>,
              whole: ({ name }) => name,
              className: 'cut',
            },
            { title: 'Kind', cell: ({ kind }) => (kind === 'METAL' ? 'Dedicated' : 'Virtual') },
            { title: 'Region', cell: ({ region }) => region },
            { title: 'Status', cell: ({ status }) => status },
            { title: 'Addresses', cell: ({ addresses }) => addresses.join(', ') || '–', className: 'mono' },
            {
              title: 'Use',
              cell: ({ id, name, inUse }) => {
                if (inUse) return 'In use';
                if (!manages) return 'Free';
                return (
                  <Button
                    size="xs"
                    variant="light"
                    component={Link}
                    to={`${path('/bootstraps/new')}?account=${accountId}&machine=${encodeURIComponent(id)}`}
                    aria-label={`Bootstrap ${name || id}`}
                  >
                    Bootstrap
                  </Button>
                );
              },
            },
          ]}
        />
      )}
    </Section>
  );
}
