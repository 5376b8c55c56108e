import { Button, Checkbox, Group, List, Select, Stack, Text, ThemeIcon } from '@mantine/core';
import { IconCheck, IconServer2, IconTag, IconX } from '@tabler/icons-react';
import { useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import type { BootstrapPreconditionName, PoolsToStartQuery } from '../gql/graphql';
import { forgetKey, keyOf } from '../keys';
import { priceText } from '../offers';
import { forbidden, problemOf, type Problem } from '../problem';
import { useRight } from '../rights';
import { usePath, useTenant } from '../tenant';
import { Empty, Facts, LinkTo, Loading, Notice, Page, ProblemAlert, say, Section } from '../ui';
import { useWhole } from '../whole';
import { ofHosts } from './poolText';

const StartContext = graphql(`
  query StartContext($tenant: ID!, $account: ID!) {
    providerAccount(tenantId: $tenant, accountId: $account) {
      id
      name
    }
  }
`);

const PoolsToStart = graphql(`
  query PoolsToStart($tenant: ID!, $after: String) {
    pools(tenantId: $tenant, first: 100, after: $after) {
      nodes {
        id
        name
        class
        agent
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const poolsOf = (data: PoolsToStartQuery) => data.pools;

const PlanDocument = graphql(`
  query Plan($tenant: ID!, $account: ID!, $pool: ID!, $machine: ID, $offer: ID) {
    planBootstrap(tenantId: $tenant, accountId: $account, poolId: $pool, machineId: $machine, offerId: $offer) {
      price {
        hourly
        monthly
        setup
        currency
        taxIncluded
      }
      wipes
      expectedMinutes
      ready
      preconditions {
        name
        ok
        message
        code
      }
    }
  }
`);

const StartBootstrap = graphql(`
  mutation StartBootstrap($input: BootstrapMachineInput!) {
    bootstrapMachine(input: $input) {
      replayed
      bootstrap {
        id
        status
      }
    }
  }
`);

const names: Record<BootstrapPreconditionName, string> = {
  SERVER: 'This server is set up for bootstraps',
  ACCOUNT: 'The account exists',
  CAPABILITIES: 'The provider can do it',
  POOL: 'The pool takes hosts',
  CREDENTIALS: 'The provider takes the credentials',
  AVAILABILITY: 'The provider has it in stock',
  MACHINE_FREE: 'The machine is free',
  ORDER_LIMIT: 'The tenant may order more this hour',
};

export default function NewBootstrap() {
  const tenant = useTenant();
  const path = usePath();
  const [params] = useSearchParams();
  const account = params.get('account') ?? '';
  const offer = params.get('offer');
  const machine = params.get('machine');
  const [{ data, error }, again] = useQuery({ query: StartContext, variables: { tenant, account }, pause: account === '' });
  const may = useRight('PROVIDERS_MANAGE', account);
  const all = useWhole(PoolsToStart, { tenant }, poolsOf);
  const trail = [{ label: 'Bootstraps', to: path('/bootstraps') }];
  if (account === '' || (offer === null) === (machine === null)) {
    return (
      <Page title="Start a bootstrap" trail={trail}>
        <Empty
          icon={IconTag}
          title="What shall become a host?"
          action={
            <Button component={Link} to={path('/offers')}>
              See the offers
            </Button>
          }
        >
          Pick an offer to order a machine, or one of the machines on the page of an account.
        </Empty>
      </Page>
    );
  }
  const ready = may && data?.providerAccount;
  const pools = (all.nodes ?? []).filter((pool) => pool.agent === 'BCD' && ofHosts(pool.class));
  return (
    <Page title="Start a bootstrap" trail={trail}>
      {error && !data?.providerAccount && (
        <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />
      )}
      {data?.providerAccount && may === false && <ProblemAlert problem={forbidden('run bootstraps of this account')} />}
      {ready && all.error && <ProblemAlert problem={problemOf(all.error)} retry={all.again} />}
      {!error && !all.error && (!data || may === undefined || (may && !all.nodes)) && <Loading />}
      {ready && all.nodes && pools.length === 0 && (
        <Empty
          icon={IconServer2}
          title="There is no pool for the host yet"
          action={
            <Button component={Link} to={path('/pools')}>
              See the pools
            </Button>
          }
        >
          A host belongs to a pool of virtual or dedicated hosts that runs the bcd agent.
        </Empty>
      )}
      {ready && pools.length > 0 && (
        <Planner key={JSON.stringify([account, offer, machine])} account={ready} pools={pools} offer={offer} machine={machine} />
      )}
    </Page>
  );
}

interface PlannerProps {
  account: { id: string; name: string };
  pools: { id: string; name: string }[];
  offer: string | null;
  machine: string | null;
}

function Planner({ account, pools, offer, machine }: PlannerProps) {
  const tenant = useTenant();
  const path = usePath();
  const navigate = useNavigate();
  const [pool, setPool] = useState(pools.length === 1 ? (pools[0]?.id ?? null) : null);
  const [understood, setUnderstood] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching: starting }, start] = useMutation(StartBootstrap);
  const [{ data, error, fetching }, again] = useQuery({
    query: PlanDocument,
    variables: { tenant, account: account.id, pool: pool ?? '', machine, offer },
    pause: pool === null,
    requestPolicy: 'network-only',
  });
  const plan = pool === null ? null : data?.planBootstrap;
  // The pool is no part of it: who gets no answer and picks another pool has still ordered once.
  const wanted = ['bootstrap', account.id, offer, machine];
  const startedBefore = problem?.details.idempotencyKey !== undefined;
  const begin = async () => {
    if (pool === null) return;
    setProblem(null);
    const result = await start({
      input: {
        tenantId: tenant,
        accountId: account.id,
        poolId: pool,
        machineId: machine,
        offerId: offer,
        idempotencyKey: keyOf(tenant, ...wanted),
      },
    });
    if (result.error) {
      setProblem(problemOf(result.error));
      return;
    }
    const started = result.data?.bootstrapMachine;
    if (!started) return;
    forgetKey(tenant, ...wanted);
    if (started.replayed) say('It had been started before, when no answer came. This is that bootstrap.');
    await navigate(path(`/bootstraps/${started.bootstrap.id}`));
  };
  const choose = (value: string | null) => {
    setPool(value);
    setUnderstood(false);
    setProblem(null);
  };
  return (
    <>
      <Stack className="surface" p="lg" maw={680}>
        <Select
          label="Pool"
          description="Where the host will belong."
          placeholder="Pick one"
          data={pools.map(({ id, name }) => ({ value: id, label: name }))}
          value={pool}
          onChange={choose}
          searchable={pools.length > 10}
          allowDeselect={false}
          required
        />
      </Stack>
      {error && !plan && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {pool !== null && !plan && !error && <Loading />}
      {plan && (
        <>
          <Section
            title="The plan"
            actions={
              <Button size="xs" variant="default" loading={fetching} onClick={() => again({ requestPolicy: 'network-only' })}>
                Look again
              </Button>
            }
          >
            <Facts
              items={[
                ['Account', account.name],
                [
                  offer === null ? 'Machine' : 'Offer',
                  <span key="what" className="mono">
                    {offer ?? machine}
                  </span>,
                ],
                ['Price', offer === null ? 'Nothing is ordered' : priceText(plan.price)],
                [
                  'Usually takes',
                  plan.expectedMinutes == null ? 'Not known' : plan.expectedMinutes === 1 ? 'A minute' : `${plan.expectedMinutes} minutes`,
                ],
              ]}
            />
          </Section>
          <Section title="What must hold">
            <List className="surface" p="md" spacing="sm" styles={{ itemWrapper: { lineHeight: 1.4 } }} center listStyleType="none">
              {plan.preconditions.map((condition) => (
                <List.Item
                  key={condition.name}
                  icon={
                    <ThemeIcon
                      size={22}
                      radius="xl"
                      color={condition.ok ? 'green' : 'red'}
                      role="img"
                      aria-label={condition.ok ? 'Holds' : 'Does not hold'}
                    >
                      {condition.ok ? <IconCheck size={14} /> : <IconX size={14} />}
                    </ThemeIcon>
                  }
                >
                  {names[condition.name]}
                  {!condition.ok && (
                    <Text size="sm" c="dimmed">
                      {condition.message}
                    </Text>
                  )}
                </List.Item>
              ))}
            </List>
          </Section>
          {plan.wipes.length > 0 && (
            <Notice color="yellow" title="What will be lost">
              <Stack gap="sm">
                <List size="sm">
                  {plan.wipes.map((wipe) => (
                    <List.Item key={wipe}>{wipe}</List.Item>
                  ))}
                </List>
                {machine !== null && (
                  <Checkbox
                    label="I know, and nobody needs it"
                    checked={understood}
                    onChange={(event) => setUnderstood(event.currentTarget.checked)}
                  />
                )}
              </Stack>
            </Notice>
          )}
          {problem && !startedBefore && <ProblemAlert problem={problem} />}
          {startedBefore && (
            <Notice role="alert" color="yellow" title="It was started before, into another pool">
              <Stack gap="xs" align="flex-start">
                <Text size="sm">
                  No answer came then, but it took effect: it is among the{' '}
                  <LinkTo to={`${path('/bootstraps')}?account=${account.id}`}>bootstraps of the account</LinkTo>.
                </Text>
                <Button
                  size="xs"
                  variant="default"
                  onClick={() => {
                    forgetKey(tenant, ...wanted);
                    void begin();
                  }}
                >
                  {offer === null ? 'Start another one' : 'Order another one'}
                </Button>
              </Stack>
            </Notice>
          )}
          <Group justify="flex-end">
            <Button
              size="md"
              loading={starting}
              disabled={!plan.ready || (machine !== null && plan.wipes.length > 0 && !understood)}
              onClick={() => void begin()}
            >
              {offer === null ? 'Start the bootstrap' : 'Order and start'}
            </Button>
          </Group>
        </>
      )}
    </>
  );
}
