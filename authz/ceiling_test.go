package authz

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// A stranger may bind anybody to its own pools, as often as it likes: what somebody may give takes no statement for each of those bindings.
func TestGivingTakesAsManyStatementsForManyBindings(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:a", "tenant-admin", "compute-tenant/a"), allow("service:a/ci", "provider-viewer", "compute-tenant/a"))
	b.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) SELECT 'pool_' || n, 'evil', n, 'vps', 'none' FROM generate_series(1, 1000) n")
	count := pgtest.CountQueries(b.db)
	statements := func(friend string) int {
		before, ctx := count(), as(t.Context(), "user:a")
		if _, err := b.d.GrantRole(ctx, grantInput(allow(friend, "provider-viewer", "compute-tenant/a"))); err != nil {
			t.Error(err)
		}
		if err := b.d.Covering(ctx, Tenant("a"), "service:a/ci", func(context.Context, bun.Tx) error { return nil }); err != nil {
			t.Error(err)
		}
		return count() - before
	}
	few := statements("user:one")
	b.exec(t, `INSERT INTO role_bindings (subject, role, object, effect)
		SELECT subject, 'tenant-admin', 'compute-pool/' || id, 'deny' FROM pools, unnest(ARRAY['user:a', 'service:a/ci']) subject`)
	if many := statements("user:two"); many != few {
		t.Errorf("%d statements with a thousand bindings more, %d without", many, few)
	}
}

// Whoever administers the fleet puts a tenant right whose administrator shut them out, and reads nothing of it until then.
func TestWhoAdministersTheFleetAnswersToNobodyBelow(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"), allow("user:evil", "tenant-admin", "compute-tenant/a"))
	b.withItems(t)
	b.db.ScopeBy(b.d.Scope)
	tenant := "a"
	shut := []model.RoleBinding{
		deny("user:root", "tenant-admin", "compute-tenant/a"), deny("user:root", "tenant-admin", "compute-provider-account/"+account1),
	}
	for _, binding := range shut {
		if _, err := b.d.GrantRole(as(t.Context(), "user:evil"), grantInput(binding)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := as(t.Context(), "user:root")
	wantCode(t, b.d.Check(ctx, ProvidersRead, Tenant("a")), problem.Forbidden)
	_, err := b.d.Filter(ctx, AuditRead, "a", ProviderAccounts)
	wantCode(t, err, problem.Forbidden)
	if err := b.d.Check(ctx, IAMManage, Tenant("a")); err != nil {
		t.Errorf("tokens of the tenant: %v", err)
	}
	listed, err := b.d.Bindings(ctx, BindingsInput{TenantID: &tenant})
	if err != nil || len(listed.Nodes()) != 3 {
		t.Fatalf("bindings of the tenant: %v, %v", listed, err)
	}
	for _, change := range []model.RoleBinding{
		allow("user:new", "fleet-admin", "compute-fleet"), allow("user:new", "tenant-admin", "compute-tenant/a"),
		allow("user:new", "tenant-admin", "compute-provider-account/"+account1),
	} {
		if _, err := b.d.GrantRole(ctx, grantInput(change)); err != nil {
			t.Errorf("granting %v: %v", change, err)
		}
	}
	for _, binding := range append(shut, allow("user:evil", "tenant-admin", "compute-tenant/a")) {
		if _, err := b.d.RevokeRole(ctx, revokeInput(binding)); err != nil {
			t.Errorf("revoking %v: %v", binding, err)
		}
	}
	if err := b.d.Check(ctx, ProvidersRead, ProviderAccount("a", account1)); err != nil {
		t.Errorf("put right: %v", err)
	}
}
