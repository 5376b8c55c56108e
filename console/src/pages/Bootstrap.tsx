import { Button, Group, Loader, Modal, Progress, Radio, Stack, Text, ThemeIcon } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconCheck, IconCloudOff, IconX } from '@tabler/icons-react';
import { useEffect, useRef, useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { follow, type Connection } from '../api';
import { graphql } from '../gql';
import type { BootstrapQuery, BootstrapStatus } from '../gql/graphql';
import { forgetKey, keyOf } from '../keys';
import { useLook } from '../look';
import { failureOf } from '../mutate';
import { priceText } from '../offers';
import { problemOf, type Problem } from '../problem';
import { useMay } from '../rights';
import { useSocket } from '../socket';
import { usePath, useTenant } from '../tenant';
import { Confirm, duration, Facts, Id, LinkTo, Loading, Mark, Notice, Page, ProblemAlert, say, Section, useNow, When } from '../ui';
import { BootstrapMark, cleanupText, isFinal, sentence, words } from '../ui/status';

const BootstrapDocument = graphql(`
  query Bootstrap($tenant: ID!, $bootstrap: ID!) {
    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {
      id
      accountId
      machineId
      offerId
      status
      step
      waitReason
      attempt
      cleanup
      hostId
      createdAt
      deadlineAt
      retryOf
      failure {
        reason
        message
        logTail
      }
      account {
        id
        name
      }
      pool {
        id
        name
      }
      history {
        from
        to
        at
        until
        reason
      }
    }
  }
`);

const BootstrapChanged = graphql(`
  subscription BootstrapChanged($tenant: ID!, $bootstrap: ID!, $after: String) {
    bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $bootstrap, after: $after) {
      cursor
      to
    }
  }
`);

const CancelBootstrap = graphql(`
  mutation CancelBootstrap($input: CancelBootstrapInput!) {
    cancelBootstrap(input: $input) {
      bootstrap {
        id
        status
        step
        waitReason
        cleanup
      }
    }
  }
`);

const RetryBootstrap = graphql(`
  mutation RetryBootstrap($input: RetryBootstrapInput!) {
    retryBootstrap(input: $input) {
      bootstrap {
        id
      }
    }
  }
`);

type Run = NonNullable<BootstrapQuery['bootstrap']>;

/** What moves within a state makes no event, so it is looked at. */
const lookEvery = 2000;

export default function Bootstrap() {
  const tenant = useTenant();
  const path = usePath();
  const socket = useSocket();
  const { bootstrapId = '' } = useParams();
  const [{ data, error }, again] = useQuery({ query: BootstrapDocument, variables: { tenant, bootstrap: bootstrapId } });
  const [connection, setConnection] = useState<Connection>('connecting');
  const [problem, setProblem] = useState<Problem | null>(null);
  const run = data?.bootstrap;
  const known = run !== undefined && run !== null;
  const over = run && isFinal(run.status) && run.cleanup !== 'PENDING' && run.cleanup !== 'RELEASING' ? true : false;

  useEffect(() => {
    if (!known) return;
    return follow({
      socket,
      document: BootstrapChanged,
      variables: (after) => ({ tenant, bootstrap: bootstrapId, after }),
      cursorOf: (message) => message.bootstrapStatusChanged.cursor,
      onData: () => again({ requestPolicy: 'network-only' }),
      onConnection: setConnection,
      onProblem: setProblem,
    });
  }, [socket, tenant, bootstrapId, known, again]);

  useLook(again, over ? null : lookEvery);

  const trail = [{ label: 'Bootstraps', to: path('/bootstraps') }];
  if (!run) {
    return (
      <Page title="Bootstrap" trail={trail}>
        {error ? <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} /> : <Loading />}
      </Page>
    );
  }
  const lost = !isFinal(run.status) && (connection === 'lost' || error !== undefined);
  return (
    <Page title={`Bootstrap …${run.id.slice(-8)}`} trail={trail} actions={<Actions run={run} />}>
      <Group mih={26} gap="sm" role="status">
        <BootstrapMark status={run.status} waitReason={run.waitReason} />
        {lost && (
          <Group gap={6}>
            <IconCloudOff size={16} aria-hidden />
            <Text size="sm">Connection lost. The bootstrap goes on; this page catches up when it is back.</Text>
          </Group>
        )}
      </Group>
      {problem && <ProblemAlert problem={problem} />}
      {run.waitReason === 'CLAIM_UNCERTAIN' && <Uncertain run={run} />}
      {run.status === 'FAILED' && run.failure && <Failure run={run} failure={run.failure} />}
      {run.status === 'JOINED' && (
        <Notice color="green" title="The machine is a host">
          Its agent has joined {run.pool ? <LinkTo to={path(`/pools/${run.pool.id}`)}>{run.pool.name}</LinkTo> : 'its pool'} with a
          certificate of its own.
        </Notice>
      )}
      <Section title="States">
        <Timeline run={run} />
      </Section>
      <Facts
        items={[
          [
            'Account',
            run.account ? (
              <LinkTo key="a" to={path(`/accounts/${run.account.id}`)}>
                {run.account.name}
              </LinkTo>
            ) : (
              'Deleted'
            ),
          ],
          [
            'Pool',
            run.pool ? (
              <LinkTo key="p" to={path(`/pools/${run.pool.id}`)}>
                {run.pool.name}
              </LinkTo>
            ) : (
              'One that you may not read'
            ),
          ],
          ['Machine', run.machineId ? <Id key="m" value={run.machineId} /> : 'None yet'],
          [
            'Ordered as',
            run.offerId ? (
              <span key="o" className="mono">
                {run.offerId}
              </span>
            ) : (
              'Nothing was ordered'
            ),
          ],
          ['Host', run.hostId ? <Id key="h" value={run.hostId} /> : 'None yet'],
          ['Id', <Id key="i" value={run.id} />],
          ['Requested', <When key="c" at={run.createdAt} />],
          ...(run.retryOf
            ? ([
                [
                  'Tries again',
                  <LinkTo key="r" to={path(`/bootstraps/${run.retryOf}`)} mono>
                    …{run.retryOf.slice(-8)}
                  </LinkTo>,
                ],
              ] as [string, React.ReactNode][])
            : []),
        ]}
      />
    </Page>
  );
}

