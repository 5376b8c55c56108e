// What goes wrong, and who may do what.

import {
  accessible,
  bootstrap,
  call,
  connect,
  expect,
  faults,
  hold,
  pool,
  setting,
  signIn,
  statusOf,
  test,
  tokenOf,
  writeSecret,
} from './rig';

let tenant = '';
let account = '';
let hosts = '';
let lost = '';

test.beforeAll(async ({}, { workerIndex }) => {
  tenant = `scenes-${workerIndex}`; // after a failure the tests that are left begin anew
  await faults();
  account = await connect(tenant, 'cloud');
  hosts = await pool(tenant, 'hosts');
  lost = await loseAnOrder();
});

/** An order without an answer, of an account that speaks to another project since: nothing but a person can tell what became of it. */
async function loseAnOrder(): Promise<string> {
  const name = 'uncertain';
  const other = await connect(tenant, name);
  await faults({ kind: '500_before', match: { method: 'POST', path: '/v1/machines' }, count: -1 });
  const id = await bootstrap(tenant, other, hosts);
  const state = async () => {
    const data = await call<{ bootstrap: { step: string; claim: { lastError: string } } }>(
      'query($t: ID!, $b: ID!) { bootstrap(tenantId: $t, bootstrapId: $b) { step claim { lastError } } }',
      { t: tenant, b: id },
    );
    return `${data.bootstrap.step}: ${data.bootstrap.claim.lastError}`;
  };
  await expect.poll(state).toContain('did not say whether it took the order');
  await writeSecret(tenant, name, 'another-project');
  await expect.poll(state).toContain('looking for the order'); // it sends none any more, which the cloud would take
  await faults();
  return id;
}

test.afterEach(async () => faults());

test('a bootstrap that fails says why', async ({ page }) => {
  await faults({ kind: 'install_fails', match: { method: 'POST', path: '/v1/machines/' }, count: -1 });
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/bootstraps/${id}`);
  await expect(page.getByText('It failed: install failed')).toBeVisible({ timeout: 240_000 });
  await expect(page.getByRole('list', { name: 'States' }).getByRole('listitem').last()).toContainText('Failed');
  await expect(page.getByLabel('The last lines of the install')).not.toBeEmpty();
  await accessible(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  await accessible(page);
  await page.getByRole('button', { name: 'Give it back now' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Give it back' }).click();
  await expect(page.getByText('The machine was given back.')).toBeVisible({ timeout: 240_000 });
});

test('one that failed is tried again on the same machine', async ({ page }) => {
  await faults({ kind: 'install_fails', match: { method: 'POST', path: '/v1/machines/' }, count: -1 });
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/bootstraps/${id}`);
  let tried = id;
  for (const fails of [true, false]) {
    await expect(page.getByText('It failed: install failed')).toBeVisible({ timeout: 240_000 });
    if (!fails) await faults();
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Try again' }).click();
    await expect(page).not.toHaveURL(new RegExp(tried));
    await expect(page.getByRole('link', { name: `…${tried.slice(-8)}` })).toBeVisible(); // which one it tries again
    tried = page.url().split('/').at(-1) ?? '';
  }
  await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });
});

test('a cancel', async ({ page }) => {
  await faults({ kind: 'never_ready', match: { method: 'POST', path: '/v1/machines' }, count: -1 });
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/bootstraps/${id}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel the bootstrap' }).click();
  await expect(page.getByText('It was cancelled')).toBeVisible();
  await expect(page.getByText('The machine was given back.')).toBeVisible({ timeout: 240_000 });
  await expect(page.getByRole('button', { name: 'Cancel', exact: true })).toHaveCount(0);
});

