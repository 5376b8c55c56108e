// Signing in at an issuer: the code flow with PKCE, against a provider that others use in production.

import { accessible, call, connect, expect, faults, test } from './rig';
import { startIssuer } from './server';

let stopIssuer = async () => {};
let tenant = '';

test.beforeAll(async ({ product }, { workerIndex }) => {
  test.setTimeout(600_000); // the provider is compiled
  tenant = `oidc-${workerIndex}`;
  stopIssuer = await startIssuer(product, '60s');
  await faults();
  await connect(tenant, 'cloud');
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: 'user:id1', role: 'provider-viewer', object: `compute-tenant/${tenant}` },
  });
});

test.afterAll(async () => stopIssuer());

test.use({ elsewhere: async ({ product }, use) => use([new URL(product.issuer).host]) });

test('sign in at the issuer with a code and its proof, until the credential ends', async ({ page, product }) => {
  const issuer = new URL(product.issuer).host;
  const asked: URL[] = [];
  const exchanged: URLSearchParams[] = [];
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.host !== issuer) return;
    if (url.pathname === '/authorize') asked.push(url);
    if (url.pathname === '/oauth/token' && request.method() === 'POST') exchanged.push(new URLSearchParams(request.postData() ?? ''));
  });
  await page.goto(`/t/${tenant}/accounts`);
  await expect(page.getByRole('button', { name: `Sign in with ${issuer}` })).toBeVisible();
  await accessible(page);
  await page.getByRole('button', { name: `Sign in with ${issuer}` }).click();
  await page.getByLabel('Name').fill('test-user@127.0.0.1');
  await page.getByLabel('Password').fill('verysecure');
  await page.getByRole('button', { name: 'Go on' }).click();

  // Back where the person wanted to go, with nothing of it left in the address.
  await expect(page.getByRole('link', { name: 'cloud', exact: true })).toBeVisible();
  await expect(page).toHaveURL(`/t/${tenant}/accounts`);
  expect(asked[0]?.searchParams.get('code_challenge_method')).toBe('S256');
  expect(asked[0]?.searchParams.get('response_type')).toBe('code');
  expect(exchanged[0]?.get('code_verifier')?.length).toBeGreaterThanOrEqual(43);
  expect(exchanged[0]?.has('client_secret')).toBe(false);
  await page.getByRole('button', { name: 'You' }).click();
  await expect(page.getByText('user:id1')).toBeVisible();
  await page.keyboard.press('Escape');

  // The server stops to take the token by itself, and the page says so without being touched.
  await expect(page.getByText('Your session has ended')).toBeVisible({ timeout: 240_000 });
  expect(await page.evaluate(() => JSON.stringify(sessionStorage))).not.toContain('eyJ');
});

test('a sign-in that was not begun here comes to nothing', async ({ page }) => {
  await page.goto('/sign-in/callback?code=stolen&state=unknown');
  await expect(page.getByText('The sign-in did not come to an end.')).toBeVisible();
  await accessible(page);
  await page.getByRole('link', { name: 'Try again' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
});
