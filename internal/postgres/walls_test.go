package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

// open tables belong to no tenant, and so are seen under every scope. What holds rows of tenants does not belong here.
var openTables = []string{
	"bun_migration_locks", "bun_migrations", "machine_reservations", "policy_version", "roles", "server_keys",
	// The queue's jobs hold ids of runs, and no caller reads them.
	"river_client", "river_client_queue", "river_job", "river_leader", "river_migration", "river_notification", "river_queue",
}

func TestEveryTableOfTenantsHasItsPolicy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var tables []struct {
		Name     string
		Tenants  bool // has the column
		Walled   bool
		Policies string
	}
	err := db.NewRaw(`
		SELECT c.relname AS name, c.relrowsecurity AND c.relforcerowsecurity AS walled,
			EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant_id') AS tenants,
			coalesce((SELECT string_agg(p.policyname || ' ' || p.roles::text || ' ' || p.cmd, ', ' ORDER BY p.policyname) FROM pg_policies p
				WHERE p.schemaname = 'public' AND p.tablename = c.relname AND p.policyname <> 'owner'), '') AS policies
		FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1`).Scan(t.Context(), &tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range tables {
		want := "tenants {compute_app} ALL"
		switch {
		case slices.Contains(openTables, c.Name):
			if c.Tenants || c.Walled {
				t.Errorf("%s is no open table: it has tenant_id (%v) or row security (%v)", c.Name, c.Tenants, c.Walled)
			}
			continue
		case c.Name == "audit_log":
			want = "anybody_adds {compute_app} INSERT, tenants {compute_app} SELECT"
		}
		if !c.Walled || c.Policies != want {
			t.Errorf("%s: row security is enabled and forced: %v; its policies are %q, want %q", c.Name, c.Walled, c.Policies, want)
		}
	}
	if len(tables) < 20 {
		t.Errorf("only %d tables were looked at", len(tables))
	}
}

func TestServersRoleIsConfined(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var who, powers string
	err := db.NewRaw(`SELECT current_user, concat_ws(' ', rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication)
		FROM pg_roles WHERE rolname = current_user`).Scan(t.Context(), &who, &powers)
	if err != nil || who != postgres.Role || powers != "f f f f f f" {
		t.Errorf("the server works as %s with the powers %s: %v", who, powers, err)
	}
	var owned []string
	err = db.NewRaw(`SELECT relname FROM pg_class WHERE pg_get_userbyid(relowner) = ? AND relpersistence <> 't'`, postgres.Role).Scan(t.Context(), &owned)
	if err != nil || len(owned) != 0 {
		t.Errorf("it owns %v: %v", owned, err)
	}
	for _, statement := range []string{
		"CREATE TABLE more ()", "ALTER TABLE secrets DISABLE ROW LEVEL SECURITY", "DROP POLICY tenants ON secrets", "TRUNCATE secrets",
		"ALTER TABLE audit_log DISABLE TRIGGER ALL", "CREATE POLICY mine ON secrets USING (true)", "SET session_replication_role = replica",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("it may %s", statement)
		}
	}
}

// TestRightsOnTables has all that the server may do to a table, so that what only grows stays so.
func TestRightsOnTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var rights []string
	err := db.NewRaw(`
		SELECT relname || ':' || concat(CASE WHEN has_table_privilege(oid, 'SELECT') THEN 'r' END, CASE WHEN has_table_privilege(oid, 'INSERT') THEN 'a' END,
			CASE WHEN has_any_column_privilege(oid, 'UPDATE') THEN 'w' END, CASE WHEN has_table_privilege(oid, 'DELETE') THEN 'd' END,
			CASE WHEN has_table_privilege(oid, 'TRUNCATE') THEN 'D' END, CASE WHEN has_table_privilege(oid, 'TRIGGER') THEN 't' END)
		FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND relname NOT LIKE 'river%' ORDER BY 1`).
		Scan(t.Context(), &rights)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"api_tokens:raw", "audit_chain:ra", "audit_log:ra", "bootstrap_transitions:ra", "bootstraps:rawd", "bun_migration_locks:", "bun_migrations:r",
		"events:rad", "host_certificates:ra", "hosts:rawd", "instances:rawd", "inventory_claims:rawd", "machine_reservations:rawd", "orphans:rawd",
		"policy_version:rw", "pools:rawd", "provider_accounts:rawd", "role_bindings:rawd", "roles:rawd", "secrets:rawd", "server_keys:ra",
	}
	if diff := cmp.Diff(want, rights); diff != "" {
		t.Error(diff)
	}
}

