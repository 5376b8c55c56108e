import { Button, Center, Divider, PasswordInput, Stack, Text, Title } from '@mantine/core';
import { useEffect, useState, type SyntheticEvent } from 'react';
import { problemOf } from '../problem';
import { beginSession, endReason } from '../session';
import { askWho, goToIssuer, readIssuer, type Issuer } from '../signin';
import { Notice } from '../ui';
import { Logo } from '../ui/Logo';

/** Asks who it is; place is where the issuer is to send the person back to. */
export function SignIn({ place }: { place: string }) {
  const [issuer, setIssuer] = useState<Issuer | null>(null);
  const [token, setToken] = useState('');
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    document.title = 'Sign in · Compute';
    readIssuer().then(setIssuer, () => undefined);
  }, []);

  const signIn = async (event: SyntheticEvent) => {
    event.preventDefault();
    const given = token.trim().replace(/^Bearer\s+/i, '');
    if (!/^[!-~]+$/.test(given)) {
      setError('Paste your token: it has no spaces.');
      return;
    }
    setBusy(true);
    const result = await askWho(given);
    setBusy(false);
    if (!result.error) {
      beginSession({ token: given, subject: result.data?.viewer?.subject ?? '' });
      return;
    }
    const problem = problemOf(result.error);
    setError(
      problem.code === 'UNAUTHENTICATED' ? 'The server does not take this token. It may be mistyped, revoked or expired.' : problem.message,
    );
  };

  return (
    <Center component="main" mih="100vh" p="md">
      <Stack w="100%" maw={400} gap="lg">
        <Stack gap="xs" align="center">
          <Logo size={44} />
          <Title order={1} size="h2">
            Sign in
          </Title>
          <Text c="dimmed" ta="center">
            Accounts, offers and hosts of your tenants.
          </Text>
        </Stack>
        {endReason() && (
          <Notice color="yellow" role="status">
            {endReason()} Sign in again to go on where you were.
          </Notice>
        )}
        <Stack className="surface" p="lg" gap="md">
          {issuer && (
            <>
              <Button
                size="md"
                onClick={() => void goToIssuer(issuer, place).catch(() => setError('The sign-in service cannot be reached.'))}
              >
                Sign in with {new URL(issuer.issuer).host}
              </Button>
              <Divider label="or" />
            </>
          )}
          <form onSubmit={(event) => void signIn(event)}>
            <Stack gap="md">
              <PasswordInput
                label="Token"
                description="It stays in this browser until you close it or sign out."
                value={token}
                onChange={(event) => {
                  setToken(event.currentTarget.value);
                  setError('');
                }}
                error={error}
                autoComplete="off"
                data-autofocus
                visibilityToggleButtonProps={{ 'aria-label': 'Show the token' }}
              />
              <Button type="submit" loading={busy} variant={issuer ? 'default' : 'filled'}>
                Sign in
              </Button>
            </Stack>
          </form>
        </Stack>
        <Text size="sm" c="dimmed" ta="center">
          <code>make run</code> prints a token when it is ready. An administrator makes others under Access.
        </Text>
      </Stack>
    </Center>
  );
}
