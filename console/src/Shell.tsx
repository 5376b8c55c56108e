import {
  ActionIcon,
  AppShell,
  Burger,
  Button,
  Group,
  Menu,
  NavLink,
  ScrollArea,
  Stack,
  Text,
  useComputedColorScheme,
  useMantineColorScheme,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import {
  IconArrowsExchange,
  IconChevronDown,
  IconGhost2,
  IconKey,
  IconListDetails,
  IconLock,
  IconMoon,
  IconPlayerPlay,
  IconServer2,
  IconSettings,
  IconSun,
  IconTag,
  IconUserCircle,
  IconPlugConnected,
} from '@tabler/icons-react';
import { Suspense, useEffect, useMemo, type ComponentType } from 'react';
import { Link, Outlet, useLocation, useNavigate, useParams } from 'react-router';
import { useQuery } from './query';
import { graphql } from './gql';
import type { Permission } from './gql/graphql';
import { problemOf } from './problem';
import { recentTenants, rememberTenant } from './recent';
import { endSession } from './session';
import { useHeartbeat } from './heartbeat';
import { WorkplaceContext } from './tenant';
import { Loading, Mark, ProblemAlert } from './ui';
import { Boundary } from './ui/Boundary';
import { Logo } from './ui/Logo';

const ShellViewer = graphql(`
  query ShellViewer($tenant: ID!) {
    viewer {
      subject
      tenants
      permissions(tenantId: $tenant)
    }
  }
`);

interface Place {
  path: string;
  label: string;
  icon: ComponentType<{ size?: number; stroke?: number }>;
  /** Shown only to who has this in the whole tenant. */
  needs?: Permission;
}

const places: Place[] = [
  { path: 'accounts', label: 'Accounts', icon: IconPlugConnected },
  { path: 'offers', label: 'Offers', icon: IconTag },
  { path: 'bootstraps', label: 'Bootstraps', icon: IconPlayerPlay },
  { path: 'pools', label: 'Pools and hosts', icon: IconServer2 },
  { path: 'orphans', label: 'Orphans', icon: IconGhost2 },
  { path: 'secrets', label: 'Secrets', icon: IconLock, needs: 'PROVIDERS_READ' },
  { path: 'access', label: 'Access', icon: IconKey, needs: 'IAM_MANAGE' },
  { path: 'audit', label: 'Audit', icon: IconListDetails, needs: 'AUDIT_READ' },
  { path: 'settings', label: 'Settings', icon: IconSettings },
];

export function Shell({ token }: { token: string }) {
  const { tenant = '' } = useParams();
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  const [{ data, error }, again] = useQuery({ query: ShellViewer, variables: { tenant } });
  const granted = data?.viewer?.permissions;
  const workplace = useMemo(() => ({ tenant, permissions: new Set(granted ?? []) }), [tenant, granted]);

  useEffect(() => rememberTenant(tenant), [tenant]);
  useEffect(close, [pathname, close]);
  useHeartbeat(token, again);

  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 232, breakpoint: 'sm', collapsed: { mobile: !opened } }}
      padding={{ base: 'md', md: 'xl' }}
    >
      <a href="#main" className="skip">
        Skip to the content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap" style={{ minWidth: 0 }}>
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={opened ? 'Close the menu' : 'Open the menu'} />
            <Group gap="xs" visibleFrom="xs" wrap="nowrap">
              <Logo size={26} />
              <Text fw={700}>Compute</Text>
            </Group>
            <TenantMenu tenant={tenant} tenants={data?.viewer?.tenants} />
          </Group>
          <Group gap={4} wrap="nowrap">
            {error && data && <Mark color="yellow">{error.networkError ? 'No connection' : 'No answer'}</Mark>}
            <SchemeToggle />
            <UserMenu subject={data?.viewer?.subject ?? ''} />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages" className={opened ? undefined : 'shut'}>
        <ScrollArea>
          <Stack gap={2}>
            {places
              .filter((place) => !place.needs || workplace.permissions.has(place.needs))
              .map(({ path, label, icon: Icon }) => {
                const to = `/t/${encodeURIComponent(tenant)}/${path}`;
                const active = pathname === to || pathname.startsWith(`${to}/`);
                return (
                  <NavLink
                    key={path}
                    component={Link}
                    to={to}
                    label={label}
                    active={active}
                    aria-current={active ? 'page' : undefined}
                    leftSection={<Icon size={18} stroke={1.7} />}
                    className="place"
                    onClick={close} // also where it is that of the present page
                  />
                );
              })}
          </Stack>
        </ScrollArea>
      </AppShell.Navbar>
      <AppShell.Main id="main" tabIndex={-1}>
        <div className="content">
          {error && !data && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
          {!data && !error && <Loading />}
          {data && (
            <WorkplaceContext value={workplace}>
              <Boundary key={pathname}>
                <Suspense fallback={<Loading />}>
                  <Outlet />
                </Suspense>
              </Boundary>
            </WorkplaceContext>
          )}
        </div>
      </AppShell.Main>
    </AppShell>
  );
}

function TenantMenu({ tenant, tenants }: { tenant: string; tenants: string[] | null | undefined }) {
  const navigate = useNavigate();
  const others = (tenants ?? recentTenants()).filter((other) => other !== tenant);
  return (
    <Menu position="bottom-start" width={240}>
      <Menu.Target>
        <Button variant="default" size="xs" rightSection={<IconChevronDown size={14} />} aria-label={`Tenant ${tenant}, switch`}>
          <Text span inherit truncate maw={140}>
            {tenant}
          </Text>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Tenant</Menu.Label>
        {others.map((other) => (
          <Menu.Item key={other} onClick={() => void navigate(`/t/${encodeURIComponent(other)}`)}>
            {other}
          </Menu.Item>
        ))}
        {(tenants === null || others.length === 0) && (
          <Menu.Item onClick={() => void navigate('/')} disabled={tenants !== null}>
            {tenants === null ? 'Another one…' : 'You have no other tenant'}
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}

function SchemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme('light') === 'dark';
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      size="lg"
      onClick={() => setColorScheme(dark ? 'light' : 'dark')}
      aria-label={dark ? 'Use the light theme' : 'Use the dark theme'}
    >
      {dark ? <IconSun size={19} /> : <IconMoon size={19} />}
    </ActionIcon>
  );
}

function UserMenu({ subject }: { subject: string }) {
  return (
    <Menu position="bottom-end" width={240}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label="You">
          <IconUserCircle size={21} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label style={{ overflowWrap: 'anywhere' }}>{subject}</Menu.Label>
        <Menu.Item component="a" href="/graphiql/" target="_blank" rel="opener" leftSection={<IconArrowsExchange size={16} />}>
          GraphiQL
        </Menu.Item>
        <Menu.Divider />
        <Menu.Item onClick={() => endSession()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
