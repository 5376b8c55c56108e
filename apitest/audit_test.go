package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/id"
	"better/compute/internal/problem"
)

// change is a mutation that succeeds in an auditWorld; with a path it is asked for over REST.
type change struct {
	mutation, path string
	input          map[string]any
}

// TestEveryChangeIsAudited makes every mutation of the schema, and every one of REST, and fails when there is one that it does not know.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	changes := w.changes()
	t.Run("none is left out", func(t *testing.T) {
		for _, name := range w.rootFields(t) {
			mutation, is := strings.CutPrefix(name, "Mutation.")
			if is && !slices.ContainsFunc(changes, func(c change) bool { return c.mutation == mutation }) {
				t.Errorf("%s is not made here", mutation)
			}
		}
	})
	t.Run("a change without its row is none", func(t *testing.T) {
		before := w.state(t)
		for cut, triggers := range cuts(w.tables(t)) {
			w.asOwner(t, triggers.set...)
			for _, c := range changes {
				if cut == allElse && c.mutation == "checkProviderConfig" {
					continue // there is nothing else
				}
				if got, _ := w.make(t, c, w.root); got != problem.Unavailable && got != problem.Internal {
					t.Errorf("%s: %s answers %q", cut, c, got)
				}
				if after := w.state(t); !maps.Equal(after, before) {
					t.Errorf("%s: something is left of %s: %v, was %v", cut, c, after, before)
				}
			}
			w.asOwner(t, triggers.unset...)
		}
	})
	t.Run("who is nobody leaves no row", func(t *testing.T) {
		before := w.state(t)
		for _, c := range changes {
			if got, _ := w.make(t, c, ""); got != problem.Unauthenticated {
				t.Errorf("%s answers %q", c, got)
			}
		}
		if after := w.state(t); !maps.Equal(after, before) {
			t.Errorf("%v, was %v", after, before)
		}
	})
	made := 0
	for _, round := range []string{"allowed", "replayed"} {
		t.Run(round, func(t *testing.T) {
			for _, c := range changes {
				code, request := w.make(t, c, w.root)
				rows := w.rows(t, request)
				if code != "" {
					if round == "allowed" {
						t.Errorf("%s answers %q", c, code)
					}
					if len(rows) != 0 {
						t.Errorf("%s failed with %q, and has the rows %v", c, code, rows)
					}
					continue
				}
				made++
				if len(rows) != 1 || !strings.HasPrefix(rows[0], "service:root "+w.rootToken+" "+c.mutation+" ") || round == "allowed" && !strings.HasSuffix(rows[0], " allowed") {
					t.Errorf("%s has the rows %v", c, rows)
				}
			}
		})
	}
	t.Logf("audit-mutations made=%d records=%d", made, w.count(t, "SELECT count(*) FROM audit_log WHERE actor = 'service:root' AND details ->> 'apiToken' IS NOT NULL AND outcome <> 'denied'"))
}

func (c change) String() string { return strings.TrimSpace(c.mutation + " " + c.path) }

// auditWorld has a caller who may everything, and something for every mutation to work on.
type auditWorld struct {
	*rightsWorld
	root, rootToken string // and the id of that
	ids             map[string]string
}

func newAuditWorld(t *testing.T) *auditWorld {
	t.Helper()
	d := newDeployment(t)
	w := &auditWorld{rightsWorld: &rightsWorld{tenant: "mine", db: d.db}, ids: map[string]string{}}
	d.caller("service:root", "fleet-admin compute-fleet")
	w.tokens = map[string]string{"stranger": d.caller("user:stranger", "provider-viewer compute-tenant/mine")}
	w.server = d.serve(t)
	w.root = w.apiToken(t, d)
	w.asOwner(t, w.things()...)
	return w
}

// apiToken gives the caller who may everything a token, whose id each of its rows must have.
func (w *auditWorld) apiToken(t *testing.T, d *deployment) string {
	t.Helper()
	out, err := d.command(t, "token", "create", "--service", "root")
	if err != nil {
		t.Fatal(err, out)
	}
	if err := w.db.NewRaw("SELECT id FROM api_tokens").Scan(t.Context(), &w.rootToken); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
}

// id gives what a name stands for in this test.
func (w *auditWorld) id(prefix, name string) string {
	if w.ids[name] == "" {
		w.ids[name] = id.New(prefix)
	}
	return w.ids[name]
}

