import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: process.env.SHOTS ? 'shots' : 'e2e',
  outputDir: 'test-results',
  workers: 2, // each has a server and a simulated cloud, and tells it what to do wrong
  fullyParallel: false,
  retries: process.env.CI ? 1 : 0, // on a machine that tests much else; the list says which test was flaky
  // Deadlines, which only what hangs comes near to.
  timeout: 600_000,
  expect: { timeout: 120_000 },
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    actionTimeout: 120_000,
    launchOptions: { executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] },
    viewport: { width: 1280, height: 900 },
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    screenshot: 'only-on-failure',
    trace: process.env.TRACE ? 'on' : 'off', // it costs more than the tests
  },
});