const course: BootstrapStatus[] = ['CLAIMING', 'IDENTIFYING', 'PREPARING', 'INSTALLING', 'INSTALLED', 'JOINED'];

const meaning: Record<BootstrapStatus, string> = {
  CLAIMING: 'A machine is looked for, ordered and waited for',
  IDENTIFYING: 'The machine’s identity is read and reserved',
  PREPARING: 'The machine is made reachable and checked',
  INSTALLING: 'The agent is installed',
  INSTALLED: 'The agent is in place and about to join',
  JOINED: 'The agent has joined; the machine is a host',
  FAILED: 'It was given up',
};

function Timeline({ run }: { run: Run }) {
  const running = !isFinal(run.status);
  const now = useNow(1000, running);
  const entered = run.history.map((transition) => transition.to);
  const ahead = running ? course.slice(course.indexOf(run.status) + 1) : [];
  return (
    <ol className="surface timeline" aria-label="States">
      {run.history.map((transition, index) => {
        const current = transition.to === run.status;
        const end = transition.until ? Date.parse(transition.until) : now;
        return (
          <li key={transition.to} aria-current={current ? 'step' : undefined}>
            <StateIcon status={transition.to} current={current} left={run.history[index + 1]?.to} />
            <div>
              <Group justify="space-between" gap="xs">
                <Text fw={600}>{sentence(transition.to)}</Text>
                <Text size="sm" c="dimmed" className="number">
                  <When at={transition.at} show="time" />
                  {!isFinal(transition.to) && `, ${duration(end - Date.parse(transition.at))}`}
                </Text>
              </Group>
              <Text size="sm" c="dimmed">
                {transition.reason ? sentence(transition.reason) : meaning[transition.to]}
              </Text>
              {current && running && <Progressing run={run} since={Date.parse(transition.at)} now={now} />}
            </div>
          </li>
        );
      })}
      {ahead
        .filter((status) => !entered.includes(status))
        .map((status) => (
          <li key={status}>
            <ThemeIcon size={24} radius="xl" variant="default" aria-hidden>
              <span />
            </ThemeIcon>
            <div>
              <Text c="dimmed">{sentence(status)}</Text>
            </div>
          </li>
        ))}
    </ol>
  );
}

