import { Button, Group, Modal, Select, Stack, Switch, TextInput } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconPlus, IconServer2 } from '@tabler/icons-react';
import { useState } from 'react';
import { useSearchParams } from 'react-router';
import { useMutation } from 'urql';
import { useListQuery } from '../query';
import { graphql } from '../gql';
import type { AccountNamesQuery, PoolAgent, PoolClass } from '../gql/graphql';
import { problemOf, type Problem } from '../problem';
import { usePath, useTenant, useWorkplace } from '../tenant';
import { Empty, LinkTo, Loading, Mark, Page, ProblemAlert, say, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';
import { useWhole } from '../whole';
import { classText, ofHosts } from './poolText';

const PoolsDocument = graphql(`
  query Pools($tenant: ID!, $archived: Boolean!, $after: String) {
    pools(tenantId: $tenant, includeArchived: $archived, first: 25, after: $after) {
      nodes {
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
        hosts(first: 20) {
          nodes {
            id
          }
          pageInfo {
            hasNextPage
          }
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const CreatePool = graphql(`
  mutation CreatePool($input: CreatePoolInput!) {
    createPool(input: $input) {
      pool {
        id
        name
      }
    }
  }
`);

const context = { additionalTypenames: ['Pool', 'Host'] };

export default function Pools() {
  const { tenant, permissions } = useWorkplace();
  const path = usePath();
  const [params, setParams] = useSearchParams();
  const archived = params.has('archived');
  const after = useAfter();
  const [{ data, error }, again] = useListQuery({ query: PoolsDocument, variables: { tenant, archived, after }, context });
  const [opened, { open, close }] = useDisclosure();
  const pools = data?.pools?.nodes;
  const create = permissions.has('POOLS_MANAGE') && (
    <Button leftSection={<IconPlus size={16} />} onClick={open}>
      Create a pool
    </Button>
  );
  return (
    <Page
      title="Pools and hosts"
      about="A pool is a group of hosts. A bootstrap puts its host into one."
      actions={pools?.length ? create : null}
    >
      <Switch
        label="Show archived pools too"
        checked={archived}
        onChange={(event) => setParams(event.currentTarget.checked ? { archived: 'yes' } : {}, { replace: true })}
      />
      {error && !pools && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {pools?.length === 0 && (
        <Empty icon={IconServer2} title="No pool yet" action={create}>
          {create
            ? 'Create one for virtual or dedicated hosts, then bootstrap machines into it.'
            : 'Somebody who may manage pools has to create one first.'}
        </Empty>
      )}
      {pools && pools.length > 0 && (
        <DataTable
          label="Pools"
          rows={pools}
          keyOf={({ id }) => id}
          columns={[
            {
              title: 'Name',
              cell: ({ id, name, archivedAt }) => (
                <Group gap="xs" wrap="nowrap">
                  <LinkTo to={path(`/pools/${id}`)}>{name}</LinkTo>
                  {archivedAt && <Mark color="gray">Archived</Mark>}
                </Group>
              ),
            },
            { title: 'Made of', cell: (pool) => classText(pool.class) },
            { title: 'Hosts', cell: ({ hosts }) => (hosts.pageInfo.hasNextPage ? 'More than 20' : hosts.nodes.length) },
            {
              title: 'Account',
              cell: ({ account }) => (account ? <LinkTo to={path(`/accounts/${account.id}`)}>{account.name}</LinkTo> : '–'),
            },
            { title: 'Created', cell: ({ createdAt }) => <When at={createdAt} /> },
          ]}
        />
      )}
      <Pages info={data?.pools?.pageInfo} />
      <Modal opened={opened} onClose={close} title="Create a pool" centered>
        <PoolForm onDone={close} />
      </Modal>
    </Page>
  );
}

const AccountNames = graphql(`
  query AccountNames($tenant: ID!, $after: String) {
    providerAccounts(tenantId: $tenant, first: 100, after: $after) {
      nodes {
        id
        name
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const accountsOf = (data: AccountNamesQuery) => data.providerAccounts;

const classes: PoolClass[] = ['VPS_HOST', 'METAL_HOST', 'VPS', 'METAL', 'CONTAINER'];
const agents: { value: PoolAgent; label: string }[] = [
  { value: 'BCD', label: 'The bcd agent' },
  { value: 'NONE', label: 'Nothing of ours' },
];

function PoolForm({ onDone }: { onDone: () => void }) {
  const tenant = useTenant();
  const { nodes: accounts } = useWhole(AccountNames, { tenant }, accountsOf);
  const [name, setName] = useState('');
  const [poolClass, setPoolClass] = useState<PoolClass>('VPS_HOST');
  const [agent, setAgent] = useState<PoolAgent>('BCD');
  const [account, setAccount] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, create] = useMutation(CreatePool);
  const errorAt = (path: string) => problem?.issues.find((issue) => issue.path === path)?.message;
  const send = async () => {
    const result = await create({ input: { tenantId: tenant, name, class: poolClass, agent, accountId: account } });
    if (result.error) {
      setProblem(problemOf(result.error));
      return;
    }
    say(`${name} is created.`);
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
        <TextInput
          label="Name"
          description="Lower-case letters, digits and . _ -"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={errorAt('name')}
          required
          data-autofocus
          autoComplete="off"
        />
        <Select
          label="Made of"
          data={classes.map((value) => ({ value, label: classText(value) }))}
          value={poolClass}
          onChange={(value) => {
            const chosen = classes.find((c) => c === value);
            if (!chosen) return;
            setPoolClass(chosen);
            setAgent(ofHosts(chosen) ? 'BCD' : 'NONE');
          }}
          error={errorAt('class')}
          allowDeselect={false}
        />
        <Select
          label="What runs on its machines"
          description="Bootstraps put hosts into pools of hosts that run the bcd agent."
          data={agents}
          value={agent}
          onChange={(value) => setAgent(value === 'NONE' ? 'NONE' : 'BCD')}
          error={errorAt('agent')}
          allowDeselect={false}
        />
        <Select
          label="Account that its machines come from"
          placeholder={accounts ? 'None' : 'Loading'}
          searchable={(accounts?.length ?? 0) > 10}
          data={(accounts ?? []).map(({ id, name: label }) => ({ value: id, label }))}
          value={account}
          onChange={setAccount}
          error={errorAt('accountId')}
          clearable
          clearButtonProps={{ 'aria-label': 'No account' }}
        />
        {problem && problem.issues.length === 0 && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
            Back
          </Button>
          <Button type="submit" loading={fetching}>
            Create
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