func TestCheckWallsFindsAHole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := db.CheckWalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Owner(t, db)
	if err := owner.CheckWalls(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Errorf("working as the owner: %v", err)
	}
	for hole, mend := range map[string]string{
		"ALTER TABLE secrets DISABLE ROW LEVEL SECURITY":  "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY",
		"ALTER TABLE secrets NO FORCE ROW LEVEL SECURITY": "ALTER TABLE secrets FORCE ROW LEVEL SECURITY",
		"ALTER POLICY tenants ON hosts TO PUBLIC":         "ALTER POLICY tenants ON hosts TO compute_app",
		"CREATE TABLE more (tenant_id text)":              "DROP TABLE more",
		"CREATE TABLE more_of_anybody (id text)":          "DROP TABLE more_of_anybody",
		// Those without a tenant of their own, and what goes around the tables.
		"ALTER TABLE role_bindings DISABLE ROW LEVEL SECURITY":         "ALTER TABLE role_bindings ENABLE ROW LEVEL SECURITY",
		"ALTER TABLE bootstrap_transitions DISABLE ROW LEVEL SECURITY": "ALTER TABLE bootstrap_transitions ENABLE ROW LEVEL SECURITY",
		"CREATE POLICY oops ON pools TO compute_app USING (true)":      "DROP POLICY oops ON pools",
		"CREATE VIEW all_pools AS SELECT * FROM pools":                 "DROP VIEW all_pools",
	} {
		for _, step := range []struct {
			statement string
			want      bool
		}{{hole, true}, {mend, false}} {
			if _, err := owner.ExecContext(t.Context(), step.statement); err != nil {
				t.Fatal(err)
			}
			if err := db.CheckWalls(t.Context()); problem.Is(err, problem.Unavailable) != step.want {
				t.Errorf("after %s: %v", step.statement, err)
			}
		}
	}
}

// TestPoliciesKeepTheIndexes looks at plans for one tenant of a thousand: the policy's readings of the setting are done once for a
// statement, and what the query names is looked up.
func TestPoliciesKeepTheIndexes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, statement := range []string{
		`INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by)
			SELECT 'a' || n, 't' || n % 1000, 'sim', 'n' || n, 'u' FROM generate_series(1, 20000) n`,
		`INSERT INTO pools (id, tenant_id, name, class, agent) SELECT 'p' || n, 't' || n, 'p', 'vps', 'none' FROM generate_series(0, 999) n`,
		`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id, failure)
			SELECT 'b' || n, 't' || n % 1000, 'a' || n, 'p' || n % 1000, 'u', 'm', 'failed', 'o' || n, '{}' FROM generate_series(1, 20000) n`,
		`INSERT INTO bootstrap_transitions (bootstrap_id, to_status) SELECT 'b' || n, s FROM generate_series(1, 20000) n, unnest(ARRAY['x', 'y', 'z']) s`,
		`INSERT INTO audit_log (tenant_id, actor, action, object, outcome) SELECT 't' || n % 1000, 'u', 'a', 'o', 'denied' FROM generate_series(1, 20000) n`,
		`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data) SELECT 't' || n % 1000, 'e', 'b' || n, 'a' || n, '{}' FROM generate_series(1, 20000) n`,
		`INSERT INTO role_bindings (subject, role, object, effect) SELECT 'u' || n, 'r', 'compute-tenant/t' || n % 1000, 'allow' FROM generate_series(1, 20000) n`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pgtest.Owner(t, db).ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("t7", "t8"))
	for query, condition := range map[string]string{
		"SELECT * FROM provider_accounts WHERE id = 'a7' AND tenant_id = 't7'":                                   "(id = 'a7'",
		"SELECT * FROM provider_accounts WHERE tenant_id = 't7' AND name > 'n' ORDER BY name LIMIT 20":           "(tenant_id = 't7'",
		"SELECT * FROM bootstraps WHERE tenant_id = 't7' ORDER BY created_at DESC, id DESC LIMIT 20":             "(tenant_id = 't7'",
		"SELECT * FROM bootstrap_transitions WHERE bootstrap_id IN ('b7', 'b8') ORDER BY bootstrap_id, id":       "(bootstrap_id = ANY",
		"SELECT * FROM audit_log WHERE tenant_id = 't7' ORDER BY at DESC, id DESC LIMIT 20":                      "(tenant_id = 't7'",
		"SELECT * FROM events WHERE tenant_id = 't7' AND (xid, id) > ('1'::xid8, 1) ORDER BY xid, id LIMIT 20":   "(tenant_id = 't7'",
		"SELECT * FROM role_bindings WHERE object = 'compute-tenant/t7' ORDER BY object, subject, role LIMIT 20": "(object = 'compute-tenant/t7'",
		"UPDATE bootstraps SET step = 's' WHERE id = 'b7'":                                                       "(id = 'b7'",
		"DELETE FROM provider_accounts WHERE id = 'a7' AND tenant_id = 't7'":                                     "(id = 'a7'",
	} {
		var plan []string
		if err := db.NewRaw("EXPLAIN "+query).Scan(ctx, &plan); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, "Index Cond: "+condition) && !strings.Contains(text, "Index Cond: ("+condition) || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", query, text)
		}
		if !strings.Contains(text, "InitPlan") {
			t.Errorf("the setting is not read once, for %s:\n%s", query, text)
		}
	}
}

