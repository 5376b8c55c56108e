// What the tests share: a page that watches the browser's complaints, the API, and the simulated cloud's faults.

import AxeBuilder from 'axe-core';
import { expect, test as base, type Locator, type Page } from '@playwright/test';
import { startProduct, type Product } from './server';

export function setting(name: 'CONSOLE_URL' | 'CONSOLE_TOKEN' | 'CLOUD_URL'): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

/** One call of the API, as the administrator unless another token is given. */
export async function call<Data>(query: string, variables: Record<string, unknown>, token = setting('CONSOLE_TOKEN')): Promise<Data> {
  const response = await fetch(`${setting('CONSOLE_URL')}/graphql`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ query, variables }),
  });
  const { data, errors } = (await response.json()) as { data: Data; errors?: unknown[] };
  if (errors) throw new Error(JSON.stringify(errors));
  return data;
}

interface Fault {
  kind: string;
  match?: { method?: string; path?: string };
  count?: number;
  delay?: string;
}

/** Tells the cloud what to do wrong from here on, in place of what it was told before. */
export async function faults(...rules: Fault[]) {
  const url = `${setting('CLOUD_URL')}/v1/_faults`;
  const headers = { 'X-Cloud-Admin': 'yes', 'Content-Type': 'application/json' };
  await fetch(url, { method: 'DELETE', headers });
  if (rules.length > 0) {
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(rules) });
    if (!answer.ok) throw new Error(await answer.text());
  }
}

/** Lets bootstraps come as far as the install, and no further until faults() is called. */
export async function hold() {
  await faults({ kind: '503', match: { method: 'POST', path: '/v1/machines/' }, count: -1 });
}

let named = 0;

export async function writeSecret(tenant: string, name: string, value: string) {
  await call('mutation($in: PutSecretInput!) { putSecret(input: $in) { secret { name } } }', { in: { tenantId: tenant, name, value } });
}

/** Connects an account of the simulated cloud that has a project of its own, and gives its id. */
export async function connect(tenant: string, name: string): Promise<string> {
  await writeSecret(tenant, name, `project-${name}-${named++}`);
  const data = await call<{ createProviderAccount: { providerAccount: { id: string } } }>(
    'mutation($in: CreateProviderAccountInput!) { createProviderAccount(input: $in) { providerAccount { id } } }',
    { in: { tenantId: tenant, provider: 'sim', name, config: { apiToken: `secret://${name}` } } },
  );
  return data.createProviderAccount.providerAccount.id;
}

export async function pool(tenant: string, name: string): Promise<string> {
  const data = await call<{ createPool: { pool: { id: string } } }>(
    'mutation($in: CreatePoolInput!) { createPool(input: $in) { pool { id } } }',
    {
      in: { tenantId: tenant, name, class: 'VPS_HOST', agent: 'BCD' },
    },
  );
  return data.createPool.pool.id;
}

/** Starts a bootstrap of the account's cheapest offer, and gives its id. */
export async function bootstrap(tenant: string, account: string, into: string): Promise<string> {
  const { offers } = await call<{ offers: { id: string; availability: string }[] }>(
    'query($t: ID!, $a: ID!) { offers(tenantId: $t, accountId: $a, query: {kind: VPS}) { id availability } }',
    { t: tenant, a: account },
  );
  const offer = offers.find((o) => o.availability === 'AVAILABLE');
  const data = await call<{ bootstrapMachine: { bootstrap: { id: string } } }>(
    'mutation($in: BootstrapMachineInput!) { bootstrapMachine(input: $in) { bootstrap { id } } }',
    { in: { tenantId: tenant, accountId: account, poolId: into, offerId: offer?.id, idempotencyKey: `e2e-${account}-${named++}` } },
  );
  return data.bootstrapMachine.bootstrap.id;
}

/** Makes a token of a service that has the role in the tenant. */
export async function tokenOf(tenant: string, name: string, role: string, seconds?: number): Promise<string> {
  const expiresAt = seconds === undefined ? null : new Date(Date.now() + seconds * 1000).toISOString();
  const data = await call<{ createApiToken: { token: string; apiToken: { subject: string } } }>(
    'mutation($in: CreateApiTokenInput!) { createApiToken(input: $in) { token apiToken { subject } } }',
    { in: { tenantId: tenant, name, expiresAt } },
  );
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: data.createApiToken.apiToken.subject, role, object: `compute-tenant/${tenant}` },
  });
  return data.createApiToken.token;
}

