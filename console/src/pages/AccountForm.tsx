import { Alert, Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
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
import { problemOf, type Issue, type Problem } from '../problem';
import { usePath, useTenant } from '../tenant';
import { Loading, Page, ProblemAlert, say } from '../ui';
import { SecretField } from '../ui/SecretField';
import { validator } from '../validator';
import { CheckAccount, DeleteAccount } from './accountActions';

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
  const editing = account.data?.providerAccount;
  const error = providers.error ?? account.error;
  const ready = providers.data?.providers && (!accountId || editing);
  const trail = [{ label: 'Accounts', to: path('/accounts') }];
  if (editing) trail.push({ label: editing.name, to: path(`/accounts/${editing.id}`) });
  return (
    <Page
      title={accountId ? 'Edit the account' : 'Connect an account'}
      about={
        accountId
          ? 'What is saved is used from the next call on.'
          : 'Its settings name secrets; they do not hold any. They are checked with the provider as soon as they are saved.'
      }
      trail={trail}
    >
      {error && !ready && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!ready && !error && <Loading />}
      {ready && providers.data?.providers && (
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

function Editor({ providers, editing }: { providers: Provider[]; editing: Editing | null }) {
  const tenant = useTenant();
  const path = usePath();
  const navigate = useNavigate();
  const [, create] = useMutation(CreateAccount);
  const [, update] = useMutation(UpdateAccount);
  const [, check] = useMutation(CheckAccount);
  const [, remove] = useMutation(DeleteAccount);
  const [providerName, setProviderName] = useState(
    editing?.provider.name ?? (providers.length === 1 ? (providers[0]?.name ?? null) : null),
  );
  const [name, setName] = useState(editing?.name ?? '');
  const [config, setConfig] = useState<Record<string, unknown>>(editing?.config ?? {});
  // Once it is stored, what is written next is an update of it.
  const [stored, setStored] = useState<{ id: string; version: number } | null>(editing);
  const [refusal, setRefusal] = useState('');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const key = useRef(newKey());
  const form = useRef<HTMLDivElement>(null);

  const provider = providers.find((p) => p.name === providerName);
  const made = useMemo(() => provider && configForm(provider.configSchema, provider.secretFields), [provider]);
  const extraErrors = useMemo(() => errorsAt(problem?.issues ?? []), [problem]);
  const nameError = problem?.issues.find((issue) => issue.path === 'name')?.message;
  const shownAtFields = problem?.issues.some((issue) => issue.path === 'name' || issue.path.startsWith('/'));
  const added = !editing && stored !== null;

  const save = async (wanted: Record<string, unknown>) => {
    if (!providerName) return null;
    if (stored) {
      const result = await update({ input: { tenantId: tenant, accountId: stored.id, config: wanted, ifVersion: stored.version } });
      if (result.error) setProblem(problemOf(result.error));
      return result.data?.updateProviderAccount?.providerAccount ?? null;
    }
    const result = await create({ input: { tenantId: tenant, provider: providerName, name, config: wanted, idempotencyKey: key.current } });
    if (result.error) {
      setProblem(problemOf(result.error));
      key.current = newKey(); // what is sent next is something else
    }
    return result.data?.createProviderAccount?.providerAccount ?? null;
  };

  const submit = async (wanted: Record<string, unknown>) => {
    setBusy(true);
    setProblem(null);
    setRefusal('');
    const saved = await save(wanted);
    if (saved) {
      setStored(saved);
      const checked = await check({ input: { tenantId: tenant, accountId: saved.id } });
      const answer = checked.data?.checkProviderAccount?.providerAccount.check;
      if (answer?.ok) {
        say(`${name} is connected: the provider takes its credentials.`);
        await navigate(path(`/accounts/${saved.id}`));
        return;
      }
      setRefusal(checked.error ? problemOf(checked.error).message : (answer?.message ?? 'The provider gave no answer.'));
    }
    setBusy(false);
  };

  const discard = async () => {
    if (!stored) return;
    setBusy(true);
    const result = await remove({ input: { tenantId: tenant, accountId: stored.id } });
    if (result.error) {
      setProblem(problemOf(result.error));
      setBusy(false);
      return;
    }
    await navigate(path('/accounts'));
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
        }}
        disabled={stored !== null}
        allowDeselect={false}
        required
      />
      <TextInput
        label="Name"
        description={stored ? 'An account keeps its name.' : 'Lower-case letters, digits and . _ -'}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        error={nameError}
        disabled={stored !== null}
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
        <Alert
          role="alert"
          color="red"
          title="The provider refused it"
          styles={{ message: { color: 'var(--mantine-color-text)' }, title: { color: 'var(--mantine-color-error)' } }}
        >
          {refusal}{' '}
          {added
            ? 'Correct the settings and check again, or discard the account.'
            : 'The settings are saved. Correct them and check again.'}
        </Alert>
      )}
      {!made && (
        <Text c="dimmed" size="sm">
          What the provider needs to know shows when you have picked it.
        </Text>
      )}
      <Group justify="flex-end" gap="xs">
        {added ? (
          <Button variant="default" onClick={() => void discard()} disabled={busy}>
            Discard the account
          </Button>
        ) : (
          <Button variant="default" onClick={() => void navigate(path(editing ? `/accounts/${editing.id}` : '/accounts'))}>
            Back
          </Button>
        )}
        <Button loading={busy} disabled={!made || name === ''} onClick={() => form.current?.querySelector('form')?.requestSubmit()}>
          {stored ? 'Save and check' : 'Connect and check'}
        </Button>
      </Group>
    </Stack>
  );
}
