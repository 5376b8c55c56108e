import { Button, Group, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconLock, IconPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { useMutation } from 'urql';
import { useQuery } from '../query';
import { graphql } from '../gql';
import { failureOf } from '../mutate';
import { problemOf } from '../problem';
import { useWorkplace } from '../tenant';
import { Confirm, Empty, Loading, Page, ProblemAlert, say, When } from '../ui';
import { DataTable } from '../ui/DataTable';
import { SecretDialog } from '../ui/SecretField';

const SecretsDocument = graphql(`
  query Secrets($tenant: ID!) {
    secrets(tenantId: $tenant) {
      name
      createdAt
      updatedAt
    }
  }
`);

const DeleteSecret = graphql(`
  mutation DeleteSecret($input: DeleteSecretInput!) {
    deleteSecret(input: $input) {
      deleted
    }
  }
`);

const context = { additionalTypenames: ['Secret', 'DeleteSecretPayload'] };

export default function Secrets() {
  const { tenant, permissions } = useWorkplace();
  const [{ data, error }, again] = useQuery({ query: SecretsDocument, variables: { tenant }, context });
  const [, remove] = useMutation(DeleteSecret);
  const [writing, { open, close }] = useDisclosure();
  const [replacing, setReplacing] = useState<string | null>(null);
  const [deleting, setDeleting] = useState<string | null>(null);
  const manages = permissions.has('PROVIDERS_MANAGE');
  const secrets = data?.secrets;
  const write = manages && (
    <Button leftSection={<IconPlus size={16} />} onClick={open}>
      Write a secret
    </Button>
  );
  return (
    <Page
      title="Secrets"
      about="What accounts sign in to their providers with. A value can be written and replaced, but never read again."
      actions={secrets?.length ? write : null}
    >
      {error && !secrets && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      {!data && !error && <Loading />}
      {secrets?.length === 0 && (
        <Empty icon={IconLock} title="No secret yet" action={write}>
          Write the API token of a provider here, and let an account refer to it by its name.
        </Empty>
      )}
      {secrets && secrets.length > 0 && (
        <DataTable
          label="Secrets"
          rows={secrets}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Reference', cell: ({ name }) => `secret://${name}`, className: 'mono' },
            { title: 'First written', cell: ({ createdAt }) => <When at={createdAt} /> },
            { title: 'Last written', cell: ({ updatedAt }) => <When at={updatedAt} /> },
            manages && {
              title: '',
              cell: ({ name }) => (
                <Group gap="xs" justify="flex-end" wrap="nowrap">
                  <Button size="xs" variant="default" onClick={() => setReplacing(name)} aria-label={`Replace ${name}`}>
                    Replace
                  </Button>
                  <Button size="xs" variant="default" onClick={() => setDeleting(name)} aria-label={`Delete ${name}`}>
                    Delete
                  </Button>
                </Group>
              ),
            },
          ]}
        />
      )}
      <SecretDialog opened={writing} onClose={close} onWritten={close} />
      <SecretDialog
        key={replacing}
        name={replacing ?? undefined}
        opened={replacing !== null}
        onClose={() => setReplacing(null)}
        onWritten={() => setReplacing(null)}
      />
      <Confirm
        opened={deleting !== null}
        onClose={() => setDeleting(null)}
        title={`Delete ${deleting ?? ''}?`}
        action="Delete"
        danger
        run={async () => {
          const failure = failureOf(await remove({ input: { tenantId: tenant, name: deleting ?? '' } }));
          if (!failure) say(`${deleting ?? ''} is deleted.`);
          return failure;
        }}
      >
        <Text size="sm">Accounts that refer to it fail at their next call.</Text>
      </Confirm>
    </Page>
  );
}
