package authz

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/id"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

// Objects that most tests share: two tenants, the name of one a prefix of the other's.
var (
	account1 = id.Derive("pacct", "1")
	account2 = id.Derive("pacct", "2")
	pool1    = id.Derive("pool", "1")
)

type bundle struct {
	db    *postgres.DB
	owner *postgres.DB // for what the server itself may not do
	d     *Decider
}

// setup gives a Decider that reads every binding anew; follow makes one that caches.
func setup(t *testing.T, bindings ...model.RoleBinding) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{db: db, owner: pgtest.Owner(t, db), d: newDecider(t, db)}
	b.insert(t, bindings...)
	return b
}

func newDecider(t testing.TB, db *postgres.DB) *Decider {
	t.Helper()
	d, err := New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.Denials = DenialLimits{PerSecond: 1 << 30, AtMost: 1 << 30} // most tests ask for more than a caller may be denied
	return d
}

func (b *bundle) insert(t testing.TB, bindings ...model.RoleBinding) {
	t.Helper()
	if len(bindings) == 0 {
		return
	}
	if _, err := b.db.NewInsert().Model(&bindings).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) delete(t testing.TB, binding model.RoleBinding) {
	t.Helper()
	if _, err := b.db.NewDelete().Model(&binding).WherePK().Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := b.owner.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func allow(subject, role, object string) model.RoleBinding {
	return model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: model.Allow}
}

func deny(subject, role, object string) model.RoleBinding {
	return model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: model.Deny}
}

func as(ctx context.Context, subject string, groups ...string) context.Context {
	return WithActor(ctx, Actor{Subject: subject, Groups: groups})
}

type auditRow struct {
	TenantID, Actor, Action, Object, Outcome, RequestID string
}

