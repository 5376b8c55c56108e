// graphql-ws, and for what it would never send the ws below it, against the server. Usage: websocket.mjs URL TOKEN happy|refused|expired|drain|protocol
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

// frames sends frames as they are, and gives what came back and the close code; 0 when the connection stays open.
const frames = (sent, protocols = 'graphql-transport-ws') =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url.replace(/^http/, 'ws'), protocols);
    const got = [];
    socket.on('open', () => sent.forEach((frame) => socket.send(frame)));
    socket.on('message', (data) => {
      got.push(JSON.parse(data));
      if (got.length >= sent.length && got.some((message) => message.type === 'pong')) {
        resolve({ got, code: 0 });
        socket.terminate();
      }
    });
    socket.on('close', (code) => resolve({ got, code }));
    socket.on('error', reject);
  });

const init = JSON.stringify({ type: 'connection_init', payload: { authorization: `Bearer ${token}` } });
const subscribe = (query) => JSON.stringify({ id: '1', type: 'subscribe', payload: { query } });
const ping = JSON.stringify({ type: 'ping' });

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

  // Every breach of the protocol has its close code, and what is no breach closes nothing.
  async protocol() {
    const endless = watch('t');
    const cases = {
      'no connection_init': [4408, []],
      'a credential that is not good': [4403, [init.replace(token, 'nobody')]],
      'an operation before connection_init': [4401, [subscribe('{ viewer { subject } }')]],
      'a second connection_init': [4429, [init, init]],
      'no JSON': [4400, ['{']],
      'an unknown message': [4400, [init, '{"type":"unknown"}']],
      'a binary frame': [4400, [Buffer.from(init)]],
      'a payload that is no object': [4400, ['{"type":"connection_init","payload":"Bearer"}']],
      'an id twice': [4409, [init, subscribe(endless), subscribe(endless)]],
      'a message over the limit': [1009, [init, subscribe(`{ viewer { subject } } #${' '.repeat(300_000)}`)]],
      'no subprotocol': [4406, [init], []],
      'a ping before connection_init': [0, [ping]],
      'a ping after an operation that failed': [0, [init, subscribe('{ nope }'), ping]],
    };
    await Promise.all(
      Object.entries(cases).map(async ([name, [code, sent, protocols]]) => {
        const ended = await frames(sent, protocols).catch((error) => ({ code: error.message, got: [] }));
        assert.equal(ended.code, code, name);
        assert(!ended.got.some((message) => message.type === 'complete'), `${name}: nothing completes after an error`);
      }),
    );
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
