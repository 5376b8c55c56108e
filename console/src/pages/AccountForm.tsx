import { Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import Form from '@rjsf/mantine';
import type { ErrorSchema, RegistryWidgetsType } from '@rjsf/utils';
import { useMemo, useRef, useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import type { AccountToEditQuery, ProvidersQuery } from '../gql/graphql';
import { newKey } from '../keys';
import { configForm } from '../manifest';
import { forbidden, problemOf, type Issue, type Problem } from '../problem';
import { useRight } from '../rights';
import { usePath, useTenant, useWorkplace } from '../tenant';
import { Loading, Notice, Page, ProblemAlert, say } from '../ui';
import { SecretField } from '../ui/SecretField';
import { validator } from '../validator';
import { CheckAccount } from './accountActions';

const ProvidersDocument = graphql(`
  query Providers {
    providers {
      name
      displayName
      configSchema
      secretFields
    }
  }
`);

const AccountToEdit = graphql(`
  query AccountToEdit($tenant: ID!, $account: ID!) {
    providerAccount(tenantId: $tenant, accountId: $account) {
      id
      name
      version
      config
      provider {
        name
      }
    }
  }
`);

const CreateAccount = graphql(`
  mutation CreateAccount($input: CreateProviderAccountInput!) {
    createProviderAccount(input: $input) {
      providerAccount {
        id
        version
      }
    }
  }
`);

const CheckConfig = graphql(`
  mutation CheckConfig($input: CheckProviderConfigInput!) {
    checkProviderConfig(input: $input) {
      check {
        ok
        message
      }
    }
  }
`);

const UpdateAccount = graphql(`
  mutation UpdateAccount($input: UpdateProviderAccountInput!) {
    updateProviderAccount(input: $input) {
      providerAccount {
        id
        version
      }
    }
  }
`);

const widgets: RegistryWidgetsType = { secret: SecretField };

export default function AccountForm() {
  const tenant = useTenant();
  const path = usePath();
  const { accountId } = useParams();
  const [providers, again] = useQuery({ query: ProvidersDocument });
  const [account] = useQuery({
    query: AccountToEdit,
    variables: { tenant, account: accountId ?? '' },
    pause: !accountId,
    requestPolicy: 'network-only',
  });
  const may = useRight('PROVIDERS_MANAGE', accountId);
  const editing = account.data?.providerAccount;
  const error = providers.error ?? account.error;
  const ready = may !== undefined && providers.data?.providers && (!accountId || editing);
  const trail = [{ label: 'Accounts', to: path('/accounts') }];
  if (editing) trail.push({ label: editing.name, to: path(`/accounts/${editing.id}`) });
  return (
    <Page
      title={accountId ? 'Edit the account' : 'Connect an account'}
      about={
        accountId
          ? 'The provider is asked about the settings before they are saved. What is saved is used from the next call on.'
          : 'Its settings name secrets; they do not hold any. The provider is asked about them before they are saved.'
      }
      trail={trail}
    >
      {error && !ready && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!ready && !error && <Loading />}
      {ready && !may && <ProblemAlert problem={forbidden('change accounts')} />}
      {ready && may && providers.data?.providers && (
        <Editor key={editing?.id ?? 'new'} providers={providers.data.providers} editing={editing ?? null} />
      )}
    </Page>
  );
}

type Provider = NonNullable<ProvidersQuery['providers']>[number];
type Editing = NonNullable<AccountToEditQuery['providerAccount']>;

function errorsAt(issues: Issue[]): ErrorSchema {
  const root: ErrorSchema = {};
  for (const issue of issues) {
    if (!issue.path.startsWith('/')) continue;
    let at = root;
    for (const part of issue.path.slice(1).split('/')) {
      at = at[part] ??= {} as ErrorSchema;
    }
    at.__errors = [...(at.__errors ?? []), issue.message];
  }
  return root;
}

const nameForm = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const nameRule = 'Lower-case letters, digits and . _ -, up to 63; the first is a letter or a digit';

function Editor({ providers, editing }: { providers: Provider[]; editing: Editing | null }) {
  const { tenant, permissions } = useWorkplace();
  const path = usePath();
  const navigate = useNavigate();
  const [, create] = useMutation(CreateAccount);
  const [, update] = useMutation(UpdateAccount);
  const [, checkConfig] = useMutation(CheckConfig);
  const [, checkAccount] = useMutation(CheckAccount);
  const [providerName, setProviderName] = useState(
    editing?.provider.name ?? (providers.length === 1 ? (providers[0]?.name ?? null) : null),
  );
  const [name, setName] = useState(editing?.name ?? '');
  const [config, setConfig] = useState<Record<string, unknown>>(editing?.config ?? {});
  const [refusal, setRefusal] = useState('');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [misnamed, setMisnamed] = useState(false);
  const sent = useRef({ what: '', key: '' });
  const despite = useRef(false);
  const form = useRef<HTMLDivElement>(null);

  const provider = providers.find((p) => p.name === providerName);
  const made = useMemo(() => provider && configForm(provider.configSchema, provider.secretFields), [provider]);
  const extraErrors = useMemo(() => errorsAt(problem?.issues ?? []), [problem]);
  const nameError = misnamed ? nameRule : problem?.issues.find((issue) => issue.path === 'name')?.message;
  const shownAtFields = problem?.issues.some((issue) => issue.path === 'name' || issue.path.startsWith('/'));

  const save = async (wanted: Record<string, unknown>) => {
    if (!providerName) return null;
    if (editing) {
      const result = await update({ input: { tenantId: tenant, accountId: editing.id, config: wanted, ifVersion: editing.version } });
      if (result.error) setProblem(problemOf(result.error));
      return result.data?.updateProviderAccount?.providerAccount ?? null;
    }
    const what = JSON.stringify([providerName, name, wanted]);
    if (sent.current.what !== what) sent.current = { what, key: newKey() }; // the same again finds what a lost answer made
    const result = await create({
      input: { tenantId: tenant, provider: providerName, name, config: wanted, idempotencyKey: sent.current.key },
    });
    if (result.error) setProblem(problemOf(result.error));
    return result.data?.createProviderAccount?.providerAccount ?? null;
  };

  /** Whether the provider takes it. Who may change this account alone cannot ask before it is saved. */
  const taken = async (wanted: Record<string, unknown>) => {
    if (!providerName || !permissions.has('PROVIDERS_MANAGE')) return true;
    const result = await checkConfig({ input: { tenantId: tenant, provider: providerName, config: wanted } });
    const answer = result.data?.checkProviderConfig?.check;
    if (result.error) setProblem(problemOf(result.error));
    else if (!answer?.ok) setRefusal(answer?.message ?? 'The provider gave no answer.');
    return answer?.ok ?? false;
  };

  const submit = async (wanted: Record<string, unknown>) => {
    const unasked = despite.current;
    despite.current = false;
    setProblem(null);
    setRefusal('');
    setMisnamed(!nameForm.test(name));
    if (!nameForm.test(name)) return;
    setBusy(true);
    const saved = unasked || (await taken(wanted)) ? await save(wanted) : null;
    if (saved) {
      await checkAccount({ input: { tenantId: tenant, accountId: saved.id } }); // its page tells the answer
      say(editing ? `${name} is saved.` : `${name} is connected.`);
      await navigate(path(`/accounts/${saved.id}`));
      return;
    }
    setBusy(false);
  };

  const send = (unasked: boolean) => {
    despite.current = unasked;
    form.current?.querySelector('form')?.requestSubmit();
  };

  return (
    <Stack className="surface" p="lg" gap="md" maw={680}>
      <Select
        label="Provider"
        placeholder="Pick one"
        data={providers.map((p) => ({ value: p.name, label: p.displayName }))}
        value={providerName}
        onChange={(value) => {
          setProviderName(value);
          setConfig({});
          setProblem(null);
          setRefusal('');
        }}
        disabled={editing !== null}
        allowDeselect={false}
        required
      />
      <TextInput
        label="Name"
        description={editing ? 'An account keeps its name.' : 'What it is called here.'}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        error={nameError}
        disabled={editing !== null}
        required
        autoComplete="off"
      />
      {made && (
        <div ref={form}>
          <Form
            schema={made.schema}
            uiSchema={made.ui}
            widgets={widgets}
            validator={validator}
            formData={config}
            extraErrors={extraErrors}
            extraErrorsBlockSubmit={false}
            showErrorList={false}
            noHtml5Validate
            focusOnFirstError
            onChange={(event) => setConfig(event.formData as Record<string, unknown>)}
            onSubmit={(event) => void submit((event.formData ?? {}) as Record<string, unknown>)}
          />
        </div>
      )}
      {problem && !shownAtFields && <ProblemAlert problem={problem} />}
      {refusal && (
        <Notice role="alert" color="red" title="The provider refused it">
          {refusal} Nothing is saved. Correct the settings, or save them as they are and check the account later.
        </Notice>
      )}
      {!made && (
        <Text c="dimmed" size="sm">
          What the provider needs to know shows when you have picked it.
        </Text>
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={() => void navigate(path(editing ? `/accounts/${editing.id}` : '/accounts'))}>
          Back
        </Button>
        {refusal && (
          <Button variant="default" disabled={busy} onClick={() => send(true)}>
            {editing ? 'Save anyway' : 'Connect anyway'}
          </Button>
        )}
        <Button loading={busy} disabled={!made || name === ''} onClick={() => send(false)}>
          {editing ? 'Check and save' : 'Check and connect'}
        </Button>
      </Group>
    </Stack>
  );
}
