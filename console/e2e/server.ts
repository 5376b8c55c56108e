// Starts what the tests look at: the whole product, on free ports and with a state of its own.

import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => (typeof address === 'object' && address ? resolve(address.port) : reject(new Error('no port'))));
    });
  });
}

/** Starts a program and gives it once a line of its output matches. */
function start(
  args: string[],
  env: Record<string, string>,
  ready: (line: string) => boolean,
): Promise<{ child: ChildProcess; line: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('../bin/compute-api', args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const said: string[] = [];
    const hear = (line: string) => {
      said.push(line);
      if (ready(line)) resolve({ child, line });
    };
    createInterface({ input: child.stdout }).on('line', hear);
    createInterface({ input: child.stderr }).on('line', hear);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`compute-api ${args.join(' ')} ended with ${code}:\n${said.slice(-20).join('\n')}`)));
  });
}

function end(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    if (child.exitCode !== null) resolve();
    else child.kill('SIGTERM');
  });
}

async function waitFor(url: string) {
  const deadline = Date.now() + 30_000;
  for (;;) {
    const answer = await fetch(url).catch(() => null);
    if (answer) return;
    if (Date.now() > deadline) throw new Error(`nothing answers at ${url}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export default async function setUp(): Promise<() => Promise<void>> {
  const dir = await mkdtemp(join(tmpdir(), 'compute-console-'));
  const port = await freePort();
  const cloud = `http://127.0.0.1:${port}`;
  const sim = spawn(
    '../bin/compute-api',
    ['sim', '--listen', `127.0.0.1:${port}`, '--dir', join(dir, 'sim'), '--agent', '../bin/bcd', '--delay', '1500ms'],
    {
      stdio: 'ignore',
    },
  );
  await waitFor(`${cloud}/v1/offers`);
  const config = join(dir, 'config.yaml');
  await writeFile(
    config,
    `listen: 127.0.0.1:0
stateDir: ${join(dir, 'data')}
agent: {listen: "127.0.0.1:0"}
providers: [{name: sim, endpoint: "${cloud}"}, {name: ssh, allowLoopback: true}]
bootstrap: {keepFailed: 1h}
`,
  );
  const { child, line } = await start(['dev', '--config', config], {}, (said) => said.startsWith('ready '));
  const told = Object.fromEntries(
    line
      .split(' ')
      .slice(1)
      .map((pair) => pair.split('=', 2)),
  ) as Record<string, string>;
  process.env.CONSOLE_URL = told.url;
  process.env.CONSOLE_TOKEN = told.token;
  process.env.CLOUD_URL = cloud;
  return async () => {
    await end(child);
    await end(sim);
    await rm(dir, { recursive: true, force: true });
  };
}
