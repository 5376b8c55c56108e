import { Button } from '@mantine/core';
import { IconPlugConnected, IconPlus } from '@tabler/icons-react';
import { Link } from 'react-router';
import { useListQuery } from '../query';
import { graphql } from '../gql';
import type { AccountsQuery, PoolAccountsQuery } from '../gql/graphql';
import { problemOf } from '../problem';
import { usePath, useWorkplace } from '../tenant';
import { Empty, LinkTo, Loading, Mark, Page, ProblemAlert, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';
import { sentence } from '../ui/status';
import { useWhole } from '../whole';

const AccountsDocument = graphql(`
  query Accounts($tenant: ID!, $after: String) {
    providerAccounts(tenantId: $tenant, first: 50, after: $after) {
      nodes {
        id
        name
        provider {
          name
          displayName
        }
        check {
          ok
          reason
          at
        }
        updatedAt
        bootstraps(first: 20, statuses: [CLAIMING, IDENTIFYING, PREPARING, INSTALLING, INSTALLED]) {
          nodes {
            id
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

const PoolAccounts = graphql(`
  query PoolAccounts($tenant: ID!, $after: String) {
    pools(tenantId: $tenant, first: 100, after: $after) {
      nodes {
        id
        account {
          id
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const poolsOf = (data: PoolAccountsQuery) => data.pools;

const context = { additionalTypenames: ['ProviderAccount', 'Bootstrap', 'Pool'] };

export default function Accounts() {
  const { tenant, permissions } = useWorkplace();
  const path = usePath();
  const after = useAfter();
  const [{ data, error }, again] = useListQuery({ query: AccountsDocument, variables: { tenant, after }, context });
  const { nodes: pools, error: poolsError } = useWhole(PoolAccounts, { tenant }, poolsOf);
  const accounts = data?.providerAccounts?.nodes;
  const mayConnect = permissions.has('PROVIDERS_MANAGE');
  const connect = mayConnect && (
    <Button component={Link} to={path('/accounts/new')} leftSection={<IconPlus size={16} />}>
      Connect an account
    </Button>
  );
  return (
    <Page
      title="Accounts"
      about="The accounts at clouds and dedicated-server hosts that this tenant gets its machines from."
      actions={accounts?.length ? connect : null}
    >
      {error && !accounts && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {accounts?.length === 0 && (
        <Empty icon={IconPlugConnected} title="No account is connected yet" action={connect}>
          {mayConnect
            ? 'Connect one, and you see what it offers and can turn its machines into hosts.'
            : 'Somebody who may manage providers has to connect one first.'}
        </Empty>
      )}
      {data && accounts && accounts.length > 0 && (
        <>
          <DataTable
            label="Accounts"
            rows={accounts}
            keyOf={({ id }) => id}
            columns={[
              { title: 'Name', cell: ({ id, name }) => <LinkTo to={path(`/accounts/${id}`)}>{name}</LinkTo> },
              { title: 'Provider', cell: ({ provider }) => provider.displayName },
              { title: 'Last check', cell: ({ check }) => <CheckMark check={check ?? null} /> },
              { title: 'Used by', cell: (account) => (pools || poolsError ? usersOf(pools ?? [], account) : '…') },
              { title: 'Changed', cell: ({ updatedAt }) => <When at={updatedAt} /> },
            ]}
          />
          <Pages info={data.providerAccounts?.pageInfo} />
        </>
      )}
    </Page>
  );
}

export function CheckMark({ check }: { check: { ok: boolean; reason?: string | null } | null }) {
  if (!check) return <Mark color="gray">Not checked</Mark>;
  return check.ok ? (
    <Mark color="green">Credentials taken</Mark>
  ) : (
    <Mark color="red">{check.reason === 'credentials' ? 'Credentials refused' : sentence(check.reason ?? 'failed')}</Mark>
  );
}

type Row = NonNullable<AccountsQuery['providerAccounts']>['nodes'][number];
type Pools = NonNullable<PoolAccountsQuery['pools']>['nodes'];

function usersOf(all: Pools, account: Row): string {
  const pools = all.filter((pool) => pool.account?.id === account.id).length;
  const runs = account.bootstraps.nodes.length;
  const parts = [];
  if (pools > 0) parts.push(pools === 1 ? '1 pool' : `${pools} pools`);
  if (runs > 0) parts.push(runs === 1 ? '1 running bootstrap' : `${runs === 20 ? '20 or more' : runs} running bootstraps`);
  return parts.join(', ') || 'Nothing now';
}