test('a viewer sees no buttons', async ({ page }) => {
  const token = await tokenOf(tenant, 'viewer', 'provider-viewer');
  await hold();
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/accounts`, token);
  await page.getByRole('link', { name: 'cloud', exact: true }).click();
  await expect(page.getByRole('cell', { name: 'existing-vps', exact: true })).toBeVisible();
  const changes =
    /^(Check|Edit|Delete|Bootstrap|Cancel|Write|Replace|Connect|Create|Archive|Remove|Give|Try again|Order|Start|Grant|Define|Revoke)\b/;
  const main = page.getByRole('main');
  for (const [path, shown] of [
    [`/accounts/${account}`, main.getByRole('cell', { name: 'existing-vps', exact: true })],
    ['/accounts', main.getByRole('link', { name: 'cloud', exact: true })],
    [`/bootstraps/${id}`, main.getByRole('list', { name: 'States' })],
    ['/secrets', main.getByText('secret://cloud')],
    ['/orphans', main.getByRole('heading', { name: 'Orphans' })],
    ['/settings', main.getByRole('heading', { name: 'Settings' })],
    ['/pools', main.getByRole('heading', { name: 'Pools and hosts' })],
    [`/pools/${hosts}`, main.getByRole('heading', { level: 1 })],
    ['/accounts/new', main.getByText('You may not do this')],
    [`/accounts/${account}/edit`, main.getByText('You may not do this')],
    [`/bootstraps/new?account=${account}&offer=any`, main.getByText('You may not do this')],
    ['/offers', main.getByRole('table', { name: 'Offers' })],
  ] as const) {
    await page.goto(`/t/${tenant}${path}`);
    await expect(shown).toBeVisible();
    await expect(page.getByLabel('Loading')).toHaveCount(0);
    await expect(main.getByRole('button', { name: changes }), path).toHaveCount(0);
    await expect(main.getByRole('link', { name: changes }), path).toHaveCount(0);
  }
  await main.getByRole('table', { name: 'Offers' }).getByRole('row').nth(1).getByRole('button').click();
  await expect(page.getByRole('dialog').getByText('Memory')).toBeVisible();
  await expect(page.getByRole('dialog').getByRole('link', { name: 'Bootstrap one' })).toHaveCount(0);
  for (const name of ['Access', 'Audit']) {
    await expect(page.getByRole('link', { name, exact: true })).toHaveCount(0);
  }
  await page.goto(`/t/${tenant}/access`);
  await expect(page.getByText('You may not do this')).toBeVisible();
});

test('a link of another tenant', async ({ page }) => {
  const stranger = await tokenOf(`strangers-${tenant}`, 'stranger', 'tenant-admin');
  await signIn(page, `/t/${tenant}/accounts/${account}`, stranger);
  await expect(page.getByRole('alert')).toContainText('You may not do this');
  await page.goto(`/t/strangers-${tenant}/accounts/${account}`);
  await expect(page.getByRole('alert')).toContainText('There is no such thing here');
  await expect(page.getByText('cloud', { exact: true })).toHaveCount(0);
});

test('a network that is cut in the middle', async ({ page, context }) => {
  await hold();
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/bootstraps/${id}`);
  await expect(page.locator('[aria-current=step]')).toContainText('Waiting: ');
  await expect(page.getByRole('progressbar', { name: 'How much of this state’s time is over' })).toBeVisible();
  await context.setOffline(true);
  await expect(page.getByText('Connection lost.')).toBeVisible();
  await faults();
  await expect.poll(() => statusOf(tenant, id), { timeout: 240_000 }).toBe('JOINED');
  await expect(page.getByText('The machine is a host', { exact: true })).toHaveCount(0);
  await context.setOffline(false);
  await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible();
  await expect(page.getByText('Connection lost.')).toHaveCount(0);
  await expect(page.getByRole('list', { name: 'States' }).getByRole('listitem')).toHaveCount(6); // no step is missing
});

test('what is typed stays when the connection is lost and comes back', async ({ page, context }) => {
  await signIn(page, `/t/${tenant}/accounts/new`);
  await page.getByRole('textbox', { name: 'Name' }).fill('half-typed');
  await context.setOffline(true);
  await expect(page.getByText('No connection')).toBeVisible(); // after a heartbeat that failed
  const heard = page.waitForResponse((response) => (response.request().postData() ?? '').includes('ShellViewer'));
  await context.setOffline(false);
  await heard;
  await expect(page.getByText('No connection')).toHaveCount(0);
  await expect(page.getByRole('textbox', { name: 'Name' })).toHaveValue('half-typed');
});

