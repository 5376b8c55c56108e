// Signing in. The library of OpenID Connect comes only when it is used.

import { createApi } from './api';
import { graphql } from './gql';

const WhoAmI = graphql(`
  query WhoAmI {
    viewer {
      subject
    }
  }
`);

/** Asks the server whose credential it is. */
export function askWho(token: string) {
  return createApi(token).query(WhoAmI, {}, { requestPolicy: 'network-only' }).toPromise();
}

export interface Issuer {
  issuer: string;
  clientId: string;
}

export async function readIssuer(): Promise<Issuer | null> {
  const response = await fetch('/console.json');
  if (!response.ok) return null;
  const settings = (await response.json()) as { oidc: Issuer | null };
  return settings.oidc;
}

async function managerOf({ issuer, clientId }: Issuer) {
  const { UserManager, WebStorageStateStore } = await import('oidc-client-ts');
  const store = new WebStorageStateStore({ store: sessionStorage, prefix: 'compute-oidc-' });
  return new UserManager({
    authority: issuer,
    client_id: clientId,
    redirect_uri: `${location.origin}/sign-in/callback`,
    scope: 'openid',
    stateStore: store,
    userStore: store,
    automaticSilentRenew: false,
  });
}

/** Leaves for the issuer, which comes back to /sign-in/callback. */
export async function goToIssuer(issuer: Issuer, from: string): Promise<void> {
  const manager = await managerOf(issuer);
  await manager.signinRedirect({ state: from });
}

/** The credential that the issuer gave, and where the person wanted to go. */
export async function comeBack(issuer: Issuer): Promise<{ token: string; from: string }> {
  const manager = await managerOf(issuer);
  const user = await manager.signinRedirectCallback();
  await manager.removeUser(); // the session keeps the one token that it sends
  const isToken = (text: string) => text.split('.').length === 3;
  const token = isToken(user.access_token) ? user.access_token : (user.id_token ?? '');
  return { token, from: typeof user.state === 'string' ? user.state : '/' };
}
