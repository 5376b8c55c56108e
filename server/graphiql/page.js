// Starts GraphiQL against this server. The token is what the headers editor holds: it goes into the header of requests and into
// the connection_init payload of subscriptions. A link may bring it along, as /graphiql/#token=...: the fragment stays in the
// browser, and is taken out of the address bar at once. From the console, which opens this page, it comes with the tab's storage, and
// goes when the console's session ends.
'use strict';

const httpURL = '/graphql';
const socketURL = location.origin.replace(/^http/, 'ws') + httpURL;

async function* subscribe(params, headers) {
  const client = graphqlWs.createClient({
    url: socketURL,
    connectionParams: { authorization: headers.Authorization || headers.authorization || '' },
  });
  try {
    yield* client.iterate(params);
  } finally {
    client.dispose();
  }
}

async function post(params, headers) {
  const response = await fetch(httpURL, {
    method: 'POST',
    headers: { Accept: 'application/graphql-response+json', 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(params),
  });
  return response.json();
}

function isSubscription(params, options) {
  const operations = (options.documentAST ? options.documentAST.definitions : []).filter((d) => d.kind === 'OperationDefinition');
  const chosen = operations.find((d) => !params.operationName || (d.name && d.name.value === params.operationName));
  return chosen !== undefined && chosen.operation === 'subscription';
}

function fetcher(params, options = {}) {
  const headers = options.headers || {};
  return isSubscription(params, options) ? subscribe(params, headers) : post(params, headers);
}

const token = new URLSearchParams(location.hash.slice(1)).get('token') || sessionStorage.getItem('compute-token') || '';
if (location.hash) history.replaceState(null, '', location.pathname);
if (token) {
  new BroadcastChannel('compute-session').onmessage = ({ data }) => {
    if (data.kind !== 'end' || data.token !== token) return;
    sessionStorage.removeItem('compute-token');
    location.reload(); // without the token, which the headers editor and open streams hold too
  };
}
const headers = JSON.stringify({ Authorization: `Bearer ${token}` }, null, 2);

const start = `# Put your token into the Headers tab below,
# then run this with Ctrl-Enter.
{
  viewer {
    subject
    groups
  }
}
`;

ReactDOM.createRoot(document.getElementById('graphiql')).render(
  React.createElement(GraphiQL, {
    fetcher,
    defaultQuery: start,
    defaultHeaders: headers,
    headers: token ? headers : undefined,
    defaultEditorToolsVisibility: 'headers',
    shouldPersistHeaders: false,
  }),
);