/** What was left for a failure did not come to its end. */
function StateIcon({ status, current, left }: { status: BootstrapStatus; current: boolean; left: BootstrapStatus | undefined }) {
  if (status === 'FAILED' || left === 'FAILED') {
    return (
      <ThemeIcon size={24} radius="xl" color="red" variant={status === 'FAILED' ? 'filled' : 'outline'} aria-hidden>
        <IconX size={15} />
      </ThemeIcon>
    );
  }
  if (current && status !== 'JOINED') return <Loader size={24} aria-hidden />;
  return (
    <ThemeIcon size={24} radius="xl" color="green" aria-hidden>
      <IconCheck size={15} />
    </ThemeIcon>
  );
}

/** What happens within the present state, and how much of its time is over. */
function Progressing({ run, since, now }: { run: Run; since: number; now: number }) {
  const end = run.deadlineAt ? Date.parse(run.deadlineAt) : null;
  const share = end === null || end <= since ? null : Math.min(100, (100 * (now - since)) / (end - since));
  return (
    <Stack gap={6} mt="xs">
      <Group gap="xs" mih={26}>
        {run.step && <Text size="sm">{sentence(run.step)}</Text>}
        {run.waitReason && <Mark color="yellow">Waiting: {words(run.waitReason)}</Mark>}
        {run.attempt > 0 && <Mark color="gray">{run.attempt === 1 ? 'Tried again once' : `Tried again ${run.attempt} times`}</Mark>}
      </Group>
      {share !== null && end !== null && (
        <>
          <Progress value={share} size="sm" aria-label="How much of this state’s time is over" />
          <Text size="xs" c="dimmed">
            Given up in {duration(end - now)} unless it moves on
          </Text>
        </>
      )}
    </Stack>
  );
}

function Failure({ run, failure }: { run: Run; failure: NonNullable<Run['failure']> }) {
  const log = useRef<HTMLPreElement>(null);
  useEffect(() => {
    if (log.current) log.current.scrollTop = log.current.scrollHeight;
  }, [failure.logTail.length]);
  return (
    <Notice color="red" title={failure.reason === 'CANCELLED' ? 'It was cancelled' : `It failed: ${words(failure.reason)}`}>
      <Stack gap="xs">
        <Text size="sm">{failure.message}</Text>
        <Text size="sm">{cleanupText(run.cleanup)}.</Text>
        {failure.logTail.length > 0 && (
          <pre ref={log} className="surface log" tabIndex={0} aria-label="The last lines of the install">
            {failure.logTail.join('\n')}
          </pre>
        )}
      </Stack>
    </Notice>
  );
}

function Actions({ run }: { run: Run }) {
  const tenant = useTenant();
  const path = usePath();
  const navigate = useNavigate();
  const manages = useMay('PROVIDERS_MANAGE', run.accountId);
  const [, cancel] = useMutation(CancelBootstrap);
  const [, retry] = useMutation(RetryBootstrap);
  const [cancelling, cancelDialog] = useDisclosure();
  const [retrying, retryDialog] = useDisclosure();
  const [releasing, releaseDialog] = useDisclosure();
  if (!manages) return null;
  return (
    <>
      {!isFinal(run.status) && (
        <Button variant="default" onClick={cancelDialog.open}>
          Cancel
        </Button>
      )}
      {run.status === 'FAILED' && run.machineId && run.cleanup !== 'RELEASED' && (
        <Button variant="default" onClick={retryDialog.open}>
          Try again
        </Button>
      )}
      {run.status === 'FAILED' && run.offerId && run.cleanup === 'PENDING' && (
        <Button variant="default" onClick={releaseDialog.open}>
          Give it back now
        </Button>
      )}
      <Confirm
        opened={releasing}
        onClose={releaseDialog.close}
        title="Give the machine back now?"
        action="Give it back"
        danger
        run={async () => failureOf(await cancel({ input: { tenantId: tenant, bootstrapId: run.id } }))}
      >
        <Text size="sm">It is kept to be tried again. What is on it is lost, and it costs nothing any more.</Text>
      </Confirm>
      <Confirm
        opened={cancelling}
        onClose={cancelDialog.close}
        title="Cancel this bootstrap?"
        action="Cancel the bootstrap"
        danger
        run={async () => failureOf(await cancel({ input: { tenantId: tenant, bootstrapId: run.id } }))}
      >
        <Text size="sm">
          {run.offerId
            ? 'What it ordered is given back. It may cost what the provider asks for the time it ran.'
            : 'The machine is left to you as it is then.'}
        </Text>
      </Confirm>
      <Confirm
        opened={retrying}
        onClose={retryDialog.close}
        title="Try again?"
        action="Try again"
        run={async () => {
          const result = await retry({ input: { tenantId: tenant, bootstrapId: run.id, idempotencyKey: keyOf(tenant, 'retry', run.id) } });
          const id = result.data?.retryBootstrap?.bootstrap.id;
          if (id) {
            forgetKey(tenant, 'retry', run.id);
            await navigate(path(`/bootstraps/${id}`));
          }
          return failureOf(result);
        }}
      >
        <Text size="sm">
          A new bootstrap starts on the same machine, with the same account and pool. What is on the machine is wiped again.
        </Text>
      </Confirm>
    </>
  );
}