test('what is typed stays when the session ends, for the same person only', async ({ page }) => {
  const issue = async () => {
    const { createApiToken: made } = await call<{ createApiToken: { token: string; apiToken: { id: string } } }>(
      'mutation($in: CreateApiTokenInput!) { createApiToken(input: $in) { token apiToken { id } } }',
      { in: { tenantId: tenant, name: 'typist' } },
    );
    return made;
  };
  const revoke = async (id: string) => {
    const input = { tenantId: tenant, tokenId: id };
    await call('mutation($in: RevokeApiTokenInput!) { revokeApiToken(input: $in) { apiToken { id } } }', { in: input });
    await expect(page.getByText('Your session has ended')).toBeVisible();
  };
  const signInAgain = async (token: string) => {
    await page.getByLabel('Token', { exact: true }).fill(token);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await expect(page.getByRole('heading', { level: 1 })).toHaveText('Connect an account');
  };
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: `service:${tenant}/typist`, role: 'provider-manager', object: `compute-tenant/${tenant}` },
  });
  const [first, second] = [await issue(), await issue()];
  const name = page.getByRole('textbox', { name: 'Name' });
  await signIn(page, `/t/${tenant}/accounts/new`, first.token);
  await name.fill('half-typed');
  await revoke(first.apiToken.id);
  await expect(page.getByLabel('Name', { exact: true })).toBeHidden();
  await accessible(page);

  await signInAgain(second.token);
  await expect(name).toHaveValue('half-typed');
  await page.getByRole('combobox', { name: 'Provider' }).click();
  await page.getByRole('option', { name: 'Simulated cloud' }).click();
  await expect(page.getByRole('combobox', { name: 'API token' })).toBeVisible();

  await revoke(second.apiToken.id);
  await signInAgain(setting('CONSOLE_TOKEN'));
  await expect(name).toHaveValue('');
});

