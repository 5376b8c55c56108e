// graphql-ws against the server. Usage: websocket.mjs URL TOKEN happy|refused|expired|drain
import assert from 'node:assert/strict';
import { createClient } from 'graphql-ws';
import WebSocket from 'ws';
import { collect, cursors, happy, mode, token, url, watch } from './check.mjs';

const closed = [];
const connect = (authorization, options = {}) =>
  createClient({
    url: url.replace(/^http/, 'ws'),
    webSocketImpl: WebSocket,
    connectionParams: typeof authorization === 'function' ? authorization : { authorization },
    retryAttempts: 0,
    on: { closed: (event) => closed.push(event.code) },
    ...options,
  });

// Each mode is one behaviour of the server as the client meets it.
const modes = {
  async happy() {
    const client = connect(`Bearer ${token}`);
    await happy(client);
    await assert.rejects(collect(client, '{ nope }'), (errors) => errors[0].extensions.code === 'INVALID_INPUT');
    await assert.rejects(collect(client, watch('denied')), (errors) => errors[0].extensions.code === 'FORBIDDEN');
    await assert.rejects(collect(client, watch('lagging', 2)), (errors) => errors[0].extensions.code === 'RATE_LIMITED');
    await client.dispose();
  },

  async refused() {
    const client = connect('Bearer nobody');
    await assert.rejects(collect(client, '{ viewer { subject } }'), (event) => event.code === 4403);
  },

  // The client's first credential ends while it listens: it connects again with the next one, by itself.
  async expired() {
    const credentials = ['short-token', token];
    const client = connect(() => ({ authorization: `Bearer ${credentials.shift()}` }), { retryAttempts: 3, retryWait: async () => {} });
    const got = [];
    for await (const result of client.iterate({ query: watch('t') })) {
      got.push(result);
      if (got.length === 2) break;
    }
    assert.deepEqual(cursors(got), ['0', '0']);
    assert.deepEqual(closed, [4403]);
    await client.dispose();
  },

  // The server goes away: its close code is one after which the client tries again.
  async drain() {
    let retried = 0;
    const client = connect(`Bearer ${token}`, { retryAttempts: 1, retryWait: async () => void retried++ });
    await assert.rejects(async () => {
      for await (const result of client.iterate({ query: watch('t') })) console.log('ready', cursors([result]));
    });
    assert.equal(closed[0], 1001);
    assert.equal(retried, 1);
  },
};

await modes[mode]();
console.log('ok');
process.exit(0);
