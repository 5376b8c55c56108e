import { Anchor, Center, Loader, Stack, Text } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { Link, useNavigate } from 'react-router';
import { beginSession } from '../session';
import { askWho, comeBack, readIssuer } from '../signin';

/** Where the issuer sends people back to. The code in the address is spent and gone at once. */
export default function Callback() {
  const navigate = useNavigate();
  const [failed, setFailed] = useState(false);
  const begun = useRef(false);
  useEffect(() => {
    if (begun.current) return; // a code is good once
    begun.current = true;
    const signIn = async () => {
      const issuer = await readIssuer();
      if (!issuer) throw new Error('no issuer');
      const { token, from } = await comeBack(issuer);
      const { data } = await askWho(token);
      if (!data?.viewer) throw new Error('the server does not take it');
      beginSession({ token, subject: data.viewer.subject });
      await navigate(from, { replace: true });
    };
    signIn().catch(() => setFailed(true));
  }, [navigate]);
  return (
    <Center component="main" mih="100vh">
      {failed ? (
        <Stack align="center">
          <Text>The sign-in did not come to an end.</Text>
          <Anchor component={Link} to="/sign-in" replace>
            Try again
          </Anchor>
        </Stack>
      ) : (
        <Loader aria-label="Signing in" />
      )}
    </Center>
  );
}
