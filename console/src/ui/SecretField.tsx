import { Autocomplete, Button, Checkbox, Group, Modal, Stack, Textarea, TextInput } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import type { WidgetProps } from '@rjsf/utils';
import { useState } from 'react';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import { problemOf, type Problem } from '../problem';
import { useWorkplace } from '../tenant';
import { ProblemAlert, say } from '.';

const SecretNames = graphql(`
  query SecretNames($tenant: ID!) {
    secrets(tenantId: $tenant) {
      name
    }
  }
`);

export const PutSecret = graphql(`
  mutation PutSecret($input: PutSecretInput!) {
    putSecret(input: $input) {
      secret {
        name
        createdAt
        updatedAt
      }
    }
  }
`);

/** A field that holds a reference to a secret: chosen, typed, or written on the spot. */
export function SecretField(props: WidgetProps) {
  const { tenant, permissions } = useWorkplace();
  const [{ data }] = useQuery({ query: SecretNames, variables: { tenant }, context });
  const [opened, { open, close }] = useDisclosure();
  const references = (data?.secrets ?? []).map((secret) => `secret://${secret.name}`);
  const value = typeof props.value === 'string' ? props.value : '';
  const change = (text: string) => props.onChange(text === '' ? undefined : text);
  return (
    <>
      <Group align="flex-end" gap="xs">
        <Autocomplete
          id={props.id}
          label={props.label}
          description={props.schema.description}
          placeholder={props.placeholder}
          required={props.required}
          disabled={props.disabled}
          data={references}
          value={value}
          onChange={change}
          onBlur={() => props.onBlur(props.id, value)}
          error={props.rawErrors?.length ? props.rawErrors.join(', ') : undefined}
          style={{ flex: '1 1 15rem' }}
          autoComplete="off"
        />
        {permissions.has('PROVIDERS_MANAGE') && (
          <Button variant="default" onClick={open} style={{ flexShrink: 0, alignSelf: props.rawErrors?.length ? 'center' : 'flex-end' }}>
            Write a secret
          </Button>
        )}
      </Group>
      <SecretDialog
        opened={opened}
        onClose={close}
        onWritten={(name) => {
          change(`secret://${name}`);
          close();
        }}
      />
    </>
  );
}

const context = { additionalTypenames: ['Secret'] };

interface SecretDialogProps {
  opened: boolean;
  onClose: () => void;
  onWritten: (name: string) => void;
  /** The secret whose value is replaced; without it a new one is written. */
  name?: string;
}

export function SecretDialog(props: SecretDialogProps) {
  return (
    <Modal
      opened={props.opened}
      onClose={props.onClose}
      title={props.name ? `Replace the value of ${props.name}` : 'Write a secret'}
      centered
    >
      <SecretForm {...props} />
    </Modal>
  );
}

function SecretForm({ onClose, onWritten, name: fixed }: SecretDialogProps) {
  const { tenant } = useWorkplace();
  const [name, setName] = useState(fixed ?? '');
  const [value, setValue] = useState('');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [{ fetching }, put] = useMutation(PutSecret);
  const [{ data: known }] = useQuery({ query: SecretNames, variables: { tenant }, context, pause: fixed !== undefined });
  const [agreed, setAgreed] = useState('');
  const replaces = fixed === undefined && (known?.secrets ?? []).some((secret) => secret.name === name);
  const errorAt = (path: string) => problem?.issues.find((issue) => issue.path === path)?.message;
  const write = async () => {
    if (replaces && agreed !== name) return;
    const result = await put({ input: { tenantId: tenant, name, value } });
    if (result.error) {
      setProblem(problemOf(result.error));
      return;
    }
    say(`${name} is written.`);
    onWritten(name);
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        event.stopPropagation(); // React would hand it to the form that the dialog was opened from
        void write();
      }}
    >
      <Stack>
        {!fixed && (
          <TextInput
            label="Name"
            description="Accounts refer to it as secret://name."
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            error={errorAt('name')}
            required
            data-autofocus
          />
        )}
        <Textarea
          label="Value"
          description="It is encrypted, and nobody can read it again, you included."
          value={value}
          onChange={(event) => setValue(event.currentTarget.value)}
          error={errorAt('value')}
          required
          autosize
          minRows={2}
          maxRows={8}
          autoComplete="off"
          spellCheck={false}
          data-autofocus={fixed ? true : undefined}
        />
        {replaces && (
          <Checkbox
            label={`Replace the value of ${name}`}
            description="There is a secret of this name. Its value is lost, and accounts that refer to it use the new one from their next call."
            checked={agreed === name}
            onChange={(event) => setAgreed(event.currentTarget.checked ? name : '')}
          />
        )}
        {problem && problem.issues.length === 0 && <ProblemAlert problem={problem} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Back
          </Button>
          <Button type="submit" loading={fetching} disabled={replaces && agreed !== name}>
            {replaces ? 'Replace' : 'Write'}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
