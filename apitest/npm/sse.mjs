// graphql-sse in distinct connections mode against the server. Usage: sse.mjs URL TOKEN happy|refused|drain
import assert from 'node:assert/strict';
import { createClient } from 'graphql-sse';
import { collect, cursors, happy, mode, token, url, watch } from './check.mjs';

const connect = (authorization, options = {}) => createClient({ url, headers: { authorization }, retryAttempts: 0, ...options });

const modes = {
  async happy() {
    const client = connect(`Bearer ${token}`);
    await happy(client);
    assert.equal((await collect(client, '{ nope }'))[0].errors[0].extensions.code, 'INVALID_INPUT');
    assert.equal((await collect(client, watch('denied')))[0].errors[0].extensions.code, 'FORBIDDEN');
    const lagging = await collect(client, watch('lagging', 2));
    assert.equal(lagging.length, 3);
    assert.equal(lagging[2].errors[0].extensions.code, 'RATE_LIMITED');
    client.dispose();
  },

  async refused() {
    await assert.rejects(collect(connect('Bearer nobody'), '{ viewer { subject } }'), (err) => err.response.status === 401);
  },

  // The server goes away: the stream ends without `complete`, and the client tries again.
  async drain() {
    let retried = 0;
    const client = connect(`Bearer ${token}`, { retryAttempts: 1, retry: async () => void retried++ });
    await assert.rejects(async () => {
      for await (const result of client.iterate({ query: watch('t') })) console.log('ready', cursors([result]));
    });
    assert.equal(retried, 1);
  },
};

await modes[mode]();
console.log('ok');
process.exit(0);
