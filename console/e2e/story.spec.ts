// The main story: connect an account, see what it offers, turn one into a host.

import { accessible, expect, faults, test, writeSecret, pool, signIn } from './rig';

test('from an empty tenant to a host', async ({ page }, { workerIndex }) => {
  const tenant = `story-${workerIndex}`;
  await faults();
  await writeSecret(tenant, 'wrong', 'invalid');
  await pool(tenant, 'hosts');
  await signIn(page, `/t/${tenant}/accounts`);

  await test.step('connect an account, with a refused secret first', async () => {
    await expect(page.getByText('No account is connected yet')).toBeVisible();
    await accessible(page);
    await page.getByRole('link', { name: 'Connect an account' }).click();
    await page.getByRole('combobox', { name: 'Provider' }).click();
    await page.getByRole('option', { name: 'Simulated cloud' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('Not A Name');
    const token = page.getByRole('combobox', { name: 'API token' });
    await token.fill('secret://wrong');
    await page.getByRole('button', { name: 'Check and connect' }).click();
    await expect(page.getByText('Lower-case letters, digits', { exact: false })).toBeVisible(); // at the name's field
    await accessible(page);
    await page.getByRole('textbox', { name: 'Name' }).fill('first');
    await token.fill('no-reference');
    await page.getByRole('button', { name: 'Check and connect' }).click();
    await expect(page.locator('#root_apiToken-error')).toContainText('must hold a secret reference'); // the server's word, at its field
    await token.fill('secret://wrong');
    await page.getByRole('button', { name: 'Check and connect' }).click();
    await expect(page.getByText('The provider refused it')).toBeVisible();
    await expect(page.getByRole('button', { name: 'Connect anyway' })).toBeVisible();
    await accessible(page);
    await page.getByRole('button', { name: 'Write a secret' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('right');
    await dialog.getByLabel('Value').fill('a-project-of-its-own');
    await accessible(page);
    await dialog.getByRole('button', { name: 'Write', exact: true }).click();
    await expect(token).toHaveValue('secret://right');
    await page.getByRole('button', { name: 'Check and connect' }).click();
    await expect(page.getByRole('heading', { level: 1, name: 'first' })).toBeVisible();
    await expect(page.getByText('Credentials taken')).toBeVisible();
    await expect(page.getByRole('cell', { name: 'existing-vps', exact: true })).toBeVisible();
    await accessible(page);
  });

  await test.step('see its offers', async () => {
    await page.getByRole('link', { name: 'Offers', exact: true }).click();
    const table = page.getByRole('table', { name: 'Offers' });
    await expect(table).toBeVisible();
    await expect(page.getByTestId('plot').locator('svg').first()).toBeVisible();
    await accessible(page);
    await page.getByLabel('Min. GiB').fill('16');
    await page.getByRole('combobox', { name: 'Kind' }).click();
    await page.getByRole('option', { name: 'Virtual' }).click();
    await expect(page).toHaveURL(/minMemoryGiB=16/);
    await page.getByRole('checkbox', { name: 'In stock only' }).check();
    await table.getByRole('button', { name: 'Memory' }).click();
    await expect(table.getByRole('columnheader', { name: 'Memory' })).not.toHaveAttribute('aria-sort', 'none');
    await page.getByRole('button', { name: 'Reload' }).click();
    await expect(page.getByText('as the providers told just now')).toBeVisible();
    await page.getByRole('radiogroup', { name: 'What the price is plotted against' }).getByText('GPUs').click();
    await page.getByRole('radiogroup', { name: 'What the price is plotted against' }).getByText('Memory').click();
    await page.locator('.recharts-scatter-symbol').last().click();
    await expect(page.getByRole('dialog')).toBeVisible(); // a point opens its offer
    await page.keyboard.press('Escape');
    await table.getByRole('row').nth(1).getByRole('button').click();
    await page.getByRole('dialog').getByRole('link', { name: 'Bootstrap one' }).click();
  });

  await test.step('plan and start', async () => {
    await expect(page.getByRole('heading', { name: 'What must hold' })).toBeVisible();
    await expect(page.getByRole('img', { name: 'Does not hold' })).toHaveCount(0);
    await expect(page.getByText(/ an hour/)).toBeVisible(); // what it costs
    await accessible(page);
    await page.getByRole('button', { name: 'Order and start' }).click();
  });

  await test.step('watch it join, over a reload', async () => {
    await expect(page.getByRole('heading', { name: /^Bootstrap …/ })).toBeVisible();
    await accessible(page);
    await page.reload();
    await expect(page.getByText('The machine is a host', { exact: true })).toBeVisible({ timeout: 240_000 });
    const states = page.getByRole('list', { name: 'States' }).getByRole('listitem');
    await expect(states).toHaveText([/Claiming/, /Identifying/, /Preparing/, /Installing/, /Installed/, /Joined/]);
    await accessible(page);
    await page.getByRole('main').getByRole('link', { name: 'hosts' }).first().click();
    await expect(page.getByText('Heard')).toBeVisible();
    await accessible(page);
  });
});
