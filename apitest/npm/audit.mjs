// Runs the audits of the GraphQL-over-HTTP specification. Usage: audit.mjs URL TOKEN
import { auditServer } from 'graphql-http';

const [url, token] = process.argv.slice(2);
const results = await auditServer({
  url,
  fetchFn: (input, init = {}) => fetch(input, { ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } }),
});
const failed = results.filter((r) => r.status !== 'ok');
for (const r of failed) console.log(`${r.status} ${r.id} ${r.name}: ${r.reason}`);
console.log(`${results.length - failed.length} of ${results.length} ok`);
process.exit(failed.length === 0 ? 0 : 1);