test('a list that the network lost is asked for again', async ({ page }) => {
  let losing = true;
  await page.route('**/graphql', async (route) => {
    const body = route.request().postDataJSON() as { operationName?: string };
    return losing && body.operationName === 'Pools' ? route.abort('connectionreset') : route.fallback();
  });
  await signIn(page, `/t/${tenant}/pools`);
  await expect(page.getByRole('alert')).toContainText('No connection');
  losing = false;
  await expect(page.getByRole('link', { name: 'hosts', exact: true })).toBeVisible(); // by itself
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a page whose code the network lost comes with the network', async ({ page, context }) => {
  await signIn(page, `/t/${tenant}/pools`);
  await expect(page.getByRole('link', { name: 'hosts', exact: true })).toBeVisible();
  await context.setOffline(true);
  await page.getByRole('link', { name: 'Audit', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('This page does not show');
  await page.getByRole('link', { name: 'Pools and hosts' }).click(); // what was there is there
  await expect(page.getByRole('link', { name: 'hosts', exact: true })).toBeVisible();
  await page.getByRole('link', { name: 'Audit', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('This page does not show');
  await context.setOffline(false);
  await expect(page.getByRole('region', { name: 'Audit events' })).toBeVisible();
});

test('an order whose answer is lost is not sent as another after a reload', async ({ page }, { workerIndex }) => {
  const once = `once-${workerIndex}`;
  await hold();
  const from = await connect(once, 'cloud');
  await pool(once, 'first');
  await pool(once, 'second');
  const { offers } = await call<{ offers: { id: string; availability: string }[] }>(
    'query($t: ID!, $a: ID!) { offers(tenantId: $t, accountId: $a, query: {kind: VPS}) { id availability } }',
    { t: once, a: from },
  );
  const offer = offers.find((o) => o.availability === 'AVAILABLE')?.id ?? '';
  const plan = `/t/${once}/bootstraps/new?account=${from}&offer=${encodeURIComponent(offer)}`;
  const order = async (into: string) => {
    await page.getByRole('combobox', { name: 'Pool' }).click();
    await page.getByRole('option', { name: into }).click();
    await page.getByRole('button', { name: 'Order and start' }).click();
  };
  let losing = true;
  await page.route('**/graphql', async (route) => {
    if (!losing || !route.request().postData()?.includes('StartBootstrap')) return route.fallback();
    losing = false;
    await route.fetch();
    return route.abort('connectionreset');
  });
  await signIn(page, plan);
  await order('first');
  await expect(page.getByRole('alert')).toContainText('No connection');
  await page.reload();
  await order('second');
  await expect(page.getByText('It was started before, into another pool')).toBeVisible();
  await page.reload();
  await order('first');
  await expect(page.getByRole('list', { name: 'States' })).toBeVisible();
  const { bootstraps } = await call<{ bootstraps: { nodes: { id: string }[] } }>(
    'query($t: ID!) { bootstraps(tenantId: $t) { nodes { id } } }',
    { t: once },
  );
  expect(bootstraps.nodes).toHaveLength(1);
});

test('nothing of the last tenant or pool is shown as that of the next', async ({ page }, { workerIndex }) => {
  const [mine, other] = [`mine-${workerIndex}`, `other-${workerIndex}`];
  const from = await connect(mine, 'cloud');
  await connect(other, 'theirs');
  await pool(mine, 'first');
  await pool(mine, 'second');
  const token = await tokenOf(mine, 'both', 'tenant-admin');
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: `service:${mine}/both`, role: 'provider-viewer', object: `compute-tenant/${other}` },
  });
  let slow = '';
  let release = () => {};
  await page.route('**/graphql', async (route) => {
    if (slow !== '' && route.request().postData()?.includes(slow)) await new Promise<void>((resolve) => (release = resolve));
    return route.fallback();
  });
  await signIn(page, `/t/${mine}/bootstraps/new?account=${from}&offer=any`, token);
  const choose = async (into: string) => {
    await page.getByRole('combobox', { name: 'Pool' }).click();
    await page.getByRole('option', { name: into }).click();
  };
  await choose('first');
  await expect(page.getByRole('heading', { name: 'What must hold' })).toBeVisible();
  slow = 'query Plan(';
  await choose('second');
  await expect(page.getByLabel('Loading')).toBeVisible();
  await expect(page.getByRole('heading', { name: 'What must hold' })).toHaveCount(0);
  slow = '';
  release();
  await expect(page.getByRole('heading', { name: 'What must hold' })).toBeVisible();
  slow = 'query ShellViewer';
  await page.getByRole('button', { name: /^Tenant / }).click();
  await page.getByRole('menuitem', { name: other }).click();
  await expect(page.getByLabel('Loading')).toBeVisible();
  await expect(page.getByRole('link', { name: 'Audit', exact: true })).toHaveCount(0);
  slow = '';
  release();
  await expect(page.getByRole('link', { name: 'theirs', exact: true })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Connect an account' })).toHaveCount(0);
});

test('what comes after the first hundred is there too', async ({ page }, { workerIndex }) => {
  const many = `many-${workerIndex}`;
  await connect(many, 'aaa');
  const named = async (i: number) => {
    const name = `n${String(i).padStart(3, '0')}`;
    await pool(many, name);
    const data = await call<{ createProviderAccount: { providerAccount: { id: string } } }>(
      'mutation($in: CreateProviderAccountInput!) { createProviderAccount(input: $in) { providerAccount { id } } }',
      { in: { tenantId: many, provider: 'sim', name, config: { apiToken: 'secret://aaa' } } },
    );
    return data.createProviderAccount.providerAccount.id;
  };
  let last = '';
  for (let i = 1; i <= 101; i++) last = await named(i);
  await signIn(page, `/t/${many}/accounts/${last}`);
  await page.getByRole('link', { name: 'See its offers' }).click();
  await expect(page.getByRole('table', { name: 'Offers' })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
  await page.getByRole('table', { name: 'Offers' }).getByRole('row').nth(1).getByRole('button').click();
  await expect(page.getByRole('dialog').getByText('n101', { exact: true })).toBeVisible();
  await page.getByRole('dialog').getByRole('link', { name: 'Bootstrap one' }).click();
  await page.getByRole('combobox', { name: 'Pool' }).fill('n101');
  await page.getByRole('option', { name: 'n101' }).click();
  await expect(page.getByRole('heading', { name: 'What must hold' })).toBeVisible();

  await page.goto(`/t/${many}/accounts`);
  const first = page.getByRole('link', { name: 'aaa', exact: true });
  const later = page.getByRole('link', { name: 'n060', exact: true });
  await expect(first).toBeVisible();
  await page.getByRole('button', { name: 'More' }).click();
  await expect(later).toBeVisible();
  await page.reload();
  await expect(later).toBeVisible();
  await later.click();
  await expect(page.getByRole('heading', { level: 1, name: 'n060' })).toBeVisible();
  await page.goBack();
  await expect(later).toBeVisible();
  await page.getByRole('button', { name: 'Back' }).click();
  await expect(first).toBeVisible();
  await page.goForward();
  await expect(later).toBeVisible();
});

test('a secret of the same name is replaced only by who says so', async ({ page }) => {
  await signIn(page, `/t/${tenant}/secrets`);
  await page.getByRole('button', { name: 'Write a secret' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('uncertain');
  await dialog.getByLabel('Value', { exact: false }).first().fill('another-project');
  await expect(dialog.getByRole('button', { name: 'Replace', exact: true })).toBeDisabled();
  await accessible(page);
  await dialog.getByRole('checkbox', { name: 'Replace the value of uncertain' }).check();
  await dialog.getByRole('button', { name: 'Replace', exact: true }).click();
  await expect(page.getByText('uncertain is written.')).toBeVisible();
});

test('an account that the address names wrongly is an error, and a filter beyond its bounds too', async ({ page }) => {
  await signIn(page, `/t/${tenant}/offers?account=pacc_gone&minVcpu=2000`);
  await expect(page.getByRole('alert')).toContainText('pacc_gone');
  await expect(page.getByText('Up to 1024')).toBeVisible();
  await expect(page.getByRole('table', { name: 'Offers' })).toHaveCount(0);
});

test('a session ends with its token where a tenant is chosen too', async ({ page }) => {
  const token = await tokenOf(tenant, 'briefly', 'provider-viewer', 60);
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: `service:${tenant}/briefly`, role: 'provider-viewer', object: `compute-tenant/another-${tenant}` },
  });
  await signIn(page, '/', token);
  await expect(page.getByRole('heading', { name: 'Choose a tenant' })).toBeVisible();
  await expect(page.getByText('Your session has ended')).toBeVisible({ timeout: 240_000 });
});

test('a session ends with its token, in every tab, and goes on where it was left', async ({ page, context }) => {
  const token = await tokenOf(tenant, 'brief', 'provider-viewer', 60);
  await signIn(page, `/t/${tenant}/bootstraps`, token);
  const second = await context.newPage();
  await second.goto(`/t/${tenant}/offers`); // gets the session from the first
  await expect(second.getByRole('heading', { level: 1, name: 'Offers' })).toBeVisible();
  for (const tab of [page, second]) {
    await expect(tab.getByText('Your session has ended')).toBeVisible({ timeout: 240_000 });
  }
  expect(await page.evaluate(() => JSON.stringify([sessionStorage, localStorage]))).not.toContain('bct_');
  await page.getByLabel('Token', { exact: true }).fill(setting('CONSOLE_TOKEN'));
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  for (const [tab, title] of [
    [page, 'Bootstraps'],
    [second, 'Offers'],
  ] as const) {
    await expect(tab.getByRole('heading', { level: 1, name: title })).toBeVisible();
  }
});

test('three tabs follow one bootstrap', async ({ page, context }) => {
  await hold();
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/bootstraps`);
  const second = await context.newPage();
  await second.goto(`/t/${tenant}/bootstraps/${id}`);
  await expect(second.getByRole('list', { name: 'States' })).toBeVisible();
  const third = await context.newPage();
  await third.goto(`/t/${tenant}/accounts/${account}`);
  await expect(third.getByRole('row', { name: new RegExp(id.slice(-8)) })).not.toContainText('Joined');
  await expect(page.getByRole('row', { name: new RegExp(id.slice(-8)) })).not.toContainText('Joined');
  await faults();
  await expect(second.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });
  for (const tab of [page, third]) {
    await expect(tab.getByRole('row', { name: new RegExp(id.slice(-8)) })).toContainText('Joined');
  }
});

test('one account fails beside others that answer', async ({ page }, { workerIndex }) => {
  const several = `several-${workerIndex}`;
  await connect(several, 'good');
  await call('mutation($in: CreateProviderAccountInput!) { createProviderAccount(input: $in) { replayed } }', {
    in: { tenantId: several, provider: 'sim', name: 'bad', config: { apiToken: 'secret://nowhere' } },
  });
  await signIn(page, `/t/${several}/offers`);
  await expect(page.getByText('One account gave no offers')).toBeVisible();
  await expect(page.getByRole('table', { name: 'Offers' })).toBeVisible();
  await accessible(page);
});

test('a machine that the account has, with what is lost on it', async ({ page }) => {
  await signIn(page, `/t/${tenant}/accounts/${account}`);
  await page.getByRole('link', { name: 'Bootstrap existing-vps' }).click();
  await expect(page.getByText('What will be lost')).toBeVisible();
  await expect(page.getByText('Nothing is ordered')).toBeVisible();
  const start = page.getByRole('button', { name: 'Start the bootstrap' });
  await expect(start).toBeDisabled();
  await accessible(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  await accessible(page);
  await page.getByLabel('I know, and nobody needs it').check();
  await start.click();
  await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });
  await page.goto(`/t/${tenant}/accounts/${account}`);
  await expect(page.getByRole('row', { name: /^existing-vps/ })).toContainText('In use');
  await expect(page.getByRole('link', { name: 'Bootstrap existing-metal' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Bootstrap existing-vps' })).toHaveCount(0);
});

test('an account in use is not deleted, and says by what it is used', async ({ page }) => {
  await faults({ kind: 'never_ready', match: { method: 'POST', path: '/v1/machines' }, count: -1 });
  const id = await bootstrap(tenant, account, hosts);
  await signIn(page, `/t/${tenant}/accounts/${account}`);
  await page.getByRole('button', { name: 'Delete' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(dialog.getByText('In the way:')).toBeVisible();
  await dialog.getByRole('link', { name: id }).click();
  await expect(page).toHaveURL(`/t/${tenant}/bootstraps/${id}`);
  await call('mutation($in: CancelBootstrapInput!) { cancelBootstrap(input: $in) { bootstrap { id } } }', {
    in: { tenantId: tenant, bootstrapId: id },
  });
});

// The last, as the server looks for the order until the provider's lists may not lag any more: 45 s, of which the others use most.
test('a claim that a person resolves', async ({ page }) => {
  await signIn(page, `/t/${tenant}/bootstraps`);
  await expect(page.getByText('An order needs a person')).toBeVisible({ timeout: 240_000 }); // whether or not it was there before
  await expect(page.getByRole('row', { name: new RegExp(lost.slice(-8)) })).toContainText('Needs you');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('link', { name: `…${lost.slice(-8)}` }).click();
  await expect(page.getByText('Nobody knows whether the order took effect')).toBeVisible({ timeout: 240_000 });
  for (const evidence of ['Operation id at the provider', 'Sent', 'What was ordered', 'What the provider said last']) {
    await expect(page.getByText(evidence, { exact: true })).toBeVisible();
  }
  const dialog = page.getByRole('dialog');
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    await accessible(page);
    await page.getByRole('button', { name: 'Say what became of it' }).click();
    await expect(dialog.getByLabel(/this machine: existing-vps/)).toBeVisible();
    await accessible(page);
    if (colorScheme === 'dark') await dialog.getByRole('button', { name: 'Back' }).click();
  }
  await dialog.getByLabel('nothing', { exact: true }).check();
  await dialog.getByRole('button', { name: 'Go on from there' }).click();
  await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });
});
