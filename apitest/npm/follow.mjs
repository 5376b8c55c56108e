// Follows bootstraps until the stream completes, and prints each message as a line of JSON. A connection that is lost is made again, and
// the stream goes on from the last cursor. Usage: follow.mjs graphql-ws|graphql-sse URL TOKEN VARIABLES
import { createClient as createSSEClient } from 'graphql-sse';
import { createClient as createWebSocketClient } from 'graphql-ws';
import WebSocket from 'ws';

const query = `subscription ($tenantId: ID!, $accountId: ID, $bootstrapId: ID, $after: String) {
  bootstrapStatusChanged(tenantId: $tenantId, accountId: $accountId, bootstrapId: $bootstrapId, after: $after) {
    cursor from to at bootstrap { id }
  }
}`;

const [transport, url, token, text] = process.argv.slice(2);
const authorization = `Bearer ${token}`;
const connect = {
  'graphql-ws': () =>
    createWebSocketClient({ url: url.replace(/^http/, 'ws'), webSocketImpl: WebSocket, connectionParams: { authorization }, retryAttempts: 0 }),
  'graphql-sse': () => createSSEClient({ url, headers: { authorization }, retryAttempts: 0 }),
};

const client = connect[transport]();
const variables = JSON.parse(text);

function refused(errors) {
  console.error(JSON.stringify(errors));
  process.exit(1);
}

async function follow() {
  for await (const { data, errors } of client.iterate({ query, variables })) {
    if (errors) refused(errors);
    const { cursor, from, to, at, bootstrap } = data.bootstrapStatusChanged;
    variables.after = cursor;
    console.log(JSON.stringify({ cursor, id: bootstrap.id, from, to, at }));
  }
}

for (let complete = false; !complete; ) {
  try {
    await follow();
    complete = true;
  } catch (err) {
    // An array is the server's answer to the operation, a close code 44xx its answer to the connection; all else is the network's.
    if (Array.isArray(err) || (err.code >= 4400 && err.code < 4500)) refused(err);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
process.exit(0);
