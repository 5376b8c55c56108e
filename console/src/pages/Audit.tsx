import { Code, Group, Modal, Select, Table, Text, TextInput, UnstyledButton } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconListDetails } from '@tabler/icons-react';
import { useState } from 'react';
import { useQuery } from '../query';
import { graphql } from '../gql';
import type { AuditEventFilter, AuditEventsQuery, AuditOutcome } from '../gql/graphql';
import { problemOf } from '../problem';
import { useTenant } from '../tenant';
import { Empty, Facts, Loading, Mark, Page, ProblemAlert, TableFrame, When } from '../ui';
import { Pages } from '../ui/Pages';

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

export default function Audit() {
  const tenant = useTenant();
  const [after, setAfter] = useState<string | null>(null);
  const [typed, setTyped] = useState({ actor: '', action: '', object: '' });
  const [outcome, setOutcome] = useState<AuditOutcome | null>(null);
  const [settled] = useDebouncedValue(typed, 300);
  const [opened, setOpened] = useState<Event | null>(null);
  const filter: AuditEventFilter = {};
  if (settled.actor) filter.actor = settled.actor;
  if (settled.action) filter.action = settled.action;
  if (settled.object) filter.object = settled.object;
  if (outcome) filter.outcome = outcome;
  const [{ data, error }, again] = useQuery({ query: AuditDocument, variables: { tenant, filter, after }, requestPolicy: 'network-only' });
  const events = data?.auditEvents?.nodes;
  const field = (name: keyof typeof typed, label: string, placeholder: string) => (
    <TextInput
      label={label}
      placeholder={placeholder}
      value={typed[name]}
      onChange={(event) => {
        setTyped({ ...typed, [name]: event.currentTarget.value.trim() });
        setAfter(null);
      }}
      w={200}
    />
  );
  return (
    <Page
      title="Audit"
      about="What was done in this tenant and what was refused, the newest first. Nobody can change a row unseen: each carries the hash of all before it."
    >
      <Group className="surface" p="md" align="flex-end" gap="sm">
        {field('actor', 'Who', 'user:alice')}
        {field('action', 'What', 'bootstrapMachine')}
        {field('object', 'On what', 'compute-pool/pool_…')}
        <Select
          label="Outcome"
          placeholder="Any"
          data={Object.entries(outcomes).map(([value, [, label]]) => ({ value, label }))}
          value={outcome}
          onChange={(value) => {
            setOutcome(isOutcome(value) ? value : null);
            setAfter(null);
          }}
          clearable
          clearButtonProps={{ 'aria-label': 'Any outcome' }}
          w={140}
        />
      </Group>
      {error && !events && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {events?.length === 0 && (
        <Empty icon={IconListDetails} title="No such event">
          The filters take whole names only. Drop one to see more.
        </Empty>
      )}
      {events && events.length > 0 && (
        <TableFrame label="Audit events">
          <Table verticalSpacing="xs" horizontalSpacing="md" highlightOnHover miw={820}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>When</Table.Th>
                <Table.Th>Who</Table.Th>
                <Table.Th>What</Table.Th>
                <Table.Th>On what</Table.Th>
                <Table.Th>Outcome</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {events.map((event) => (
                <Table.Tr key={event.id}>
                  <Table.Td style={{ whiteSpace: 'nowrap' }}>
                    <When at={event.at} />
                  </Table.Td>
                  <Table.Td className="mono" miw={150}>
                    {event.actor}
                  </Table.Td>
                  <Table.Td>
                    <UnstyledButton className="sort link" fz="sm" onClick={() => setOpened(event)}>
                      {event.action}
                    </UnstyledButton>
                  </Table.Td>
                  <Table.Td className="mono">{event.object}</Table.Td>
                  <Table.Td>
                    <Mark color={outcomes[event.outcome][0]}>{outcomes[event.outcome][1]}</Mark>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableFrame>
      )}
      <Pages key={JSON.stringify(filter)} info={data?.auditEvents?.pageInfo} after={after} onChange={setAfter} />
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