const ClaimDocument = graphql(`
  query Claim($tenant: ID!, $bootstrap: ID!) {
    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {
      id
      claim {
        operationId
        offerId
        price {
          hourly
          monthly
          setup
          currency
          taxIncluded
        }
        intendedAt
        attemptedAt
        orderRef
        lastError
        candidates {
          id
          name
          status
          region
        }
      }
    }
  }
`);

const ResolveClaim = graphql(`
  mutation ResolveClaim($input: ResolveClaimInput!) {
    resolveClaim(input: $input) {
      bootstrap {
        id
        status
        step
        waitReason
      }
    }
  }
`);

/** An order that nobody knows the outcome of: what there is to go by, and the person's word. */
function Uncertain({ run }: { run: Run }) {
  const tenant = useTenant();
  const manages = useMay('PROVIDERS_MANAGE', run.accountId);
  const [opened, { open, close }] = useDisclosure();
  const [{ data, error }, again] = useQuery({
    query: ClaimDocument,
    variables: { tenant, bootstrap: run.id },
    requestPolicy: 'network-only',
  });
  const claim = data?.bootstrap?.claim;
  return (
    <Notice color="yellow" title="Nobody knows whether the order took effect">
      <Stack gap="sm">
        <Text size="sm">
          The order got no answer, and the provider does not tell what became of it. Look at the provider’s own console, then say what you
          found. Until then nothing is ordered.
        </Text>
        {error && !claim && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
        {claim && (
          <Facts
            items={[
              ['Operation id at the provider', <Id key="op" value={claim.operationId} />],
              ['Sent', <When key="sent" at={claim.attemptedAt} />],
              [
                'What was ordered',
                <span key="offer" className="mono">
                  {claim.offerId}
                </span>,
              ],
              ['Price', priceText(claim.price)],
              ['The provider’s name for it', claim.orderRef ?? 'None'],
              ['What the provider said last', claim.lastError || 'Nothing'],
            ]}
          />
        )}
        {manages && (
          <Group justify="flex-end">
            <Button onClick={open} disabled={!claim}>
              Say what became of it
            </Button>
          </Group>
        )}
      </Stack>
      {claim && (
        <Modal opened={opened} onClose={close} title="What became of the order?" centered size="lg">
          <Resolve run={run} candidates={claim.candidates ?? []} onDone={close} />
        </Modal>
      )}
    </Notice>
  );
}

interface ResolveProps {
  run: Run;
  candidates: { id: string; name: string; status: string; region: string }[];
  onDone: () => void;
}

const nothing = 'nothing ordered';

function Resolve({ run, candidates, onDone }: ResolveProps) {
  const tenant = useTenant();
  const [answer, setAnswer] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, resolve] = useMutation(ResolveClaim);
  const send = async () => {
    const found = answer === nothing ? { nothingOrdered: true } : { machineId: answer };
    const failure = failureOf(await resolve({ input: { tenantId: tenant, bootstrapId: run.id, ...found } }));
    setProblem(failure);
    if (failure) return;
    say('The bootstrap goes on.');
    onDone();
  };
  return (
    <Stack>
      <Radio.Group value={answer} onChange={setAnswer} label="The order brought">
        <Stack gap="sm" mt="xs">
          {candidates.map((machine) => (
            <Radio
              key={machine.id}
              value={machine.id}
              label={`this machine: ${machine.name || machine.id}`}
              description={`${machine.id}, ${machine.region}, ${machine.status}. No run and no host has it.`}
            />
          ))}
          <Radio
            value={nothing}
            label="nothing"
            description="It may be sent again, and then costs once. Say so only when the provider shows no machine and no open order."
          />
        </Stack>
      </Radio.Group>
      {problem && <ProblemAlert problem={problem} />}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Back
        </Button>
        <Button disabled={answer === null} loading={fetching} onClick={() => void send()}>
          Go on from there
        </Button>
      </Group>
    </Stack>
  );
}
