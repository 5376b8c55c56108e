// The parts that every page is made of.

import {
  ActionIcon,
  Alert,
  Anchor,
  Badge,
  Breadcrumbs,
  Button,
  Center,
  CopyButton,
  Group,
  Modal,
  Skeleton,
  Stack,
  Text,
  ThemeIcon,
  Title,
  Tooltip,
  type MantineColor,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconAlertTriangle, IconCheck, IconCopy } from '@tabler/icons-react';
import { use, useEffect, useState, type ComponentType, type ReactNode } from 'react';
import { Link } from 'react-router';
import { advice, type Problem } from '../problem';
import { pathIn, WorkplaceContext } from '../tenant';

interface PageProps {
  title: string;
  about?: ReactNode;
  trail?: { label: string; to: string }[];
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, about, trail, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} · Compute`;
  }, [title]);
  return (
    <Stack gap="lg">
      <Stack gap={4}>
        {trail && (
          <Breadcrumbs separatorMargin={6} fz="sm">
            {trail.map((step) => (
              <LinkTo key={step.to} to={step.to}>
                {step.label}
              </LinkTo>
            ))}
          </Breadcrumbs>
        )}
        <Group justify="space-between" align="flex-start" gap="sm" mih={36}>
          <Stack gap={4} maw="46rem" style={{ flex: '1 1 16rem' }}>
            <Title order={1} size="h2" style={{ overflowWrap: 'anywhere' }}>
              {title}
            </Title>
            {about && <Text c="dimmed">{about}</Text>}
          </Stack>
          {actions && <Group gap="xs">{actions}</Group>}
        </Group>
      </Stack>
      {children}
    </Stack>
  );
}

export function LinkTo({ to, children, mono }: { to: string; children: ReactNode; mono?: boolean }) {
  return (
    <Anchor component={Link} to={to} inherit className={mono ? 'mono' : undefined}>
      {children}
    </Anchor>
  );
}

export function Section({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <Stack gap="sm" component="section">
      <Group justify="space-between" mih={30}>
        <Title order={2} size="h4">
          {title}
        </Title>
        {actions}
      </Group>
      {children}
    </Stack>
  );
}

interface NoticeProps {
  color: MantineColor;
  title?: string;
  icon?: ReactNode;
  role?: 'alert' | 'status';
  children: ReactNode;
}

/** A word to the reader that stands out from the page, in either theme. */
export function Notice({ color, ...rest }: NoticeProps) {
  return <Alert className="notice" style={{ '--notice': `var(--mantine-color-${color}-7)` }} {...rest} />;
}

export function ProblemAlert({ problem, retry, title }: { problem: Problem; retry?: () => void; title?: string }) {
  const next = advice(problem);
  const workplace = use(WorkplaceContext);
  return (
    <Notice role="alert" color="red" icon={<IconAlertTriangle />} title={title ?? headline(problem)}>
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          {problem.message} {next}
        </Text>
        {problem.issues.length > 0 && (
          <ul style={{ margin: 0, paddingLeft: '1.2rem' }}>
            {problem.issues.map((issue) => (
              <li key={issue.path + issue.message}>
                {issue.path && <span className="mono">{issue.path}: </span>}
                {issue.message}
              </li>
            ))}
          </ul>
        )}
        {problem.blockers.length > 0 && (
          <div>
            <Text size="sm">In the way:</Text>
            <ul style={{ margin: 0, paddingLeft: '1.2rem' }}>
              {problem.blockers.map(({ text, path }) => (
                <li key={text} className="mono">
                  {workplace && path ? <LinkTo to={pathIn(workplace.tenant, path)}>{text}</LinkTo> : text}
                </li>
              ))}
            </ul>
          </div>
        )}
        {retry && problem.code !== 'FORBIDDEN' && (
          <Button size="xs" variant="default" onClick={retry}>
            Try again
          </Button>
        )}
      </Stack>
    </Notice>
  );
}

function headline(problem: Problem): string {
  switch (problem.code) {
    case 'NOT_FOUND':
      return 'There is no such thing here';
    case 'FORBIDDEN':
      return 'You may not do this';
    case 'UNREACHABLE':
      return 'No connection';
    case 'PROVIDER_ERROR':
      return 'The provider failed';
    case 'CONFLICT':
    case 'INVALID_STATE':
      return 'Not as things stand';
    case 'INVALID_INPUT':
      return 'Something is not right yet';
    default:
      return 'That did not work';
  }
}

interface EmptyProps {
  icon: ComponentType<{ size?: number }>;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}

export function Empty({ icon: Icon, title, children, action }: EmptyProps) {
  return (
    <Center className="surface" p="xl" mih={220}>
      <Stack align="center" gap="sm" maw="30rem">
        <ThemeIcon size={48} radius="xl" variant="light" aria-hidden>
          <Icon size={26} />
        </ThemeIcon>
        <Text fw={600}>{title}</Text>
        {children && (
          <Text c="dimmed" size="sm" ta="center">
            {children}
          </Text>
        )}
        {action}
      </Stack>
    </Center>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <Stack gap="sm" aria-busy="true" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <Skeleton key={i} height={44} />
      ))}
    </Stack>
  );
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });

const formats = { both: local, day: calendar, time: clock };

/** A time in the viewer's zone; in UTC on hover and focus. */
export function When({ at, show = 'both' }: { at: string | null | undefined; show?: keyof typeof formats }) {
  if (!at) return <span>–</span>;
  const date = new Date(at);
  return (
    <Tooltip label={date.toISOString().replace('T', ' ').replace('Z', ' UTC')} events={{ hover: true, focus: true, touch: true }}>
      <time dateTime={at} tabIndex={0}>
        {formats[show].format(date)}
      </time>
    </Tooltip>
  );
}

export function useNow(every = 1000, running = true): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every, running]);
  return now;
}

export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds === 0) return 'under 1 s';
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

export function Age({ at }: { at: string }) {
  const now = useNow(5000);
  const age = now - Date.parse(at);
  return <>{age < 5000 ? 'just now' : `${duration(age)} ago`}</>;
}

/** An id, short for the eye and whole for the clipboard. */
export function Id({ value }: { value: string }) {
  const short = value.length > 20 ? `${value.slice(0, value.indexOf('_') + 1)}…${value.slice(-6)}` : value;
  return (
    <Group gap={2} wrap="nowrap" component="span" display="inline-flex">
      <span className="mono id" title={value}>
        {short}
      </span>
      <CopyButton value={value}>
        {({ copied, copy }) => (
          <ActionIcon variant="subtle" color="gray" size="sm" onClick={copy} aria-label={copied ? 'Copied' : `Copy ${value}`}>
            {copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
          </ActionIcon>
        )}
      </CopyButton>
    </Group>
  );
}

/** A word with a colour that says how good it is. The colour is never all that tells. */
export function Mark({ color, children }: { color: MantineColor; children: ReactNode }) {
  return (
    <Badge className="mark" radius="sm" tt="none" fw={600} style={{ '--mark': `var(--mantine-color-${color}-7)` }}>
      {children}
    </Badge>
  );
}

export function Facts({ items }: { items: [string, ReactNode][] }) {
  return (
    <dl className="surface facts">
      {items.map(([term, value]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface ConfirmProps {
  opened: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  action: string;
  danger?: boolean;
  /** Gives what went wrong; null when it is done. */
  run: () => Promise<Problem | null>;
}

export function Confirm({ opened, onClose, title, children, action, danger, run }: ConfirmProps) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const close = () => {
    setProblem(null);
    onClose();
  };
  const confirm = async () => {
    setBusy(true);
    const met = await run();
    setBusy(false);
    setProblem(met);
    if (!met) close();
  };
  return (
    <Modal opened={opened} onClose={close} title={title} centered>
      <Stack>
        <div>{children}</div>
        {problem && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close}>
            Back
          </Button>
          <Button color={danger ? 'red' : undefined} loading={busy} onClick={() => void confirm()}>
            {action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

export function say(message: string) {
  notifications.show({ message, withBorder: true, closeButtonProps: { 'aria-label': 'Close' } });
}
