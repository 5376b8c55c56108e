// Takes a picture of each page, in both themes and at the width of a phone.

import { atRest, bootstrap, connect, expect, faults, pool, signIn, test, tokenOf } from '../e2e/rig';

const tenant = 'acme';

test('pictures', async ({ page }) => {
  test.setTimeout(300_000);
  await faults();
  const account = await connect(tenant, 'fra-production');
  await connect(tenant, 'staging');
  const hosts = await pool(tenant, 'web-hosts');
  const joined = await bootstrap(tenant, account, hosts);
  await tokenOf(tenant, 'ci', 'provider-manager');
  await page.goto('/sign-in');
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await page.screenshot({ path: 'screenshots/sign-in-light.png' });
  await signIn(page, `/t/${tenant}/bootstraps/${joined}`);
  await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });

  await faults({ kind: 'install_fails', match: { method: 'POST', path: '/v1/machines/' }, count: -1 });
  const failed = await bootstrap(tenant, account, hosts);
  await page.goto(`/t/${tenant}/bootstraps/${failed}`);
  await expect(page.getByText('It failed')).toBeVisible({ timeout: 240_000 });
  await faults({ kind: 'install_hangs', match: { method: 'POST', path: '/v1/machines/' }, count: -1 });
  const running = await bootstrap(tenant, account, hosts);
  await page.goto(`/t/${tenant}/bootstraps/${running}`);
  await expect(page.locator('[aria-current=step]')).toContainText('Installing', { timeout: 240_000 });

  await page.goto(`/t/${tenant}/offers`);
  await expect(page.getByRole('table', { name: 'Offers' })).toBeVisible();
  await page.getByRole('table', { name: 'Offers' }).getByRole('row').nth(1).getByRole('button').click();
  const plan = (await page.getByRole('link', { name: 'Bootstrap one' }).getAttribute('href')) ?? '';

  const pages: Record<string, string> = {
    accounts: '/accounts',
    account: `/accounts/${account}`,
    connect: '/accounts/new',
    offers: '/offers',
    plan: plan.replace(`/t/${tenant}`, ''),
    bootstraps: '/bootstraps',
    'bootstrap-joined': `/bootstraps/${joined}`,
    'bootstrap-failed': `/bootstraps/${failed}`,
    'bootstrap-running': `/bootstraps/${running}`,
    pools: '/pools',
    pool: `/pools/${hosts}`,
    access: '/access',
    audit: '/audit',
    secrets: '/secrets',
    orphans: '/orphans',
    settings: '/settings',
  };
  for (const [look, scheme, width] of [
    ['light', 'light', 1280],
    ['dark', 'dark', 1280],
    ['phone', 'light', 390],
  ] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height: 860 });
    for (const [name, path] of Object.entries(pages)) {
      await page.goto(`/t/${tenant}${path}`);
      await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
      await expect(page.getByLabel('Loading')).toHaveCount(0);
      if (name === 'connect') {
        await page.getByRole('combobox', { name: 'Provider' }).click();
        await page.getByRole('option', { name: 'Simulated cloud' }).click();
        await expect(page.getByRole('combobox', { name: 'API token' })).toBeVisible();
      }
      if (name === 'plan') await expect(page.getByRole('button', { name: 'Order and start' })).toBeVisible();
      await expect(page.locator('[data-loading]')).toHaveCount(0);
      if (name === 'offers') await expect(page.locator('.recharts-scatter-symbol').first()).toBeVisible();
      await atRest(page);
      await page.screenshot({ path: `screenshots/${name}-${look}.png`, fullPage: look === 'phone' });
    }
  }
});
