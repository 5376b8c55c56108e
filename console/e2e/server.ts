// Starts what the tests look at: the whole product, on free ports and with a state of its own, and an issuer of sign-ins.

import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

/** A port that nobody gets by chance before it is used: outside of those that the kernel gives out. */
function freePort(): Promise<number> {
  const port = 15_000 + Math.floor(Math.random() * 15_000);
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(freePort()));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(port)));
  });
}

/** Starts a program, and gives it with the line of its output that says it is ready. */
function start(program: string, args: string[], ready: string): Promise<{ child: ChildProcess; line: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const said: string[] = [];
    const hear = (line: string) => {
      said.push(line);
      if (line.startsWith(ready)) resolve({ child, line });
    };
    createInterface({ input: child.stdout }).on('line', hear);
    createInterface({ input: child.stderr }).on('line', hear);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`${program} ${args.join(' ')} ended with ${code}:\n${said.slice(-20).join('\n')}`)));
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
  const deadline = Date.now() + 240_000;
  for (;;) {
    const answer = await fetch(url).catch(() => null);
    if (answer) return;
    if (Date.now() > deadline) throw new Error(`nothing answers at ${url}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A running product: where it is, and the issuer that its config names, which nobody has started yet. */
export interface Product {
  url: string;
  token: string;
  cloud: string;
  issuer: string;
  stop: () => Promise<void>;
}

export async function startProduct(): Promise<Product> {
  const dir = await mkdtemp(join(tmpdir(), 'compute-console-'));
  const cloud = `127.0.0.1:${await freePort()}`;
  const issuer = `http://127.0.0.1:${await freePort()}`;
  const sim = spawn(
    '../bin/compute-api',
    ['sim', '--listen', cloud, '--dir', join(dir, 'sim'), '--agent', '../bin/bcd', '--delay', '1500ms'],
    { stdio: 'ignore' },
  );
  await waitFor(`http://${cloud}/v1/offers`);
  const config = join(dir, 'config.yaml');
  await writeFile(
    config,
    `listen: 127.0.0.1:0
stateDir: ${join(dir, 'data')}
auth: {oidc: {issuer: "${issuer}", audience: console, leeway: 1s, consoleClientID: console}}
agent: {listen: "127.0.0.1:0"}
providers: [{name: sim, endpoint: "http://${cloud}"}, {name: ssh, allowLoopback: true}]
bootstrap: {keepFailed: 1h, sweepEvery: 2s}
`,
  );
  const { child, line } = await start('../bin/compute-api', ['dev', '--config', config], 'ready ');
  const told = Object.fromEntries(
    line
      .split(' ')
      .slice(1)
      .map((pair) => pair.split('=', 2)),
  ) as Record<string, string>;
  return {
    url: told.url ?? '',
    token: told.token ?? '',
    cloud: `http://${cloud}`,
    issuer,
    stop: async () => {
      await end(child);
      await end(sim);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Starts the OpenID Connect provider that the product names, whose tokens last for so long. Gives what ends it. */
export async function startIssuer(product: Product, life: string): Promise<() => Promise<void>> {
  const dir = await mkdtemp(join(tmpdir(), 'compute-issuer-'));
  const program = join(dir, 'provider');
  await promisify(execFile)('go', ['build', '-o', program, '.'], { cwd: '../apitest/identity/provider' });
  const { child } = await start(
    program,
    ['--listen', new URL(product.issuer).host, '--console', `${product.url}/sign-in/callback`, '--life', life],
    'ready ',
  );
  return async () => {
    await end(child);
    await rm(dir, { recursive: true, force: true });
  };
}