// A database whose migrations have not run yet is away, and not broken.
func TestServerBeforeTheFirstMigration(t *testing.T) {
	t.Parallel()
	server := startServer(t, serverDir(t)) // a cluster without the role
	db, err := postgres.Open(t.Context(), postgres.Options{URL: server.LoginURL(), MigrationsURL: server.URL(), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	assertUnavailable(t, db)
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckWalls(t.Context()); err != nil {
		t.Error(err)
	}
	insertSecretOf(t, db, "a")
	conn := connect(t, server.LoginURL())
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM secrets").Scan(&n); err == nil && n > 0 {
		t.Errorf("the login sees %d rows without becoming the role", n)
	}

	// From now on the server needs no owner.
	alone, err := postgres.Open(t.Context(), postgres.Options{URL: server.LoginURL(), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if err := postgres.Migrate(t.Context(), alone); err != nil {
		t.Errorf("with nothing to migrate: %v", err)
	}
}

// A managed cluster gives no superuser: the owner may make roles and no more.
func TestOwnerThatIsNoSuperuser(t *testing.T) {
	t.Parallel()
	server := startServer(t, serverDir(t))
	admin := connect(t, server.URL())
	for _, statement := range []string{
		"CREATE ROLE owner LOGIN CREATEROLE", "CREATE ROLE app LOGIN", "CREATE DATABASE product OWNER owner",
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	login := func(name string) string {
		return strings.NewReplacer("//compute@", "//"+name+"@", "/postgres?", "/product?").Replace(server.URL())
	}
	db, err := postgres.Open(t.Context(), postgres.Options{URL: login("app"), MigrationsURL: login("owner"), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	owner, err := postgres.Open(t.Context(), postgres.Options{URL: login("owner"), AsOwner: true, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for _, step := range []func() error{
		func() error { return postgres.Migrate(t.Context(), db) },
		func() error { takeAllBack(t, owner); return nil },
		func() error { return postgres.Migrate(t.Context(), db) },
		func() error { return db.CheckWalls(t.Context()) },
		func() error { return db.WriteProbe(t.Context()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	if got := tenantsSeen(t, postgres.WithScope(t.Context(), postgres.Tenants("a")), db); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the scope a shows %v", got)
	}
	if got := tenantsSeen(t, t.Context(), owner); len(got) != 2 {
		t.Errorf("the owner, whom the policies hold too, sees %v", got)
	}
}

func lastStatement(t *testing.T, conn *pgx.Conn, pid uint32) (query string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT query FROM pg_stat_activity WHERE pid = $1", fmt.Sprint(pid)).Scan(&query)
	if err != nil {
		t.Fatal(err)
	}
	return query
}