// things are rows for the mutations to work on. The runs are due in a hundred years, so that no worker touches them first.
func (w *auditWorld) things() (statements []string) {
	add := func(format string, args ...any) { statements = append(statements, fmt.Sprintf(format, args...)) }
	for _, name := range []string{"updated", "deleted", "used", "checked", "rest-updated", "rest-deleted"} {
		add(`INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by)
			VALUES ('%s', 'mine', 'sim', '%s', '{"apiToken": "secret://sim"}', '')`, w.id("pacct", name), name)
	}
	for _, name := range []string{"pool", "archived"} {
		add(`INSERT INTO pools (id, tenant_id, name, class, agent) VALUES ('%s', 'mine', '%s', 'vps-host', 'bcd')`, w.id("pool", name), name)
	}
	for name, set := range map[string][2]string{
		"cancelled": {"status, machine_id", "'identifying', 'm1'"},
		"resolved":  {"status, offer_id, wait_reason, order_intent, order_attempt_at", "'claiming', 'o', 'CLAIM_UNCERTAIN', '{}', now()"},
		"retried":   {"status, machine_id, failure, cleanup", `'failed', 'm2', '{"reason": "CANCELLED", "message": "", "logTail": []}', 'none'`},
		"joined":    {"status, machine_id, host_id, joined_at", "'joined', 'm3', '" + w.id("host", "host") + "', now()"},
	} {
		add(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, operation_id, next_at, %s)
			VALUES ('%[2]s', 'mine', '%[3]s', '%[4]s', '', '%[2]s', now() + interval '100 years', %[5]s)`,
			set[0], w.id("boot", name), w.id("pacct", "used"), w.id("pool", "pool"), set[1])
	}
	add(`INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES ('%s', 'mine', '%s', '%s', '%s', 'm3')`,
		w.id("host", "host"), w.id("pool", "pool"), w.id("boot", "joined"), w.id("pacct", "used"))
	add(`INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id) VALUES ('%s', 'mine', '%s', 'not-ours', 'm6')`,
		w.id("orph", "orphan"), w.id("pacct", "used"))
	add(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('mine', 'old', 'k', '\x00')`)
	add(`INSERT INTO api_tokens (id, tenant_id, name, subject, token_hash, created_by) VALUES ('%s', 'mine', 'ci', 'service:ci', sha256(''), '')`,
		w.id("tok", "token"))
	add(`INSERT INTO roles (name, permissions, created_by, updated_by) VALUES ('old', '{compute:pools:read}', '', '')`)
	return statements
}

func (w *auditWorld) changes() []change {
	const tenant = "mine"
	in := func(more ...string) map[string]any {
		input := map[string]any{"tenantId": tenant}
		for i := 0; i < len(more); i += 2 {
			input[more[i]] = more[i+1]
		}
		return input
	}
	with := func(input map[string]any, name string, v any) map[string]any { input[name] = v; return input }
	config := map[string]any{"apiToken": "secret://other"}
	binding := map[string]any{"subject": "user:somebody", "role": "provider-viewer", "object": "compute-tenant/mine"}
	stranger := map[string]any{"subject": "user:stranger", "role": "provider-viewer", "object": "compute-tenant/mine"}
	return []change{
		{mutation: "createProviderAccount", input: with(in("provider", "sim", "name", "new", "idempotencyKey", "k"), "config", config)},
		{mutation: "updateProviderAccount", input: with(in("accountId", w.ids["updated"]), "config", config)},
		{mutation: "deleteProviderAccount", input: in("accountId", w.ids["deleted"])},
		{mutation: "createPool", input: with(with(in("name", "new"), "class", "VPS_HOST"), "agent", "BCD")},
		{mutation: "archivePool", input: in("poolId", w.ids["archived"])},
		{mutation: "removeHost", input: in("hostId", w.ids["host"])},
		{mutation: "putSecret", input: in("name", "new", "value", newSecret())},
		{mutation: "deleteSecret", input: in("name", "old")},
		{mutation: "grantRole", input: binding},
		{mutation: "revokeRole", input: stranger},
		{mutation: "createApiToken", input: in("name", "new")},
		{mutation: "revokeApiToken", input: in("tokenId", w.ids["token"])},
		{mutation: "defineRole", input: map[string]any{"name": "new", "permissions": []any{"POOLS_READ"}}},
		{mutation: "deleteRole", input: map[string]any{"name": "old"}},
		{mutation: "createProviderAccount", path: "create", input: with(in("provider", "sim", "name", "rest-new", "idempotencyKey", "r"), "config", config)},
		{mutation: "updateProviderAccount", path: "update", input: with(in("accountId", w.ids["rest-updated"]), "config", config)},
		{mutation: "deleteProviderAccount", path: "delete", input: in("accountId", w.ids["rest-deleted"])},
		{mutation: "checkProviderAccount", input: in("accountId", w.ids["checked"])},
		{mutation: "checkProviderConfig", input: with(in("provider", "sim"), "config", config)},
		{mutation: "bootstrapMachine", input: in("accountId", w.ids["used"], "poolId", w.ids["pool"], "machineId", "m4", "idempotencyKey", "k")},
		{mutation: "bootstrapMachine", path: "bootstrap", input: in("accountId", w.ids["used"], "poolId", w.ids["pool"], "machineId", "m5", "idempotencyKey", "r")},
		{mutation: "retryBootstrap", input: in("bootstrapId", w.ids["retried"], "idempotencyKey", "t")},
		{mutation: "releaseMachine", input: in("orphanId", w.ids["orphan"], "machineId", "m6")},
		{mutation: "cancelBootstrap", input: in("bootstrapId", w.ids["cancelled"])},
		{mutation: "resolveClaim", input: with(in("bootstrapId", w.ids["resolved"]), "nothingOrdered", true)},
	}
}

