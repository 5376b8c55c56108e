package authz

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestScope(t *testing.T) {
	t.Parallel()
	acct1, acct2, p1 := "compute-provider-account/"+account1, "compute-provider-account/"+account2, "compute-pool/"+pool1
	missing := "compute-provider-account/" + id.Derive("pacct", "missing")
	b := setup(t,
		allow("user:tenant", "provider-viewer", "compute-tenant/a"),
		allow("user:two", "provider-viewer", "compute-tenant/b"), allow("user:two", "tenant-admin", "compute-tenant/b"),
		allow("user:two", "provider-viewer", "compute-tenant/a"),
		allow("user:account", "provider-viewer", acct2),
		allow("user:pool", "provider-viewer", p1),
		allow("user:both", "provider-viewer", acct2), allow("user:both", "provider-viewer", p1),
		allow("user:fleet", "provider-viewer", "compute-fleet"), allow("user:fleet", "provider-viewer", "compute-tenant/a"),
		deny("user:denied", "provider-viewer", "compute-tenant/a"), deny("user:denied", "provider-viewer", "compute-fleet"), deny("user:denied", "provider-viewer", acct2),
		allow("user:held-back", "provider-viewer", "compute-tenant/a"), deny("user:held-back", "provider-viewer", "compute-tenant/a"),
		allow("user:missing", "provider-viewer", missing),
		allow("user:missing-too", "provider-viewer", missing), allow("user:missing-too", "provider-viewer", acct1),
		allow("group:ops", "provider-viewer", "compute-tenant/b"), allow("group:root", "fleet-admin", "compute-fleet"),
		// A tenant with the name of an account is that tenant, and no item.
		allow("user:look-alike", "provider-viewer", "compute-tenant/"+account2),
	)
	b.withItems(t)
	replica := follow(t, newDecider(t, b.db))
	for _, c := range []struct {
		actor Actor
		want  postgres.Scope
	}{
		{Actor{}, postgres.Scope{}},
		{Actor{Subject: "group:ops"}, postgres.Scope{}},
		{Actor{Subject: "user:fleet", Expires: time.Now().Add(-time.Second)}, postgres.Scope{}},
		{Actor{Subject: "user:nobody"}, postgres.Tenants()},
		{Actor{Subject: "user:tenant"}, postgres.Tenants("a")},
		{Actor{Subject: "user:two"}, postgres.Tenants("a", "b")},
		{Actor{Subject: "user:account"}, postgres.Tenants("b")},
		{Actor{Subject: "user:pool"}, postgres.Tenants("a")},
		{Actor{Subject: "user:both"}, postgres.Tenants("a", "b")},
		{Actor{Subject: "user:fleet"}, postgres.AllTenants()},
		{Actor{Subject: "user:denied"}, postgres.Tenants()},
		{Actor{Subject: "user:held-back"}, postgres.Tenants("a")},
		{Actor{Subject: "user:missing"}, postgres.Tenants()},
		{Actor{Subject: "user:missing-too"}, postgres.Tenants("a")},
		{Actor{Subject: "user:tenant", Groups: []string{"group:ops"}}, postgres.Tenants("a", "b")},
		{Actor{Subject: "user:tenant", Groups: []string{"ops", "user:fleet"}}, postgres.Tenants("a")},
		{Actor{Subject: "user:tenant", Groups: []string{"group:root"}}, postgres.AllTenants()},
		{Actor{Subject: "user:look-alike"}, postgres.Tenants(account2)},
	} {
		for name, d := range map[string]*Decider{"reading": b.d, "caching": replica} {
			for range 2 {
				got, err := d.Scope(WithActor(t.Context(), c.actor))
				if err != nil || got.String() != c.want.String() {
					t.Errorf("%s: %v gets %s (%v), want %s", name, c.actor, got, err, c.want)
				}
			}
		}
	}
	none, err := replica.Scope(t.Context())
	if err != nil || none != (postgres.Scope{}) {
		t.Errorf("nobody gets %s (%v)", none, err)
	}
}

// An account that is made after the binding on it, though the binding is in the cache.
func TestScopeFindsAnItemThatComesLater(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:v", "provider-viewer", "compute-provider-account/"+account1))
	replica := follow(t, newDecider(t, b.db))
	warm(t, replica, "user:v", false)
	if got, err := replica.Scope(as(t.Context(), "user:v")); err != nil || got.String() != postgres.Tenants().String() {
		t.Fatalf("%s, %v", got, err)
	}
	b.withItems(t)
	if got, err := replica.Scope(as(t.Context(), "user:v")); err != nil || got.String() != postgres.Tenants("a").String() {
		t.Errorf("%s, %v", got, err)
	}
}

// What a Decider reads to find the scope must not need the scope.
func TestScopeOfADatabaseThatAsksForIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := &bundle{db: db, d: newDecider(t, db)}
	b.insert(t, allow("user:v", "tenant-admin", "compute-tenant/a"))
	db.ScopeBy(b.d.Scope)
	for ctx, want := range map[context.Context]string{t.Context(): "{}", as(t.Context(), "user:v"): `{"a"}`} {
		var got string
		if err := db.NewRaw("SELECT current_setting('app.tenants')").Scan(ctx, &got); err != nil || got != want {
			t.Errorf("a connection has the scope %s (%v), want %s", got, err, want)
		}
	}
	wantCode(t, b.d.Check(as(t.Context(), "user:v"), ProvidersRead, Tenant("b")), problem.Forbidden)
	if _, err := b.d.GrantRole(as(t.Context(), "user:v"), grantInput(allow("user:w", "tenant-admin", "compute-tenant/a"))); err != nil {
		t.Error(err)
	}
	if err := EnsureBindings(t.Context(), db, []model.RoleBinding{allow("user:w", "tenant-admin", "compute-tenant/b")}); err != nil {
		t.Error(err)
	}
}

func TestViewerTenants(t *testing.T) {
	t.Parallel()
	b := setup(t,
		allow("user:two", "provider-viewer", "compute-tenant/c"), allow("user:two", "provider-viewer", "compute-provider-account/"+account2),
		allow("user:fleet", "provider-viewer", "compute-fleet"), allow("user:fleet", "provider-viewer", "compute-tenant/a"),
	)
	b.withItems(t)
	for subject, want := range map[string][]string{"user:two": {"b", "c"}, "user:fleet": nil, "user:none": {}} {
		got, err := b.d.ViewerTenants(WithActor(t.Context(), Actor{Subject: subject}))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", subject, err, diff)
		}
	}
	if _, err := b.d.ViewerTenants(t.Context()); !problem.Is(err, problem.Unauthenticated) {
		t.Errorf("nobody's tenants: %v", err)
	}
}
