import { Button, Checkbox, Code, CopyButton, Group, Modal, Select, Stack, Tabs, Text, TextInput } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconKey, IconPlus, IconUsers } from '@tabler/icons-react';
import { useState } from 'react';
import { useSearchParams } from 'react-router';
import { useMutation } from 'urql';
import { useListQuery, useQuery } from '../query';
import { graphql } from '../gql';
import type { ApiTokensQuery, RoleBindingsQuery, RolesQuery } from '../gql/graphql';
import { failureOf } from '../mutate';
import { permissions, permissionText } from '../permissions';
import { problemOf, type Problem } from '../problem';
import { useTenant } from '../tenant';
import { Confirm, Empty, Loading, Mark, Notice, Page, ProblemAlert, say, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { Pages, useAfter } from '../ui/Pages';

const BindingsDocument = graphql(`
  query RoleBindings($tenant: ID!, $after: String) {
    roleBindings(tenantId: $tenant, first: 50, after: $after) {
      nodes {
        subject
        role
        object
        effect
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const RolesDocument = graphql(`
  query Roles {
    roles {
      name
      description
      permissions
      builtIn
    }
  }
`);

const TokensDocument = graphql(`
  query ApiTokens($tenant: ID!, $after: String) {
    apiTokens(tenantId: $tenant, first: 25, after: $after) {
      nodes {
        id
        name
        subject
        description
        createdBy
        createdAt
        expiresAt
        lastUsedAt
        revokedAt
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const GrantRole = graphql(`
  mutation GrantRole($input: GrantRoleInput!) {
    grantRole(input: $input) {
      roleBinding {
        subject
      }
    }
  }
`);

const RevokeRole = graphql(`
  mutation RevokeRole($input: RevokeRoleInput!) {
    revokeRole(input: $input) {
      revoked
    }
  }
`);

const CreateToken = graphql(`
  mutation CreateToken($input: CreateApiTokenInput!) {
    createApiToken(input: $input) {
      token
      apiToken {
        id
        subject
      }
    }
  }
`);

const RevokeToken = graphql(`
  mutation RevokeToken($input: RevokeApiTokenInput!) {
    revokeApiToken(input: $input) {
      apiToken {
        id
        revokedAt
      }
    }
  }
`);

export default function Access() {
  const [params, setParams] = useSearchParams();
  return (
    <Page
      title="Access"
      about="Who may do what in this tenant, and the tokens of its programs. A change counts everywhere within a second."
    >
      <Tabs
        value={params.get('tab') ?? 'bindings'}
        onChange={(tab) => setParams(tab === null || tab === 'bindings' ? {} : { tab }, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="bindings">Bindings</Tabs.Tab>
          <Tabs.Tab value="tokens">API tokens</Tabs.Tab>
          <Tabs.Tab value="roles">Roles</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="bindings">
          <Bindings />
        </Tabs.Panel>
        <Tabs.Panel value="tokens">
          <Tokens />
        </Tabs.Panel>
        <Tabs.Panel value="roles">
          <Roles />
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

type Binding = NonNullable<RoleBindingsQuery['roleBindings']>['nodes'][number];

const bindingContext = { additionalTypenames: ['RoleBinding', 'RevokeRolePayload'] };

function Bindings() {
  const tenant = useTenant();
  const after = useAfter();
  const [{ data, error }, again] = useListQuery({ query: BindingsDocument, variables: { tenant, after }, context: bindingContext });
  const [granting, { open, close }] = useDisclosure();
  const [revoking, setRevoking] = useState<Binding | null>(null);
  const [, revoke] = useMutation(RevokeRole);
  const bindings = data?.roleBindings?.nodes;
  const grant = (
    <Button leftSection={<IconPlus size={16} />} onClick={open}>
      Grant a role
    </Button>
  );
  return (
    <Stack>
      {error && !bindings && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {bindings?.length === 0 && (
        <Empty icon={IconUsers} title="Nobody has a role in this tenant alone" action={grant}>
          Who has a role on the fleet can work here without a binding of this tenant.
        </Empty>
      )}
      {bindings && bindings.length > 0 && (
        <>
          <Group justify="flex-end">{grant}</Group>
          <DataTable
            label="Bindings"
            rows={bindings}
            keyOf={({ object, subject, role, effect }) => `${object} ${subject} ${role} ${effect}`}
            columns={[
              { title: 'Who', cell: ({ subject }) => subject, className: 'mono' },
              { title: 'Role', cell: ({ role }) => role },
              { title: 'On what', cell: ({ object }) => object, className: 'mono' },
              {
                title: 'Effect',
                cell: ({ effect }) => (effect === 'ALLOW' ? <Mark color="green">Gives</Mark> : <Mark color="red">Takes away</Mark>),
              },
              {
                title: '',
                cell: (binding) => (
                  <Button
                    size="xs"
                    variant="default"
                    onClick={() => setRevoking(binding)}
                    aria-label={`Remove ${binding.role} of ${binding.subject}`}
                  >
                    Remove
                  </Button>
                ),
              },
            ]}
          />
        </>
      )}
      <Pages info={data?.roleBindings?.pageInfo} />
      <Modal opened={granting} onClose={close} title="Grant a role" centered>
        <GrantForm onDone={close} />
      </Modal>
      <Confirm
        opened={revoking !== null}
        onClose={() => setRevoking(null)}
        title="Remove this binding?"
        action="Remove"
        danger
        run={async () => {
          if (!revoking) return null;
          const { subject, role, object, effect } = revoking;
          const failure = failureOf(await revoke({ input: { subject, role, object, effect } }));
          if (!failure) say('The binding is removed.');
          return failure;
        }}
      >
        <Text size="sm">
          <span className="mono">{revoking?.subject}</span> {revoking?.effect === 'DENY' ? 'is denied' : 'has'} {revoking?.role} on{' '}
          <span className="mono">{revoking?.object}</span>.
        </Text>
      </Confirm>
    </Stack>
  );
}

function GrantForm({ onDone }: { onDone: () => void }) {
  const tenant = useTenant();
  const [{ data }] = useQuery({ query: RolesDocument });
  const [subject, setSubject] = useState('');
  const [role, setRole] = useState<string | null>(null);
  const [object, setObject] = useState(`compute-tenant/${tenant}`);
  const [effect, setEffect] = useState<'ALLOW' | 'DENY'>('ALLOW');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, grant] = useMutation(GrantRole);
  const errorAt = (path: string) => problem?.issues.find((issue) => issue.path === path)?.message;
  const send = async () => {
    const failure = failureOf(await grant({ input: { subject, role: role ?? '', object, effect } }));
    setProblem(failure);
    if (failure) return;
    say(`${subject} has the role now.`);
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
          label="Who"
          description="user:<name>, service:<name> or group:<name>"
          value={subject}
          onChange={(event) => setSubject(event.currentTarget.value.trim())}
          error={errorAt('subject')}
          required
          data-autofocus
          autoComplete="off"
        />
        <Select
          label="Role"
          placeholder="Pick one"
          data={(data?.roles ?? []).map(({ name }) => name)}
          value={role}
          onChange={setRole}
          error={errorAt('role')}
          allowDeselect={false}
          required
        />
        <TextInput
          label="On what"
          description={`compute-tenant/${tenant}, or one account or pool: compute-provider-account/<id>, compute-pool/<id>`}
          value={object}
          onChange={(event) => setObject(event.currentTarget.value.trim())}
          error={errorAt('object')}
          required
        />
        <Select
          label="Effect"
          data={[
            { value: 'ALLOW', label: 'Gives the role' },
            { value: 'DENY', label: 'Takes what the role allows away, whatever else gives it' },
          ]}
          value={effect}
          onChange={(value) => setEffect(value === 'DENY' ? 'DENY' : 'ALLOW')}
          allowDeselect={false}
        />
        {problem && problem.issues.length === 0 && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
            Back
          </Button>
          <Button type="submit" loading={fetching} disabled={role === null}>
            Grant
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

type Token = NonNullable<ApiTokensQuery['apiTokens']>['nodes'][number];

const tokenContext = { additionalTypenames: ['ApiToken'] };

function stateOf(token: Token, now: number) {
  if (token.revokedAt) return <Mark color="gray">Revoked</Mark>;
  if (token.expiresAt && Date.parse(token.expiresAt) <= now) return <Mark color="gray">Expired</Mark>;
  return <Mark color="green">Counts</Mark>;
}

function Tokens() {
  const tenant = useTenant();
  const after = useAfter();
  const [now] = useState(() => Date.now());
  const [{ data, error }, again] = useListQuery({ query: TokensDocument, variables: { tenant, after }, context: tokenContext });
  const [creating, { open, close }] = useDisclosure();
  const [revoking, setRevoking] = useState<Token | null>(null);
  const [, revoke] = useMutation(RevokeToken);
  const tokens = data?.apiTokens?.nodes;
  const create = (
    <Button leftSection={<IconPlus size={16} />} onClick={open}>
      Create a token
    </Button>
  );
  return (
    <Stack>
      {error && !tokens && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {tokens?.length === 0 && (
        <Empty icon={IconKey} title="No API token yet" action={create}>
          A token is for one program. What it may do are the roles of its subject.
        </Empty>
      )}
      {tokens && tokens.length > 0 && (
        <>
          <Group justify="flex-end">{create}</Group>
          <DataTable
            label="API tokens"
            rows={tokens}
            keyOf={({ id }) => id}
            columns={[
              { title: 'Subject', cell: ({ subject }) => subject, className: 'mono' },
              { title: 'State', cell: (token) => stateOf(token, now) },
              { title: 'For', cell: ({ description }) => description || '–' },
              { title: 'Made', cell: ({ createdAt }) => <When at={createdAt} /> },
              { title: 'Ends', cell: ({ expiresAt }) => (expiresAt ? <When at={expiresAt} /> : 'Never by itself') },
              { title: 'Last used', cell: ({ lastUsedAt }) => (lastUsedAt ? <When at={lastUsedAt} /> : 'Never') },
              {
                title: '',
                cell: (token) =>
                  !token.revokedAt && (
                    <Button size="xs" variant="default" onClick={() => setRevoking(token)} aria-label={`Revoke ${token.name}`}>
                      Revoke
                    </Button>
                  ),
              },
            ]}
          />
        </>
      )}
      <Pages info={data?.apiTokens?.pageInfo} />
      <Modal opened={creating} onClose={close} title="Create a token" centered closeOnClickOutside={false}>
        <TokenForm onDone={close} />
      </Modal>
      <Confirm
        opened={revoking !== null}
        onClose={() => setRevoking(null)}
        title={`Revoke the token of ${revoking?.name ?? ''}?`}
        action="Revoke"
        danger
        run={async () => {
          const failure = failureOf(await revoke({ input: { tenantId: tenant, tokenId: revoking?.id ?? '' } }));
          if (!failure) say('The token is revoked.');
          return failure;
        }}
      >
        <Text size="sm">What uses it is refused within a second. This cannot be taken back.</Text>
      </Confirm>
    </Stack>
  );
}

const lives: { value: string; label: string; days: number | null }[] = [
  { value: '30', label: 'In 30 days', days: 30 },
  { value: '90', label: 'In 90 days', days: 90 },
  { value: '365', label: 'In a year', days: 365 },
  { value: 'never', label: 'Never by itself', days: null },
];

function TokenForm({ onDone }: { onDone: () => void }) {
  const tenant = useTenant();
  const [name, setName] = useState('');
  const [description, setDescription] = useState('');
  const [life, setLife] = useState('90');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching, data }, create] = useMutation(CreateToken);
  const errorAt = (path: string) => problem?.issues.find((issue) => issue.path === path)?.message;
  const send = async () => {
    const days = lives.find(({ value }) => value === life)?.days ?? null;
    const expiresAt = days === null ? null : new Date(Date.now() + days * 86_400_000).toISOString();
    setProblem(failureOf(await create({ input: { tenantId: tenant, name, description, expiresAt } })));
  };
  const made = data?.createApiToken;
  if (made) {
    return (
      <Stack>
        <Notice color="yellow" title="This is the only time that it is shown">
          Keep it where its program finds it. Grant roles to <span className="mono">{made.apiToken.subject}</span> under Bindings.
        </Notice>
        <Code block className="mono" style={{ whiteSpace: 'pre-wrap' }}>
          {made.token}
        </Code>
        <Group justify="flex-end" gap="xs">
          <CopyButton value={made.token}>
            {({ copied, copy }) => (
              <Button variant="default" onClick={copy}>
                {copied ? 'Copied' : 'Copy'}
              </Button>
            )}
          </CopyButton>
          <Button onClick={onDone}>I have it</Button>
        </Group>
      </Stack>
    );
  }
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <Stack>
        <TextInput
          label="Name of the service"
          description={`Who it is: service:${tenant}/${name || '<name>'}`}
          value={name}
          onChange={(event) => setName(event.currentTarget.value.trim())}
          error={errorAt('name')}
          required
          data-autofocus
          autoComplete="off"
        />
        <TextInput
          label="What it is for"
          value={description}
          onChange={(event) => setDescription(event.currentTarget.value)}
          error={errorAt('description')}
          maxLength={200}
        />
        <Select
          label="Ends"
          data={lives.map(({ value, label }) => ({ value, label }))}
          value={life}
          onChange={(value) => setLife(value ?? '90')}
          allowDeselect={false}
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

const DefineRole = graphql(`
  mutation DefineRole($input: DefineRoleInput!) {
    defineRole(input: $input) {
      role {
        name
      }
    }
  }
`);

const DeleteRole = graphql(`
  mutation DeleteRole($input: DeleteRoleInput!) {
    deleteRole(input: $input) {
      deleted
    }
  }
`);

const FleetRights = graphql(`
  query FleetRights {
    viewer {
      permissions
    }
  }
`);

type Role = NonNullable<RolesQuery['roles']>[number];

const roleContext = { additionalTypenames: ['Role', 'DeleteRolePayload'] };

function Roles() {
  const [{ data, error }, again] = useQuery({ query: RolesDocument, context: roleContext });
  const [{ data: fleet }] = useQuery({ query: FleetRights });
  const [defining, { open, close }] = useDisclosure();
  const [changing, setChanging] = useState<Role | null>(null);
  const [deleting, setDeleting] = useState<Role | null>(null);
  const [, remove] = useMutation(DeleteRole);
  const defines = fleet?.viewer?.permissions.includes('IAM_MANAGE') ?? false;
  return (
    <Stack>
      {error && !data && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {data?.roles && (
        <>
          <Group justify="space-between">
            <Text size="sm" c="dimmed">
              Roles are those of every tenant.{!defines && ' Who may grant roles on the fleet defines others.'}
            </Text>
            {defines && (
              <Button leftSection={<IconPlus size={16} />} onClick={open}>
                Define a role
              </Button>
            )}
          </Group>
          <DataTable
            label="Roles"
            rows={data.roles}
            keyOf={({ name }) => name}
            columns={[
              { title: 'Role', cell: ({ name }) => name, className: 'id' },
              { title: 'For', cell: ({ description, builtIn }) => description || (builtIn ? 'Built in' : '–') },
              { title: 'Who has it may', cell: ({ permissions: given }) => given.map(permissionText).join('; ') },
              defines && {
                title: '',
                cell: (role) =>
                  !role.builtIn && (
                    <Group gap="xs" justify="flex-end" wrap="nowrap">
                      <Button size="xs" variant="default" onClick={() => setChanging(role)} aria-label={`Change ${role.name}`}>
                        Change
                      </Button>
                      <Button size="xs" variant="default" onClick={() => setDeleting(role)} aria-label={`Delete ${role.name}`}>
                        Delete
                      </Button>
                    </Group>
                  ),
              },
            ]}
          />
        </>
      )}
      <Modal opened={defining} onClose={close} title="Define a role" centered>
        <RoleForm known={null} onDone={close} />
      </Modal>
      <Modal opened={changing !== null} onClose={() => setChanging(null)} title={`Change ${changing?.name ?? ''}`} centered>
        <RoleForm known={changing} onDone={() => setChanging(null)} />
      </Modal>
      <Confirm
        opened={deleting !== null}
        onClose={() => setDeleting(null)}
        title={`Delete ${deleting?.name ?? ''}?`}
        action="Delete"
        danger
        run={async () => {
          const failure = failureOf(await remove({ input: { name: deleting?.name ?? '' } }));
          if (!failure) say('The role is deleted.');
          return failure;
        }}
      >
        <Text size="sm">A role that is granted to somebody, in whichever tenant, is not deleted.</Text>
      </Confirm>
    </Stack>
  );
}

function RoleForm({ known, onDone }: { known: Role | null; onDone: () => void }) {
  const [name, setName] = useState(known?.name ?? '');
  const [description, setDescription] = useState(known?.description ?? '');
  const [allows, setAllows] = useState<string[]>(known?.permissions ?? []);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, define] = useMutation(DefineRole);
  const errorAt = (path: string) => problem?.issues.find((issue) => issue.path === path)?.message;
  const send = async () => {
    const chosen = permissions.filter((permission) => allows.includes(permission));
    const failure = failureOf(await define({ input: { name, description, permissions: chosen } }));
    setProblem(failure);
    if (failure) return;
    say(`${name} is defined.`);
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
        {known === null ? (
          <TextInput
            label="Name"
            description="Lower-case letters, digits and -"
            value={name}
            onChange={(event) => setName(event.currentTarget.value.trim())}
            error={errorAt('name')}
            required
            data-autofocus
            autoComplete="off"
          />
        ) : (
          <Text size="sm">Whoever has the role gains and loses with it, in every tenant.</Text>
        )}
        <TextInput
          label="What it is for"
          value={description}
          onChange={(event) => setDescription(event.currentTarget.value)}
          error={errorAt('description')}
          maxLength={200}
        />
        <Checkbox.Group label="Who has it may" value={allows} onChange={setAllows} error={errorAt('permissions')} withAsterisk>
          <Stack gap="xs" mt="xs">
            {permissions.map((permission) => (
              <Checkbox key={permission} value={permission} label={permissionText(permission)} />
            ))}
          </Stack>
        </Checkbox.Group>
        {problem && problem.issues.length === 0 && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
            Back
          </Button>
          <Button type="submit" loading={fetching} disabled={name === '' || allows.length === 0}>
            {known === null ? 'Define' : 'Change'}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
