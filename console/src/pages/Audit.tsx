import { Button, Code, Modal, Select, Text, TextInput, UnstyledButton } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconFilterOff, IconListDetails } from '@tabler/icons-react';
import { useMemo, useState } from 'react';
import { useSearchParams } from 'react-router';
import { useListQuery } from '../query';
import { graphql } from '../gql';
import type { AuditEventFilter, AuditEventsQuery, AuditOutcome } from '../gql/graphql';
import { problemOf } from '../problem';
import { useTenant } from '../tenant';
import { Empty, Facts, Loading, Mark, Page, ProblemAlert, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';

const AuditDocument = graphql(`
  query AuditEvents($tenant: ID!, $filter: AuditEventFilter, $after: String) {
    auditEvents(tenantId: $tenant, filter: $filter, first: 50, after: $after) {
      nodes {
        id
        at
        actor
        action
        object
        outcome
        requestId
        details
        sequence
        hash
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

type Event = NonNullable<AuditEventsQuery['auditEvents']>['nodes'][number];

const outcomes: Record<AuditOutcome, [string, string]> = {
  ALLOWED: ['green', 'Done'],
  DENIED: ['red', 'Refused'],
  REPLAYED: ['gray', 'Repeated'],
};

function isOutcome(value: string | null): value is AuditOutcome {
  return value !== null && value in outcomes;
}

const names = ['actor', 'action', 'object', 'requestId'] as const;
const times = ['since', 'until'] as const;

function filterOf(params: URLSearchParams): AuditEventFilter {
  const filter: AuditEventFilter = {};
  for (const name of names) {
    const value = params.get(name)?.trim();
    if (value) filter[name] = value;
  }
  for (const name of times) {
    const at = new Date(params.get(name) ?? '');
    if (!Number.isNaN(at.getTime())) filter[name] = at.toISOString();
  }
  const outcome = params.get('outcome');
  if (isOutcome(outcome)) filter.outcome = outcome;
  return filter;
}

/** The object as people know it: of what kind, and the end of its id. The whole is in the event. */
function shortObject(object: string): string {
  const [kind = '', id = ''] = object.split('/', 2);
  const of = kind.replace(/^compute-/, '').replaceAll('-', ' ');
  return `${of} ${id.length > 20 ? `…${id.slice(-8)}` : id}`.trim();
}

export default function Audit() {
  const tenant = useTenant();
  const [params, setParams] = useSearchParams();
  const after = useAfter();
  const [settled] = useDebouncedValue(params.toString(), 300);
  const [opened, setOpened] = useState<Event | null>(null);
  const filter = useMemo(() => filterOf(new URLSearchParams(settled)), [settled]);
  const [{ data, error }, again] = useListQuery({
    query: AuditDocument,
    variables: { tenant, filter, after },
    requestPolicy: 'network-only',
  });
  const events = data?.auditEvents?.nodes;
  const set = (name: string, value: string) => {
    setParams(
      (old) => {
        if (value === '') old.delete(name);
        else old.set(name, value);
        old.delete('after');
        return old;
      },
      { replace: true },
    );
  };
  const field = (name: (typeof names)[number] | (typeof times)[number], label: string, placeholder?: string) => (
    <TextInput
      label={label}
      placeholder={placeholder}
      type={placeholder === undefined ? 'datetime-local' : 'text'}
      value={params.get(name) ?? ''}
      onChange={(event) => set(name, event.currentTarget.value.trim())}
      style={{ gridColumn: placeholder === undefined ? 'span 2' : undefined }}
    />
  );
  return (
    <Page
      title="Audit"
      about="What was done in this tenant and what was refused, the newest first. Nobody can change a row unseen: each carries the hash of all before it."
    >
      <div className="surface filters">
        {field('actor', 'Who', 'user:alice')}
        {field('action', 'What', 'bootstrapMachine')}
        {field('object', 'On what', 'compute-pool/pool_…')}
        <Select
          label="Outcome"
          placeholder="Any"
          data={Object.entries(outcomes).map(([value, [, label]]) => ({ value, label }))}
          value={params.get('outcome')}
          onChange={(value) => set('outcome', value ?? '')}
          clearable
          clearButtonProps={{ 'aria-label': 'Any outcome' }}
        />
        {field('requestId', 'Request', 'Its id')}
        {field('since', 'From')}
        {field('until', 'Before')}
        {Object.keys(filter).length > 0 && (
          <Button variant="default" leftSection={<IconFilterOff size={16} />} onClick={() => setParams({}, { replace: true })}>
            Drop all filters
          </Button>
        )}
      </div>
      {error && !events && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {events?.length === 0 && (
        <Empty icon={IconListDetails} title="No such event">
          The filters take whole names only. Drop one to see more.
        </Empty>
      )}
      {events && events.length > 0 && (
        <DataTable
          label="Audit events"
          rows={events}
          keyOf={({ id }) => id}
          columns={[
            { title: 'When', cell: ({ at }) => <When at={at} /> },
            { title: 'Who', cell: ({ actor }) => actor, className: 'mono' },
            {
              title: 'What',
              cell: (event) => (
                <UnstyledButton className="sort link" fz="sm" onClick={() => setOpened(event)}>
                  {event.action}
                </UnstyledButton>
              ),
            },
            { title: 'On what', cell: ({ object }) => shortObject(object), whole: ({ object }) => object },
            { title: 'Outcome', cell: ({ outcome }) => <Mark color={outcomes[outcome][0]}>{outcomes[outcome][1]}</Mark> },
          ]}
        />
      )}
      <Pages info={data?.auditEvents?.pageInfo} />
      <Modal opened={opened !== null} onClose={() => setOpened(null)} title={opened?.action} size="lg" centered>
        {opened && (
          <>
            <Facts
              items={[
                ['When', <When key="at" at={opened.at} />],
                [
                  'Who',
                  <span key="who" className="mono">
                    {opened.actor}
                  </span>,
                ],
                [
                  'On what',
                  <span key="what" className="mono">
                    {opened.object}
                  </span>,
                ],
                [
                  'Request',
                  <span key="request" className="mono">
                    {opened.requestId || 'None'}
                  </span>,
                ],
                ['Place in the chain', opened.sequence ?? 'Not chained yet'],
                [
                  'Hash',
                  <span key="hash" className="mono">
                    {opened.hash ?? '–'}
                  </span>,
                ],
              ]}
            />
            <Text size="sm" mt="md" mb={4}>
              What else is known
            </Text>
            <Code block>{JSON.stringify(opened.details, null, 2)}</Code>
          </>
        )}
      </Modal>
    </Page>
  );
}
