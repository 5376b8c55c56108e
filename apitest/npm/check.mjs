// What the scripts for the two subscription clients share.
import assert from 'node:assert/strict';
import { buildClientSchema, getIntrospectionQuery } from 'graphql';

export const [url, token, mode] = process.argv.slice(2);

export const watch = (tenant, count) =>
  `subscription { bootstrapStatusChanged(tenantId: "${tenant}"${count === undefined ? '' : `, after: "${count}"`}) { cursor } }`;

// collect runs one operation to its end.
export async function collect(client, query) {
  const results = [];
  for await (const result of client.iterate({ query })) results.push(result);
  return results;
}

export const cursors = (results) => results.map((r) => r.data.bootstrapStatusChanged.cursor);

// happy is what both clients must see alike.
export async function happy(client) {
  assert.equal((await collect(client, '{ viewer { subject } }'))[0].data.viewer.subject, 'user:alice');
  assert.deepEqual(cursors(await collect(client, watch('t', 3))), ['0', '1', '2']);
  const many = await Promise.all(Array.from({ length: 10 }, (_, i) => collect(client, watch('t', i))));
  many.forEach((results, i) => assert.equal(results.length, i));

  const [introspected] = await collect(client, getIntrospectionQuery({ inputValueDeprecation: true }));
  assert.ok(buildClientSchema(introspected.data).getSubscriptionType());

  // An iteration that the client ends early: the server's side of it ends too, which the Go test looks at.
  for await (const result of client.iterate({ query: watch('t') })) {
    assert.equal(result.data.bootstrapStatusChanged.cursor, '0');
    break;
  }
}