func (b *bundle) auditRows(t testing.TB) []auditRow {
	t.Helper()
	var rows []auditRow
	err := b.db.NewRaw("SELECT tenant_id, actor, action, object, outcome, request_id FROM audit_log ORDER BY id").Scan(t.Context(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func wantCode(t testing.TB, err error, code problem.Code) {
	t.Helper()
	if !problem.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func TestGoldenRoles(t *testing.T) {
	t.Parallel()
	tenant1, acct1, p1 := "compute-tenant/tenant:1", "compute-provider-account/"+account1, "compute-pool/"+pool1
	b := setup(t,
		allow("user:fleet-admin@fleet", "fleet-admin", "compute-fleet"),
		allow("user:fleet-admin@tenant", "fleet-admin", tenant1),
		allow("user:tenant-admin@fleet", "tenant-admin", "compute-fleet"),
		allow("user:tenant-admin@tenant", "tenant-admin", tenant1),
		allow("user:tenant-admin@account", "tenant-admin", acct1),
		allow("user:manager@fleet", "provider-manager", "compute-fleet"),
		allow("user:manager@tenant", "provider-manager", tenant1),
		allow("user:manager@account", "provider-manager", acct1),
		allow("user:viewer@tenant", "provider-viewer", tenant1),
		allow("user:viewer@pool", "provider-viewer", p1),
		allow("group:ops", "provider-manager", tenant1),
		allow("service:robot", "provider-viewer", tenant1),
		allow("user:denied-account", "tenant-admin", tenant1), deny("user:denied-account", "provider-viewer", acct1),
		allow("user:denied-tenant", "fleet-admin", "compute-fleet"), deny("user:denied-tenant", "provider-manager", tenant1),
		allow("user:denied-above", "tenant-admin", acct1), deny("user:denied-above", "provider-viewer", "compute-fleet"),
		allow("user:denied-group", "tenant-admin", tenant1), deny("group:suspended", "tenant-admin", tenant1),
		allow("user:gone-role", "owner", "compute-fleet"), deny("user:gone-role", "nobody", "compute-fleet"),
		// Roles that the fleet defined, a group that has one, what a deny takes of one, and items alone.
		allow("user:pool-writer@tenant", "pool-writer", tenant1), allow("user:pool-writer@fleet", "pool-writer", "compute-fleet"),
		allow("group:writers", "pool-writer", p1),
		allow("user:denied-custom", "tenant-admin", tenant1), deny("user:denied-custom", "pool-writer", p1),
		allow("user:denied-by-tenant", "tenant-admin", tenant1), deny("user:denied-by-tenant", "auditor", tenant1),
		allow("user:items-alone", "auditor", acct1), allow("user:items-alone", "pool-writer", p1),
		allow("service:token", "tenant-admin", tenant1),
		// Names that would match if anything but equality were asked.
		allow("fleet-admin", "fleet-admin", "compute-fleet"), allow("user:pattern", "fleet-admin", "compute-tenant/tenant:1*"),
		allow("user:prefix", "pool", "compute-fleet"), allow("user:star", "*", "*"), allow("user:slash", "fleet-admin", "compute-tenant/"), allow("user:case", "Fleet-Admin", "compute-fleet"),
	)
	b.define(t, "pool-writer", PoolsRead, PoolsManage)
	b.define(t, "auditor", AuditRead)
	b.addToken(t, "live", "now() + interval '1 hour'")
	b.addToken(t, "revoked", "NULL")
	b.exec(t, "UPDATE api_tokens SET revoked_at = now() WHERE id = 'revoked'")
	b.addToken(t, "expired", "now()")
	actors := []Actor{
		{Subject: "user:nobody"},
		{Subject: "user:fleet-admin"},
		{Subject: "user:ops"},
		{Subject: "user:group:ops"},
		{Subject: "user:fleet-admin@fleet"},
		{Subject: "user:fleet-admin@tenant"},
		{Subject: "user:tenant-admin@fleet"},
		{Subject: "user:tenant-admin@tenant"},
		{Subject: "user:tenant-admin@account"},
		{Subject: "user:manager@fleet"},
		{Subject: "user:manager@tenant"},
		{Subject: "user:manager@account"},
		{Subject: "user:viewer@tenant"},
		{Subject: "user:viewer@pool"},
		{Subject: "user:member", Groups: []string{"group:ops"}},
		{Subject: "user:member", Groups: []string{"ops"}},
		{Subject: "user:member", Groups: []string{"user:fleet-admin@fleet", "fleet-admin"}},
		{Subject: "service:robot"},
		{Subject: "user:robot"},
		{Subject: "user:denied-account"},
		{Subject: "user:denied-tenant"},
		{Subject: "user:denied-above"},
		{Subject: "user:denied-group"},
		{Subject: "user:denied-group", Groups: []string{"group:suspended"}},
		{Subject: "user:gone-role"},
		{Subject: "user:pool-writer@tenant"},
		{Subject: "user:pool-writer@fleet"},
		{Subject: "user:pool-writer"},
		{Subject: "user:member", Groups: []string{"group:writers"}},
		{Subject: "user:member", Groups: []string{"group:writers", "group:suspended"}},
		{Subject: "user:denied-custom"},
		{Subject: "user:denied-by-tenant"},
		{Subject: "user:items-alone"},
		{Subject: "service:token", Credential: "live"},
		{Subject: "service:token", Credential: "revoked"},
		{Subject: "service:token", Credential: "expired"},
		{Subject: "service:token", Credential: "gone"},
		{Subject: "user:prefix"},
		{Subject: "user:pattern"},
		{Subject: "user:star"},
		{Subject: "user:slash"},
		{Subject: "user:case"},
		{Subject: "user:FLEET-ADMIN@FLEET"},
	}
	objects := []struct {
		label string
		Object
	}{
		{"fleet", Fleet()},
		{"tenant:1", Tenant("tenant:1")},
		{"tenant:12", Tenant("tenant:12")},
		{"tenant:1 account1", ProviderAccount("tenant:1", account1)},
		{"tenant:1 account2", ProviderAccount("tenant:1", account2)},
		{"tenant:12 account2", ProviderAccount("tenant:12", account2)},
		{"tenant:1 pool1", Pool("tenant:1", pool1)},
		{"tenant:1 pool1 as account", ProviderAccount("tenant:1", pool1)},
	}
	var out strings.Builder
	for _, actor := range actors {
		fmt.Fprintln(&out, strings.TrimSpace(fmt.Sprint(actor.Subject, " ", actor.Groups, " ", actor.Credential)))
		for _, o := range objects {
			held, err := b.d.Permissions(WithActor(t.Context(), actor), o.Object)
			if problem.Is(err, problem.Unauthenticated) {
				fmt.Fprintf(&out, "    %-26s unauthenticated\n", o.label)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "    %-26s %s\n", o.label, short(held))
		}
	}
	golden(t, "roles.golden", out.String())
}

// short writes one column for each permission.
func short(held []Permission) string {
	columns := make([]string, 0, 6)
	for _, p := range AllPermissions() {
		name := strings.TrimPrefix(string(p), "compute:")
		mark := strings.Repeat("-", len(name))
		for _, h := range held {
			if h == p {
				mark = name
			}
		}
		columns = append(columns, mark)
	}
	return strings.Join(columns, " ")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (run with -update when this is meant):\n%s", path, diff)
	}
}

func TestCheckNeedsACaller(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("group:admins", "fleet-admin", "compute-fleet"), allow("user:root", "fleet-admin", "compute-fleet"))
	ctx := t.Context()
	wantCode(t, b.d.Check(ctx, ProvidersRead, Fleet()), problem.Unauthenticated)
	for _, subject := range []string{"", "root", "group:admins", "role:fleet-admin", "USER:root", " user:root"} {
		wantCode(t, b.d.Check(as(ctx, subject), ProvidersRead, Fleet()), problem.Unauthenticated)
	}
	if err := b.d.Check(as(ctx, "user:root"), ProvidersRead, Fleet()); err != nil {
		t.Fatal(err)
	}

	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b.d.now = func() time.Time { return noon }
	root := Actor{Subject: "user:root", Expires: noon}
	wantCode(t, b.d.Check(WithActor(ctx, root), ProvidersRead, Fleet()), problem.Unauthenticated)
	_, err := b.d.Filter(WithActor(ctx, root), ProvidersRead, "t", Pools)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.d.Permissions(WithActor(ctx, root), Fleet())
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.d.GrantRole(WithActor(ctx, root), model.GrantRoleInput{Subject: "user:x", Role: "fleet-admin", Object: "compute-fleet"})
	wantCode(t, err, problem.Unauthenticated)
	root.Expires = noon.Add(time.Nanosecond)
	if err := b.d.Check(WithActor(ctx, root), ProvidersRead, Fleet()); err != nil {
		t.Fatal(err)
	}
	if rows := b.auditRows(t); len(rows) != 0 {
		t.Errorf("a call without a caller is no denial, yet the audit log has %v", rows)
	}
}

func TestDenialIsSaidAndWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := WithRequestID(as(t.Context(), "user:eve"), "req-1")
	gone, cancel := context.WithCancel(ctx)
	err := b.d.Check(ctx, ProvidersManage, ProviderAccount("t1", account1))
	wantCode(t, err, problem.Forbidden)
	want := map[string]any{"permission": "compute:providers:manage", "object": "compute-provider-account/" + account1}
	if diff := cmp.Diff(want, problem.From(err).Details); diff != "" {
		t.Error(diff)
	}
	if _, err := b.d.Filter(ctx, ProvidersRead, "t1", ProviderAccounts); !problem.Is(err, problem.Forbidden) {
		t.Errorf("a list without any grant gave %v", err)
	}
	actor, _ := ActorFrom(ctx)
	cancel() // the client hangs up between the decision and its record
	wantCode(t, b.d.deny(gone, actor, AuditRead, Fleet()), problem.Forbidden)

	wantRows := []auditRow{
		{"t1", "user:eve", "compute:providers:manage", "compute-provider-account/" + account1, "denied", "req-1"},
		{"t1", "user:eve", "compute:providers:read", "compute-tenant/t1", "denied", "req-1"},
		{"", "user:eve", "compute:audit:read", "compute-fleet", "denied", "req-1"},
	}
	if diff := cmp.Diff(wantRows, b.auditRows(t)); diff != "" {
		t.Error(diff)
	}
}

func TestDenialStandsWithoutItsRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var logged strings.Builder
	b.d.log = slog.New(slog.NewTextHandler(&logged, nil))
	b.exec(t, "DROP TABLE audit_log")
	wantCode(t, b.d.Check(as(t.Context(), "user:eve"), ProvidersRead, Fleet()), problem.Forbidden)
	if !strings.Contains(logged.String(), "missing from the audit log") {
		t.Errorf("the gap in the audit log is not logged: %q", logged.String())
	}
}

func TestUnavailableWhenBindingsCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	b.db.Close()
	ctx := as(t.Context(), "user:root")
	wantCode(t, b.d.Check(ctx, ProvidersRead, Fleet()), problem.Unavailable)
	_, err := b.d.GrantRole(ctx, model.GrantRoleInput{Subject: "user:x", Role: "fleet-admin", Object: "compute-fleet"})
	wantCode(t, err, problem.Unavailable)
}

func TestRolesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"", "# nothing\n", "q, a, b, allow\n"} {
		if r, err := loadRoles(policy); err == nil {
			t.Errorf("the policy %q gave %v, which denies everybody", policy, r)
		}
	}
	r, err := loadRoles("p, a, compute:pools:read, allow\np, a, compute:pools:read, deny\np, b, compute:pools:read, allow\n")
	if err != nil {
		t.Fatal(err)
	}
	if r.builtIn["a"].allows(PoolsRead) || !r.builtIn["b"].allows(PoolsRead) {
		t.Error("a deny rule of a role must beat its allow rule")
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	acct := func(n string) string { return "compute-provider-account/" + id.Derive("pacct", n) }
	b := setup(t,
		allow("user:all", "provider-viewer", "compute-tenant/t"),
		allow("user:fleet", "provider-viewer", "compute-fleet"),
		allow("user:most", "provider-viewer", "compute-tenant/t"), deny("user:most", "provider-viewer", acct("1")),
		deny("group:not2", "provider-manager", acct("2")),
		allow("user:some", "provider-manager", acct("1")), allow("user:some", "provider-viewer", acct("3")),
		allow("user:pools", "provider-viewer", "compute-pool/"+pool1),
		allow("user:barred", "provider-viewer", acct("1")), deny("user:barred", "provider-viewer", "compute-tenant/t"),
		allow("user:barred-everywhere", "provider-viewer", "compute-tenant/t"), deny("user:barred-everywhere", "provider-viewer", "compute-fleet"),
		allow("user:both", "provider-viewer", acct("1")), deny("user:both", "provider-viewer", acct("1")),
		deny("user:other-role", "owner", acct("1")), allow("user:other-role", "provider-viewer", "compute-tenant/t"),
	)
	for _, n := range []string{"1", "2", "3", "4"} {
		b.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, 't', 'sim', ?, '')",
			id.Derive("pacct", n), n)
	}
	for _, c := range []struct {
		actor Actor
		want  string // the names that are let through, "forbidden" when none may be asked for
	}{
		{Actor{Subject: "user:all"}, "1234"},
		{Actor{Subject: "user:fleet"}, "1234"},
		{Actor{Subject: "user:most"}, "234"},
		{Actor{Subject: "user:most", Groups: []string{"group:not2"}}, "34"},
		{Actor{Subject: "user:some"}, "13"},
		{Actor{Subject: "user:some", Groups: []string{"group:not2"}}, "13"},
		{Actor{Subject: "user:other-role"}, "1234"},
		{Actor{Subject: "user:pools"}, "forbidden"},
		{Actor{Subject: "user:barred"}, "forbidden"},
		{Actor{Subject: "user:barred-everywhere"}, "forbidden"},
		{Actor{Subject: "user:both"}, "forbidden"},
		{Actor{Subject: "user:nobody"}, "forbidden"},
	} {
		t.Run(fmt.Sprint(c.actor.Subject, c.actor.Groups), func(t *testing.T) {
			f, err := b.d.Filter(WithActor(t.Context(), c.actor), ProvidersRead, "t", ProviderAccounts)
			held, quietErr := b.d.Held(WithActor(t.Context(), c.actor), ProvidersRead, "t", ProviderAccounts)
			if diff := cmp.Diff(f, held); diff != "" || quietErr != nil {
				t.Errorf("Held differs: %s %v", diff, quietErr)
			}
			if c.want == "forbidden" {
				wantCode(t, err, problem.Forbidden)
				if !held.None() {
					t.Errorf("Held lets %v through", held)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var bySQL []string
			q := b.db.NewSelect().Table("provider_accounts").Column("name").Where("tenant_id = 't'").Order("name")
			if err := f.Where(q, "id").Scan(t.Context(), &bySQL); err != nil {
				t.Fatal(err)
			}
			inGo := ""
			for _, n := range []string{"1", "2", "3", "4"} {
				if f.Allows(id.Derive("pacct", n)) {
					inGo += n
				}
				err := b.d.Check(WithActor(t.Context(), c.actor), ProvidersRead, ProviderAccount("t", id.Derive("pacct", n)))
				if f.Allows(id.Derive("pacct", n)) != (err == nil) {
					t.Errorf("the list and get disagree about account %s: %v", n, err)
				}
			}
			if got := strings.Join(bySQL, ""); got != c.want || inGo != c.want {
				t.Errorf("got %q by SQL and %q by Allows, want %q", got, inGo, c.want)
			}
		})
	}
	var zero Filter
	if zero.Allows("x") {
		t.Error("a Filter that nobody made lets something through")
	}
	var none []string
	if err := zero.Where(b.db.NewSelect().Table("provider_accounts").Column("name"), "id").Scan(t.Context(), &none); err != nil || len(none) != 0 {
		t.Errorf("a Filter that nobody made lets %v through (%v)", none, err)
	}
	// A right on an item of one tenant is none in another, which need not even be there.
	for _, tenantID := range []string{"other", "u"} {
		_, err := b.d.Filter(as(t.Context(), "user:some"), ProvidersRead, tenantID, ProviderAccounts)
		wantCode(t, err, problem.Forbidden)
	}
}
