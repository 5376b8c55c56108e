import { Button, Center, Group, Stack, Text, TextInput, Title, UnstyledButton } from '@mantine/core';
import { useState } from 'react';
import { Link, Navigate, useNavigate } from 'react-router';
import { useQuery } from '../query';
import { graphql } from '../gql';
import { useHeartbeat } from '../heartbeat';
import { problemOf } from '../problem';
import { recentTenants } from '../recent';
import { endSession } from '../session';
import { Loading, ProblemAlert } from '../ui';
import { Logo } from '../ui/Logo';

export const ViewerTenants = graphql(`
  query ViewerTenants {
    viewer {
      subject
      tenants
    }
  }
`);

const form = /^[A-Za-z0-9._:-]{1,128}$/;

/** Where a session begins: which tenant it is about. */
export function Tenants({ token }: { token: string }) {
  const [{ data, error }, again] = useQuery({ query: ViewerTenants });
  useHeartbeat(token, again);
  const tenants = data?.viewer?.tenants;
  const recent = recentTenants();
  if (data?.viewer && tenants?.length === 1) return <Navigate to={`/t/${encodeURIComponent(tenants[0] ?? '')}`} replace />;
  return (
    <Center component="main" mih="100vh" p="md">
      <Stack w="100%" maw={440} gap="lg">
        <Group>
          <Logo />
          <Title order={1} size="h2">
            Choose a tenant
          </Title>
        </Group>
        {error && !data && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
        {!data && !error && <Loading rows={2} />}
        {data?.viewer && tenants === null && <AnyTenant subject={data.viewer.subject} recent={recent} />}
        {data?.viewer && tenants?.length === 0 && (
          <Stack className="surface" p="lg">
            <Text>
              <span className="mono">{data.viewer.subject}</span> has no rights in any tenant yet. Ask an administrator to grant you a role,
              then reload this page.
            </Text>
          </Stack>
        )}
        {tenants && tenants.length > 1 && <TenantList tenants={tenants} />}
        <Button variant="subtle" color="gray" onClick={() => endSession()}>
          Sign out
        </Button>
      </Stack>
    </Center>
  );
}

function TenantList({ tenants }: { tenants: string[] }) {
  return (
    <Stack gap="xs" component="ul" p={0} m={0} style={{ listStyle: 'none' }}>
      {tenants.map((tenant) => (
        <li key={tenant}>
          <UnstyledButton component={Link} to={`/t/${encodeURIComponent(tenant)}`} className="surface pick" p="md" w="100%">
            {tenant}
          </UnstyledButton>
        </li>
      ))}
    </Stack>
  );
}

function AnyTenant({ subject, recent }: { subject: string; recent: string[] }) {
  const navigate = useNavigate();
  const [tenant, setTenant] = useState('');
  const [error, setError] = useState('');
  return (
    <>
      {recent.length > 0 && <TenantList tenants={recent} />}
      <form
        className="surface"
        onSubmit={(event) => {
          event.preventDefault();
          if (!form.test(tenant)) setError('1 to 128 letters, digits, and . _ : -');
          else void navigate(`/t/${encodeURIComponent(tenant)}`);
        }}
      >
        <Stack p="lg">
          <TextInput
            label="Tenant"
            description={`${subject} has a right on the fleet, and may name any tenant. The development server has one called demo.`}
            placeholder="demo"
            value={tenant}
            error={error}
            onChange={(event) => {
              setTenant(event.currentTarget.value.trim());
              setError('');
            }}
          />
          <Button type="submit">Open</Button>
        </Stack>
      </form>
    </>
  );
}
