// What administrators do: roles, pools, what is left over, and the log of it all.

import { accessible, bootstrap, call, connect, expect, faults, pool, signIn, statusOf, test, tokenOf, writeSecret } from './rig';

let tenant = '';

test.beforeAll(async ({}, { workerIndex }) => {
  tenant = `manage-${workerIndex}`;
  await faults();
});

test('a role is defined, granted and changed, and stays while somebody has it', async ({ page }) => {
  await signIn(page, `/t/${tenant}/access`);
  await page.getByRole('tab', { name: 'Roles' }).click();
  await page.getByRole('button', { name: 'Define a role' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Auditor');
  await dialog.getByLabel('read the audit log').check();
  await dialog.getByRole('button', { name: 'Define' }).click();
  await expect(dialog.getByText('must match')).toBeVisible();
  await accessible(page);
  await dialog.getByLabel('Name').fill('auditor');
  await dialog.getByRole('button', { name: 'Define' }).click();
  const row = page.getByRole('row', { name: /^auditor/ });
  await expect(row).toContainText('read the audit log');
  await page.reload();
  await expect(row).toContainText('read the audit log'); // still that tab

  await page.getByRole('tab', { name: 'Bindings' }).click();
  await page.getByRole('button', { name: 'Grant a role' }).click();
  await dialog.getByLabel('Who').fill('user:eve');
  await dialog.getByRole('combobox', { name: 'Role' }).click();
  await page.getByRole('option', { name: 'auditor' }).click();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Grant' }).click();
  await expect(page.getByRole('row', { name: /user:eve/ })).toContainText('auditor');

  await page.getByRole('tab', { name: 'Roles' }).click();
  await page.getByRole('button', { name: 'Change auditor' }).click();
  await dialog.getByLabel('see pools and hosts').check();
  await dialog.getByRole('button', { name: 'Change' }).click();
  await expect(row).toContainText('see pools and hosts; read the audit log');
  await page.getByRole('button', { name: 'Delete auditor' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(dialog.getByText('In the way:')).toBeVisible();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Back' }).click();

  await page.getByRole('tab', { name: 'Bindings' }).click();
  await page.getByRole('button', { name: 'Remove auditor of user:eve' }).click();
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await expect(page.getByRole('row', { name: /user:eve/ })).toHaveCount(0);
  await page.getByRole('tab', { name: 'Roles' }).click();
  await page.getByRole('button', { name: 'Delete auditor' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(row).toHaveCount(0);
});

test('who has no right on the fleet defines no role', async ({ page }) => {
  await signIn(page, `/t/${tenant}/access`, await tokenOf(tenant, 'boss', 'tenant-admin'));
  await page.getByRole('tab', { name: 'Roles' }).click();
  await expect(page.getByText('Who may grant roles on the fleet defines others.')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Define a role' })).toHaveCount(0);
});

test('a token is made, shown once and revoked', async ({ page }) => {
  await signIn(page, `/t/${tenant}/access`);
  await page.getByRole('tab', { name: 'API tokens' }).click();
  await page.getByRole('button', { name: 'Create a token' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name of the service').fill('robot');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await expect(dialog.getByText(/^bct_/)).toBeVisible();
  await accessible(page);
  await dialog.getByRole('button', { name: 'I have it' }).click();
  await expect(page.getByText(/bct_/)).toHaveCount(0);
  await page.getByRole('button', { name: 'Revoke robot' }).click();
  await dialog.getByRole('button', { name: 'Revoke' }).click();
  await expect(page.getByRole('row', { name: /robot/ })).toContainText('Revoked');
});

test('who works for two tenants switches between them', async ({ page }) => {
  const other = `other-${tenant}`;
  const token = await tokenOf(tenant, 'both', 'tenant-admin');
  await call('mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { subject } } }', {
    in: { subject: `service:${tenant}/both`, role: 'provider-viewer', object: `compute-tenant/${other}` },
  });
  await signIn(page, '/', token);
  await page.getByRole('link', { name: tenant, exact: true }).click();
  await expect(page.getByRole('link', { name: 'Audit' })).toBeVisible();
  await page.getByRole('button', { name: `Tenant ${tenant}, switch` }).click();
  await page.getByRole('menuitem', { name: other }).click();
  await expect(page).toHaveURL(new RegExp(`/t/${other}/`));
  await expect(page.getByRole('button', { name: `Tenant ${other}, switch` })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Audit' })).toHaveCount(0); // other rights there
});

test('a secret is written, replaced and deleted, and never shown', async ({ page }) => {
  await signIn(page, `/t/${tenant}/secrets`);
  const dialog = page.getByRole('dialog');
  for (const [button, action] of [
    ['Write a secret', 'Write'],
    ['Replace mine', 'Write'],
  ] as const) {
    await page.getByRole('button', { name: button }).click();
    if (button === 'Write a secret') await dialog.getByLabel('Name').fill('mine');
    await dialog.getByLabel('Value').fill(`hidden by ${button}`);
    await dialog.getByRole('button', { name: action, exact: true }).click();
    await expect(dialog).toHaveCount(0);
    await expect(page.getByText('secret://mine')).toBeVisible();
    await expect(page.getByText('hidden')).toHaveCount(0);
  }
  await page.getByRole('button', { name: 'Delete mine' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByText('secret://mine')).toHaveCount(0);
});

test('a list that was on its way while it changed is asked for again', async ({ page }) => {
  await writeSecret(tenant, 'stays', 'one');
  await writeSecret(tenant, 'goes', 'two');
  let late = false;
  let release = () => {};
  await page.route('**/graphql', async (route) => {
    const body = route.request().postDataJSON() as { operationName?: string };
    if (!late || body.operationName !== 'Secrets') return route.fallback();
    late = false;
    const response = await route.fetch(); // of before the secret goes
    await new Promise<void>((resolve) => (release = resolve));
    return route.fulfill({ response });
  });
  await signIn(page, `/t/${tenant}/secrets`);
  const gone = page.getByText('secret://goes');
  await expect(gone).toBeVisible();
  await page.getByRole('link', { name: 'Settings' }).click();
  await expect(page.getByText('Server', { exact: true })).toBeVisible();
  late = true;
  await page.getByRole('link', { name: 'Secrets' }).click();
  await page.getByRole('button', { name: 'Delete goes' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByText('goes is deleted.')).toBeVisible();
  release();
  await expect(gone).toHaveCount(0);
  await expect(page.getByText('secret://stays')).toBeVisible();
});

test('an account is edited, and what the provider refuses is saved only on a word', async ({ page }) => {
  await writeSecret(tenant, 'bad', 'invalid');
  const account = await connect(tenant, 'edited');
  await signIn(page, `/t/${tenant}/accounts/${account}`);
  await page.getByRole('link', { name: 'Edit' }).click();
  const token = page.getByRole('combobox', { name: 'API token' });
  await expect(token).toHaveValue('secret://edited');
  await token.fill('secret://bad');
  await page.getByRole('button', { name: 'Check and save' }).click();
  await expect(page.getByText('Nothing is saved.')).toBeVisible();
  await page.getByRole('button', { name: 'Save anyway' }).click();
  await expect(page.getByText('The last check failed')).toBeVisible();
  await expect(page.getByLabel('Settings')).toContainText('secret://bad');
  await accessible(page);
  await page.getByRole('link', { name: 'Edit' }).click();
  await token.fill('secret://edited');
  await page.getByRole('button', { name: 'Check and save' }).click();
  await expect(page.getByText('Credentials taken')).toBeVisible();
});

test('pools of every class', async ({ page }) => {
  await connect(tenant, 'source');
  await signIn(page, `/t/${tenant}/pools`);
  const classes = [
    'Virtual servers that are hosts',
    'Dedicated servers that are hosts',
    'Virtual servers',
    'Dedicated servers',
    'Containers',
  ];
  for (const [index, label] of classes.entries()) {
    await page.getByRole('button', { name: 'Create a pool' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill(index === 0 ? 'No Name' : `pool-${index}`);
    await dialog.getByRole('combobox', { name: 'Made of' }).click();
    await page.getByRole('option', { name: label, exact: true }).click();
    await expect(dialog.getByRole('combobox', { name: 'What runs on its machines' })).toHaveValue(
      label.endsWith('hosts') ? 'The bcd agent' : 'Nothing of ours',
    );
    await dialog.getByRole('combobox', { name: 'Account that its machines come from' }).click();
    await page.getByRole('option', { name: 'source' }).click();
    await dialog.getByRole('button', { name: 'Create' }).click();
    if (index === 0) {
      await expect(dialog.getByText('must match')).toBeVisible();
      await accessible(page);
      await dialog.getByLabel('Name').fill('pool-0');
      await dialog.getByRole('button', { name: 'Create' }).click();
    }
    await expect(dialog).toHaveCount(0);
    const row = page.getByRole('row', { name: new RegExp(`^pool-${index}`) });
    await expect(row.getByRole('cell', { name: label, exact: true })).toBeVisible();
    await expect(row.getByRole('link', { name: 'source' })).toBeVisible();
  }
  await page.getByRole('link', { name: 'pool-4' }).click();
  await expect(page.getByText('This is none.')).toBeVisible();
  await page.getByRole('button', { name: 'Archive' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
  await expect(page.getByRole('button', { name: 'Archive' })).toHaveCount(0);
});

test('a machine that nothing owns any more is given back', async ({ page }) => {
  const account = await connect(tenant, 'leftovers');
  const hosts = await pool(tenant, 'leaving');
  const id = await bootstrap(tenant, account, hosts);
  await expect.poll(() => statusOf(tenant, id), { timeout: 240_000 }).toBe('JOINED');
  await signIn(page, `/t/${tenant}/pools/${hosts}`);
  await page.getByRole('button', { name: /^Remove / }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await expect(page.getByText('No host yet')).toBeVisible();

  await page.goto(`/t/${tenant}/orphans`);
  const release = page.getByRole('button', { name: /^Give back / });
  await expect(release).toBeVisible({ timeout: 240_000 }); // by itself, when the provider's lists may not lag any more
  await accessible(page);
  await release.click();
  const dialog = page.getByRole('dialog');
  const machine = await dialog.locator('.mono').innerText();
  await dialog.getByLabel('Machine id').fill('another');
  await expect(dialog.getByRole('button', { name: 'Give it back' })).toBeDisabled();
  await accessible(page);
  await dialog.getByLabel('Machine id').fill(machine);
  await dialog.getByRole('button', { name: 'Give it back' }).click();
  await expect(page.getByRole('row', { name: new RegExp(machine) })).toContainText('Given back', { timeout: 240_000 });
});

test('the audit log by its filters, which are in the address', async ({ page }) => {
  const viewer = await tokenOf(tenant, 'curious', 'provider-viewer');
  await expect(
    call(
      'mutation($in: PutSecretInput!) { putSecret(input: $in) { secret { name } } }',
      { in: { tenantId: tenant, name: 'x', value: 'y' } },
      viewer,
    ),
  ).rejects.toThrow('FORBIDDEN');
  await signIn(page, `/t/${tenant}/audit`);
  const rows = page.getByRole('region', { name: 'Audit events' }).getByRole('row');
  await page.getByLabel('Who').fill(`service:${tenant}/curious`);
  await page.getByRole('combobox', { name: 'Outcome' }).click();
  await page.getByRole('option', { name: 'Refused' }).click();
  await expect(rows).toHaveCount(2); // the head, and what was refused
  await expect(page).toHaveURL(/outcome=DENIED/);
  await page.reload();
  await expect(rows).toHaveCount(2);
  await rows.nth(1).getByRole('button').click();
  await expect(page.getByRole('dialog').getByText('Place in the chain')).toBeVisible();
  await accessible(page);
  await page.keyboard.press('Escape');
  await page.getByLabel('From').fill('2100-01-01T00:00');
  await expect(page.getByText('No such event')).toBeVisible();
  await page.getByRole('button', { name: 'Drop all filters' }).click();
  await page.getByLabel('What', { exact: true }).fill('grantRole');
  await expect(rows.nth(1)).toContainText('grantRole');
  await expect(rows.filter({ hasText: 'createApiToken' })).toHaveCount(0);
});