// make asks for the change, and gives the code of the answer and the id of the request.
func (w *auditWorld) make(t *testing.T, c change, token string) (problem.Code, string) {
	t.Helper()
	if c.path != "" {
		body, err := json.Marshal(c.input)
		if err != nil {
			t.Fatal(err)
		}
		a := w.server.send(t, http.MethodPost, restPath+c.path, token, typeJSON, body)
		return readREST(t, a).Code, a.header.Get("X-Request-Id")
	}
	document := fmt.Sprintf("mutation($input: %s%sInput!) { %s(input: $input) { __typename } }",
		strings.ToUpper(c.mutation[:1]), c.mutation[1:], c.mutation)
	body, err := json.Marshal(map[string]any{"query": document, "variables": map[string]any{"input": c.input}})
	if err != nil {
		t.Fatal(err)
	}
	a := w.server.send(t, http.MethodPost, graphqlPath, token, typeJSON, body)
	return readGraphQL(t, a).Code, a.header.Get("X-Request-Id")
}

// TestAuditEventsEndToEnd asks the server for what it has recorded, and the command for whether that is still what was recorded.
func TestAuditEventsEndToEnd(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	admin, stranger := d.caller("user:admin", "tenant-admin compute-tenant/mine"), d.caller("user:stranger")
	s := d.start(t)
	s.waitReady(t)
	pool := map[string]any{"tenantId": "mine", "name": "a", "class": "VPS_HOST", "agent": "BCD"}
	for token, want := range map[string]problem.Code{admin: "", stranger: problem.Forbidden, "": problem.Unauthenticated} {
		if out := s.graphql(t, "createPool", token, pool); out.Code != want {
			t.Fatalf("%+v", out)
		}
	}
	const document = `query($filter: AuditEventFilter, $first: Int, $after: String) {
		auditEvents(tenantId: "mine", filter: $filter, first: $first, after: $after) {
			edges { cursor node { id } } nodes { at tenantId actor action object outcome requestId details sequence hash } pageInfo { hasNextPage endCursor } } }`
	ask := func(variables map[string]any) (nodes []any, page any) {
		out := s.execute(t, admin, document, variables)
		if out.Code != "" {
			t.Fatalf("%+v", out)
		}
		nodes, _ = member(member(out.Data, "auditEvents"), "nodes").([]any)
		return nodes, member(member(out.Data, "auditEvents"), "pageInfo")
	}
	harness.Await(t, "the rows to be chained", func() bool {
		nodes, _ := ask(nil)
		return len(nodes) == 3 && // the binding of the configuration among them
			!slices.ContainsFunc(nodes, func(n any) bool { return member(n, "hash") == nil })
	})
	first, page := ask(map[string]any{"first": 1})
	second, end := ask(map[string]any{"first": 2, "after": member(page, "endCursor")})
	if len(first) != 1 || len(second) != 2 || member(page, "hasNextPage") != true || member(end, "hasNextPage") != false {
		t.Errorf("pages %v %v and %v %v", first, page, second, end)
	}
	nodes, _ := ask(map[string]any{"filter": map[string]any{"outcome": "DENIED", "since": "2020-01-01T00:00:00Z"}})
	if len(nodes) != 1 || member(nodes[0], "actor") != "user:stranger" || member(nodes[0], "action") != "compute:pools:manage" ||
		member(nodes[0], "object") != "compute-tenant/mine" || member(nodes[0], "tenantId") != "mine" {
		t.Errorf("the denial is %v", nodes)
	}
	for name, code := range map[string]problem.Code{"outcome": problem.InvalidInput, "until": problem.InvalidInput, "actor": problem.InvalidInput} {
		if out := s.execute(t, admin, document, map[string]any{"filter": map[string]any{name: ""}}); out.Code != code {
			t.Errorf("an empty %s: %+v", name, out)
		}
	}
	s.stop(t)
	heads := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(heads, s.Log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(s.Log.Text(), `"msg":"audit head"`); n < 1 {
		t.Errorf("the log has %d heads:\n%s", n, s.Log.Text())
	}
	if out, err := d.command(t, "audit", "verify", "--tenant", "mine", "--heads", heads); err != nil || !strings.Contains(out, "audit verify tenants=1 rows=3 unsealed=0 heads=") {
		t.Errorf("%v: %s", err, out)
	}
	(&auditWorld{rightsWorld: &rightsWorld{db: d.db}}).asOwner(t, "UPDATE audit_log SET actor = 'user:nobody' WHERE outcome = 'denied' AND tenant_id = 'mine'")
	if out, err := d.command(t, "audit", "verify", "--heads", heads); err == nil || !strings.Contains(out, `tenant="mine" seq=`) || !strings.Contains(out, "findings=1") {
		t.Errorf("after an edit: %v: %s", err, out)
	}
}

// command runs the program on the deployment's database.
func (d *deployment) command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	config := harness.Config(t, map[string]any{"database": map[string]any{"url": d.database}})
	out, err := exec.CommandContext(t.Context(), programs.Program(t, "compute-api"), append(args, "--config", config)...).CombinedOutput()
	return string(out), err
}