export async function statusOf(tenant: string, id: string): Promise<string> {
  const data = await call<{ bootstrap: { status: string } }>(
    'query($t: ID!, $b: ID!) { bootstrap(tenantId: $t, bootstrapId: $b) { status } }',
    { t: tenant, b: id },
  );
  return data.bootstrap.status;
}

/** Presses Tab until the element has the focus. */
export async function tabTo(page: Page, target: Locator) {
  for (let presses = 0; presses < 60; presses++) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`Tab does not lead to ${String(target)}`);
}

export async function signIn(page: Page, path: string, token = setting('CONSOLE_TOKEN')) {
  const field = page.getByLabel('Token', { exact: true });
  page.on('pageerror', (error) => console.log(`${path}: ${error.stack ?? error.message}`));
  page.on('requestfailed', (request) => {
    if (request.resourceType() === 'script') console.log(`${path}: ${request.url()}: ${request.failure()?.errorText ?? ''}`);
  });
  // A browser that is starved may show nothing of a page; whoever sees that asks for it again.
  await expect(async () => {
    await page.goto(path);
    await expect(field).toBeVisible({ timeout: 30_000 });
  }).toPass();
  await field.fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1 })).not.toHaveText('Sign in');
}

interface AxeResult {
  violations: { id: string; impact: string | null; nodes: { html: string; failureSummary?: string }[] }[];
}

/** Waits for what moves or fades to its end. */
export async function atRest(page: Page) {
  await page.evaluate(async () => {
    const ends = document.getAnimations().filter((a) => a.effect?.getComputedTiming().iterations !== Infinity);
    await Promise.allSettled(ends.map((a) => a.finished));
  });
}

/** Wants no serious or critical violation on the page as it is. */
export async function accessible(page: Page) {
  await atRest(page); // what is still fading in has the colours of what is behind it
  await page.evaluate(AxeBuilder.source); // by the debugger: the page's policy lets no script in
  // What begins to fade in just then shows once more what is behind it: a fault of the page is there the second time too.
  await expect(async () => {
    const { violations } = await page.evaluate(() => {
      const { axe } = window as unknown as { axe: { run: (options: { preload: boolean }) => Promise<AxeResult> } };
      return axe.run({ preload: false }); // it would copy a stylesheet that it cannot reach into the page, against its policy
    });
    const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    expect(
      grave.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, failureSummary }) => `${html}\n${failureSummary}`) })),
      page.url(),
    ).toEqual([]);
  }).toPass({ timeout: 120_000 });
}

/**
 * A test whose pages may break no rule: no violation of the content policy, no request to another host, no error that nobody caught.
 * Each worker has a product of its own, and may tell its cloud what to do wrong.
 */
export const test = base.extend<{ watched: string[]; elsewhere: string[] }, { product: Product }>({
  product: [
    async ({}, use) => {
      const product = await startProduct();
      process.env.CONSOLE_URL = product.url;
      process.env.CONSOLE_TOKEN = product.token;
      process.env.CLOUD_URL = product.cloud;
      await use(product);
      await product.stop();
    },
    { scope: 'worker', auto: true, timeout: 300_000 },
  ],
  baseURL: async ({ product }, use) => use(product.url),
  elsewhere: [[], { option: true }],
  watched: [
    async ({ context, elsewhere }, use) => {
      const complaints: string[] = [];
      const hosts = new Set([new URL(setting('CONSOLE_URL')).host, ...elsewhere]);
      context.on('console', (message) => {
        if (/Content Security Policy/i.test(message.text())) complaints.push(message.text());
      });
      context.on('requestfailed', (request) => {
        if (request.resourceType() === 'stylesheet') console.log(`lost ${request.url()}: ${request.failure()?.errorText ?? ''}`);
      });
      context.on('weberror', (error) => complaints.push(String(error.error())));
      context.on('request', (request) => {
        const url = new URL(request.url());
        if (url.protocol.startsWith('http') && !hosts.has(url.host)) complaints.push(`a request to ${url.host}`);
        if (/bct_|[?&]token=/.test(request.url())) complaints.push(`a token in ${url.pathname}`);
      });
      await use(complaints);
      expect(complaints).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
