import { Anchor, Button, SegmentedControl, Stack, Text, useMantineColorScheme, type MantineColorScheme } from '@mantine/core';
import { useQuery } from '../query';
import { graphql } from '../gql';
import type { Permission } from '../gql/graphql';
import { permissionText } from '../permissions';
import { problemOf } from '../problem';
import { endSession } from '../session';
import { useWorkplace } from '../tenant';
import { Facts, Loading, Page, ProblemAlert, Section } from '../ui';
import { sentence } from '../ui/status';

const SettingsDocument = graphql(`
  query Settings {
    viewer {
      subject
      groups
      tenants
    }
    server {
      version
    }
    providers {
      name
      displayName
      capabilities {
        offers
        machines
        order
        bootstrap
        release
        prices
        liveStock
      }
    }
  }
`);

const schemes: { value: MantineColorScheme; label: string }[] = [
  { value: 'auto', label: 'As the system' },
  { value: 'light', label: 'Light' },
  { value: 'dark', label: 'Dark' },
];

const can: [string, string][] = [
  ['offers', 'lists offers'],
  ['machines', 'lists machines'],
  ['order', 'orders'],
  ['bootstrap', 'bootstraps'],
  ['release', 'gives back'],
  ['prices', 'tells prices'],
  ['liveStock', 'tells its stock'],
];

export default function Settings() {
  const { tenant, permissions } = useWorkplace();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const [{ data, error }, again] = useQuery({ query: SettingsDocument });
  return (
    <Page title="Settings">
      {error && !data && <ProblemAlert problem={problemOf(error)} retry={() => again({ requestPolicy: 'network-only' })} />}
      <Section title="This browser">
        <Stack className="surface" p="lg" align="flex-start">
          <Text size="sm" fw={500} id="scheme">
            Theme
          </Text>
          <SegmentedControl
            aria-labelledby="scheme"
            data={schemes}
            value={colorScheme}
            onChange={(value) => {
              const scheme = schemes.find((s) => s.value === value);
              if (scheme) setColorScheme(scheme.value);
            }}
          />
          <Text size="sm" c="dimmed">
            Times are those of {Intl.DateTimeFormat().resolvedOptions().timeZone}; point at one, or go to it by Tab, to see it in UTC.
          </Text>
        </Stack>
      </Section>
      {!data && !error && <Loading />}
      {data && (
        <>
          <Section
            title="You"
            actions={
              <Button size="xs" variant="default" onClick={() => endSession()}>
                Sign out
              </Button>
            }
          >
            <Facts
              items={[
                [
                  'Signed in as',
                  <span key="s" className="mono">
                    {data.viewer?.subject}
                  </span>,
                ],
                ['Groups', data.viewer?.groups.join(', ') || 'None'],
                ['Tenants', data.viewer?.tenants?.join(', ') ?? 'Any: you have a right on the fleet'],
                [
                  `What you may do in ${tenant}`,
                  permissions.size === 0 ? 'Nothing in the whole tenant' : <Rights key="r" permissions={[...permissions]} />,
                ],
              ]}
            />
          </Section>
          <Section title="Versions">
            <Facts
              items={[
                [
                  'Server',
                  <span key="v" className="mono">
                    {data.server?.version ?? '–'}
                  </span>,
                ],
                ['Console', 'Comes with the server, and has its version'],
                [
                  'Made with',
                  <Anchor key="l" href="/licences.txt" target="_blank" inherit>
                    the packages of others
                  </Anchor>,
                ],
              ]}
            />
          </Section>
          <Section title="Providers">
            <Facts
              items={(data.providers ?? []).map((provider) => [
                provider.displayName,
                sentence(
                  can
                    .filter(([name]) => (provider.capabilities as Record<string, unknown>)[name] === true)
                    .map(([, text]) => text)
                    .join(', '),
                ),
              ])}
            />
          </Section>
        </>
      )}
    </Page>
  );
}

function Rights({ permissions }: { permissions: Permission[] }) {
  return (
    <ul style={{ margin: 0, paddingLeft: '1.1rem' }}>
      {permissions.map((permission) => (
        <li key={permission}>{sentence(permissionText(permission))}</li>
      ))}
    </ul>
  );
}