// triggers make something fail in the database, and are taken back.
type triggers struct{ set, unset []string }

const allElse = "all else is killed before the commit"

// cuts are the ways in which a change may come to its row and no further, or not even there.
func cuts(tables []string) map[string]triggers {
	const (
		kill = `CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
			BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END $$`
		refuse = `CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`
		late   = `CREATE CONSTRAINT TRIGGER cut AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut()`
		before = `CREATE TRIGGER cut BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION cut()`
		unset  = `DROP FUNCTION cut CASCADE`
	)
	changed := []string{kill}
	for _, table := range tables {
		changed = append(changed, fmt.Sprintf(late, table))
	}
	return map[string]triggers{
		"the row is refused":                  {[]string{refuse, before}, []string{unset}},
		"killed before the row":               {[]string{kill, before}, []string{unset}},
		"the row is killed before the commit": {[]string{kill, fmt.Sprintf(late, "audit_log")}, []string{unset}},
		allElse:                               {changed, []string{unset}},
	}
}

// tables are those of the nouns: not those of the queue, of the migrations and of the chains, which the server writes by itself.
func (w *auditWorld) tables(t *testing.T) (names []string) {
	t.Helper()
	err := w.db.NewRaw(`SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
		AND relname !~ '^(river_|bun_|audit_)' AND relname <> 'server_keys'`).Scan(t.Context(), &names)
	if err != nil || len(names) < 10 {
		t.Fatal(names, err)
	}
	return names
}

// state gives a digest of each table.
func (w *auditWorld) state(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, table := range append(w.tables(t), "audit_log") {
		var digest string
		err := w.db.NewRaw(fmt.Sprintf(`SELECT count(*) || ' ' || md5(coalesce(string_agg(x::text, ' ' ORDER BY x::text), ''))
			FROM (SELECT to_jsonb(t) - 'last_used_at' AS x FROM %s AS t) AS y`, table)).
			Scan(t.Context(), &digest)
		if err != nil {
			t.Fatal(err)
		}
		state[table] = digest
	}
	return state
}

func (w *auditWorld) asOwner(t *testing.T, statements ...string) {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, s := range append([]string{"SET LOCAL ROLE NONE"}, statements...) {
		if _, err := tx.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (w *auditWorld) rows(t *testing.T, request string) (rows []string) {
	t.Helper()
	err := w.db.NewRaw("SELECT actor || ' ' || coalesce(details ->> 'apiToken' || ' ', '') || action || ' ' || object || ' ' || outcome FROM audit_log WHERE request_id = ?", request).Scan(t.Context(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func (w *auditWorld) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := w.db.NewRaw(query).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
