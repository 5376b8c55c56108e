package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

func grantInput(b model.RoleBinding) model.GrantRoleInput {
	return model.GrantRoleInput{Subject: b.Subject, Role: b.Role, Object: b.Object, Effect: &b.Effect}
}

func revokeInput(b model.RoleBinding) model.RevokeRoleInput {
	return model.RevokeRoleInput{Subject: b.Subject, Role: b.Role, Object: b.Object, Effect: &b.Effect}
}

// withItems adds account1 and pool1 of tenant a, and account2 of tenant b.
func (b *bundle) withItems(t *testing.T) {
	t.Helper()
	b.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, 'a', 'sim', 'one', ''), (?, 'b', 'sim', 'two', '')",
		account1, account2)
	b.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, 'a', 'one', 'vps', 'none')", pool1)
}

func TestWhoMayGrantAndRevoke(t *testing.T) {
	t.Parallel()
	acct1, acct2, p1 := "compute-provider-account/"+account1, "compute-provider-account/"+account2, "compute-pool/"+pool1
	missing := "compute-provider-account/" + id.Derive("pacct", "missing")
	setupBindings := []model.RoleBinding{
		allow("user:fleet", "fleet-admin", "compute-fleet"),
		allow("user:a", "tenant-admin", "compute-tenant/a"),
		allow("group:admins-a", "tenant-admin", "compute-tenant/a"),
		allow("user:acct1", "tenant-admin", acct1),
		allow("user:manager", "provider-manager", "compute-tenant/a"),
		// Holds everything in a except to manage providers, on the tenant or on one account.
		allow("user:less", "tenant-admin", "compute-tenant/a"), deny("user:less", "provider-manager", "compute-tenant/a"),
		allow("user:hole", "tenant-admin", "compute-tenant/a"), deny("user:hole", "provider-manager", acct1),
		allow("user:elsewhere", "tenant-admin", "compute-tenant/a"), deny("user:elsewhere", "provider-manager", acct2),
		allow("user:fleet-hole", "fleet-admin", "compute-fleet"), deny("user:fleet-hole", "provider-viewer", "compute-tenant/b"),
		allow("user:shut-out", "fleet-admin", "compute-fleet"), deny("user:shut-out", "tenant-admin", "compute-tenant/b"),
		deny("user:shut-out", "tenant-admin", acct2),
		// Administers the fleet without reading it, and reads tenant a all the same.
		allow("user:fleet-less", "iam-only", "compute-fleet"), allow("user:fleet-less", "provider-viewer", "compute-tenant/a"),
		allow("user:both", "tenant-admin", "compute-tenant/a"), allow("user:both", "tenant-admin", "compute-tenant/b"),
		allow("user:dangling", "tenant-admin", missing),
	}
	cases := []struct {
		actor   Actor
		binding model.RoleBinding
		grant   string // the permission and the object that are missing, "" when it is allowed
		revoke  string
	}{
		{Actor{Subject: "user:fleet"}, allow("user:x", "fleet-admin", "compute-fleet"), "", ""},
		{Actor{Subject: "user:fleet"}, allow("user:x", "fleet-admin", "compute-tenant/b"), "", ""},
		{Actor{Subject: "user:fleet"}, allow("user:x", "provider-viewer", missing), "", ""},
		{Actor{Subject: "user:fleet"}, deny("user:x", "fleet-admin", "compute-fleet"), "", ""},
		{Actor{Subject: "user:a"}, allow("user:x", "tenant-admin", "compute-tenant/a"), "", ""},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", acct1), "", ""},
		{Actor{Subject: "user:a"}, deny("user:x", "provider-viewer", p1), "", ""},
		{Actor{Subject: "user:x", Groups: []string{"group:admins-a"}}, allow("user:x", "tenant-admin", acct1), "", ""},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", "compute-fleet"), "iam:manage compute-fleet", "iam:manage compute-fleet"},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", "compute-tenant/b"), "iam:manage compute-tenant/b", "iam:manage compute-tenant/b"},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", "compute-tenant/aa"), "iam:manage compute-tenant/aa", "iam:manage compute-tenant/aa"},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", acct2), "iam:manage " + acct2, "iam:manage " + acct2},
		{Actor{Subject: "user:a"}, allow("user:x", "provider-viewer", missing), "iam:manage " + missing, "iam:manage " + missing},
		{Actor{Subject: "user:dangling"}, allow("user:x", "provider-viewer", missing), "iam:manage " + missing, "iam:manage " + missing},
		{Actor{Subject: "user:acct1"}, allow("user:x", "tenant-admin", acct1), "", ""},
		{Actor{Subject: "user:acct1"}, allow("user:x", "provider-viewer", "compute-tenant/a"), "iam:manage compute-tenant/a", "iam:manage compute-tenant/a"},
		{Actor{Subject: "user:manager"}, allow("user:x", "provider-viewer", "compute-tenant/a"), "iam:manage compute-tenant/a", "iam:manage compute-tenant/a"},
		{Actor{Subject: "user:less"}, allow("user:x", "provider-manager", "compute-tenant/a"), "providers:read compute-tenant/a", ""},
		{Actor{Subject: "user:less"}, deny("user:less", "provider-manager", "compute-tenant/a"), "", "providers:read compute-tenant/a"},
		{Actor{Subject: "user:hole"}, allow("user:friend", "provider-viewer", "compute-tenant/a"), "providers:read " + acct1, ""},
		{Actor{Subject: "user:hole"}, allow("user:friend", "provider-manager", acct1), "providers:read " + acct1, ""},
		{Actor{Subject: "user:hole"}, allow("user:friend", "provider-manager", p1), "", ""},
		{Actor{Subject: "user:hole"}, deny("user:hole", "provider-manager", acct1), "", "providers:read " + acct1},
		{Actor{Subject: "user:elsewhere"}, allow("user:friend", "provider-manager", "compute-tenant/a"), "", ""},
		// Whoever administers the fleet gives what it holds there, and lifts what holds it back below.
		{Actor{Subject: "user:fleet-hole"}, allow("user:friend", "provider-viewer", "compute-fleet"), "", ""},
		{Actor{Subject: "user:fleet-hole"}, allow("user:friend", "provider-viewer", "compute-tenant/a"), "", ""},
		{Actor{Subject: "user:fleet-hole"}, allow("user:friend", "provider-viewer", acct2), "", ""},
		{Actor{Subject: "user:fleet-hole"}, deny("user:fleet-hole", "provider-viewer", "compute-tenant/b"), "", ""},
		{Actor{Subject: "user:shut-out"}, allow("user:friend", "fleet-admin", "compute-fleet"), "", ""},
		{Actor{Subject: "user:shut-out"}, deny("user:shut-out", "tenant-admin", "compute-tenant/b"), "", ""},
		{Actor{Subject: "user:shut-out"}, deny("user:shut-out", "tenant-admin", acct2), "", ""},
		{Actor{Subject: "user:fleet-less"}, allow("user:friend", "provider-viewer", "compute-tenant/b"), "providers:read compute-tenant/b", ""},
		{Actor{Subject: "user:fleet-less"}, allow("user:friend", "provider-viewer", "compute-tenant/a"), "", ""},
		// What a service of a tenant is bound to is that tenant's affair too.
		{Actor{Subject: "user:a"}, allow("service:a/ci", "provider-viewer", "compute-tenant/a"), "", ""},
		{Actor{Subject: "user:a"}, allow("service:ci", "provider-viewer", acct1), "", ""},
		{Actor{Subject: "user:a"}, allow("service:b/ci", "provider-viewer", "compute-tenant/a"), "iam:manage compute-tenant/b", ""},
		{Actor{Subject: "user:a"}, deny("service:b/ci", "provider-viewer", acct1), "iam:manage compute-tenant/b", ""},
		{Actor{Subject: "user:acct1"}, allow("service:a/ci", "provider-viewer", acct1), "iam:manage compute-tenant/a", ""},
		{Actor{Subject: "user:both"}, allow("service:b/ci", "provider-viewer", "compute-tenant/a"), "", ""},
		{Actor{Subject: "user:shut-out"}, deny("service:b/ci", "provider-viewer", "compute-tenant/a"), "", ""},
		{Actor{Subject: "user:nobody"}, allow("user:x", "fleet-admin", "compute-fleet"), "iam:manage compute-fleet", "iam:manage compute-fleet"},
	}
	b := setup(t, setupBindings...)
	b.withItems(t)
	b.exec(t, "INSERT INTO roles (name, description, permissions, created_by, updated_by) VALUES ('iam-only', '', '{compute:iam:manage}', '', '')")
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %v", c.actor.Subject, c.binding), func(t *testing.T) {
			ctx := WithActor(t.Context(), c.actor)
			before := b.bindings(t)
			got, err := b.d.GrantRole(ctx, grantInput(c.binding))
			wantShortfall(t, "grant", err, c.grant)
			if c.grant == "" && (got == nil || *got != c.binding) {
				t.Errorf("granted %v", got)
			}
			if c.grant != "" && !cmp.Equal(before, b.bindings(t)) {
				t.Error("a refused grant changed bindings")
			}
			if !slices.Contains(before, c.binding) {
				b.exec(t, "INSERT INTO role_bindings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
					c.binding.Subject, c.binding.Role, c.binding.Object, string(c.binding.Effect))
				defer b.delete(t, c.binding)
			}
			revoked, err := b.d.RevokeRole(ctx, revokeInput(c.binding))
			wantShortfall(t, "revoke", err, c.revoke)
			if revoked != (c.revoke == "") {
				t.Errorf("revoked = %v", revoked)
			}
		})
	}
}

func wantShortfall(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		wantCode(t, err, problem.Forbidden)
		details := problem.From(err).Details
		got = fmt.Sprintf("%s %s", strings.TrimPrefix(fmt.Sprint(details["permission"]), "compute:"), details["object"])
	}
	if got != want {
		t.Errorf("%s lacks %q, want %q", what, got, want)
	}
}

func (b *bundle) bindings(t *testing.T) []model.RoleBinding {
	t.Helper()
	all, err := List(t.Context(), b.db, "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGrantAndRevokeAreIdempotentAndWrittenDown(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	b.withItems(t)
	ctx := WithRequestID(as(t.Context(), "user:root"), "req-7")
	in := model.GrantRoleInput{Subject: "group:ops", Role: "provider-viewer", Object: "compute-provider-account/" + account1}
	for range 2 {
		got, err := b.d.GrantRole(ctx, in)
		if err != nil || *got != allow(in.Subject, in.Role, in.Object) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	for _, want := range []bool{true, false} {
		got, err := b.d.RevokeRole(ctx, model.RevokeRoleInput{Subject: in.Subject, Role: in.Role, Object: in.Object})
		if err != nil || got != want {
			t.Fatalf("revoked = %v, %v, want %v", got, err, want)
		}
	}
	row := func(action, outcome string) auditRow {
		return auditRow{"a", "user:root", action, in.Object, outcome, "req-7"}
	}
	want := []auditRow{
		row("grantRole", "allowed"), row("grantRole", "replayed"), row("revokeRole", "allowed"), row("revokeRole", "replayed"),
	}
	if diff := cmp.Diff(want, b.auditRows(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAGrantThatCannotBeWrittenDownDoesNotHappen(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	b.exec(t, "DROP TABLE audit_log")
	_, err := b.d.GrantRole(as(t.Context(), "user:root"), grantInput(allow("user:x", "fleet-admin", "compute-fleet")))
	if err == nil {
		t.Error("no error")
	}
	if got := b.bindings(t); len(got) != 1 {
		t.Errorf("bindings are %v", got)
	}
}

func TestInputOfABinding(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	ctx := as(t.Context(), "user:root")
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		binding model.RoleBinding
		want    string // the paths that grant complains about
	}{
		{allow("user:"+long, "fleet-admin", "compute-fleet"), ""},
		{allow("user:~!", "provider-viewer", "compute-tenant/"+long[:128]), ""},
		{allow("group:a:b", "provider-viewer", "compute-tenant/A.b_c:d-1"), ""},
		{allow("service:s", "tenant-admin", "compute-pool/"+pool1), ""},
		{allow("user:"+long+"x", "fleet-admin", "compute-fleet"), "subject"},
		{allow("", "", ""), "subject object role"},
		{allow("user:", "fleet-admin", "compute-fleet"), "subject"},
		{allow("fleet-admin", "fleet-admin", "compute-fleet"), "subject"},
		{allow("role:x", "fleet-admin", "compute-fleet"), "subject"},
		{allow("User:x", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:a b", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:a\n", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:a\x00", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:a\x7f", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:\u0430dmin", "fleet-admin", "compute-fleet"), "subject"}, // a Cyrillic a
		{allow("user:\xff", "fleet-admin", "compute-fleet"), "subject"},
		{allow("user:x", "Fleet-Admin", "compute-fleet"), "role"},
		{allow("user:x", "fleet-admin\n", "compute-fleet"), "role"},
		{allow("user:x", "*", "compute-fleet"), "role"},
		{allow("user:x", "fleet-admin", "compute-fleet/"), "object"},
		{allow("user:x", "fleet-admin", "compute-tenant/"), "object"},
		{allow("user:x", "fleet-admin", "compute-tenant/*"), "object"},
		{allow("user:x", "fleet-admin", "compute-tenant/a/b"), "object"},
		{allow("user:x", "fleet-admin", "compute-tenant/a\n"), "object"},
		{allow("user:x", "fleet-admin", "compute-tenant/"+long[:129]), "object"},
		{allow("user:x", "fleet-admin", "compute-provider-account/"+pool1), "object"},
		{allow("user:x", "fleet-admin", "compute-provider-account/pacct_1"), "object"},
		{allow("user:x", "fleet-admin", "compute-pool/"+strings.ToUpper(pool1)), "object"},
		{model.RoleBinding{Subject: "user:x", Role: "fleet-admin", Object: "compute-fleet"}, "effect"},
		{model.RoleBinding{Subject: "x", Role: "x", Object: "x", Effect: "x"}, "subject object effect role"},
	} {
		_, err := b.d.GrantRole(ctx, grantInput(c.binding))
		if got := issuePaths(t, err); got != c.want {
			t.Errorf("grant %q: issues at %q, want %q", c.binding, got, c.want)
		}
		_, err = Grant(t.Context(), b.db, "cli", c.binding)
		if got := issuePaths(t, err); got != c.want {
			t.Errorf("operator's grant %q: issues at %q, want %q", c.binding, got, c.want)
		}
		if strings.Contains(c.want, "role") {
			continue // revoke asks for a form only
		}
		if _, err = b.d.RevokeRole(ctx, revokeInput(c.binding)); issuePaths(t, err) != c.want {
			t.Errorf("revoke %q: %v, want issues at %q", c.binding, err, c.want)
		}
	}
	b.insert(t, allow("user:x", "gone-role", "compute-fleet"))
	revoked, err := b.d.RevokeRole(ctx, revokeInput(allow("user:x", "gone-role", "compute-fleet")))
	if err != nil || !revoked {
		t.Errorf("a binding that outlived its role: revoked = %v, %v", revoked, err)
	}
	_, err = b.d.RevokeRole(ctx, revokeInput(allow("user:x", "a\x00", "compute-fleet")))
	wantCode(t, err, problem.InvalidInput)
}

func issuePaths(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	wantCode(t, err, problem.InvalidInput)
	issues, _ := problem.From(err).Details["issues"].([]problem.Issue)
	paths := make([]string, len(issues))
	for i, issue := range issues {
		paths[i] = issue.Path
	}
	return strings.Join(paths, " ")
}

func TestOperator(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	wanted := []model.RoleBinding{
		allow("user:b", "provider-viewer", "compute-tenant/t"), allow("user:a", "fleet-admin", "compute-fleet"),
		deny("user:a", "fleet-admin", "compute-fleet"),
	}
	err := EnsureBindings(ctx, b.db, append(wanted, allow("x", "fleet-admin", "compute-fleet"), allow("user:x", "none", "compute-fleet")))
	if got := issuePaths(t, err); got != "bindings.3.subject bindings.4.role" {
		t.Errorf("issues at %q", got)
	}
	if got := b.bindings(t); len(got) != 0 {
		t.Errorf("a list with a mistake in it was half made: %v", got)
	}
	for range 2 {
		if err := EnsureBindings(ctx, b.db, wanted); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []bool{true, false} {
		got, err := Grant(ctx, b.db, "system:cli", allow("user:c", "tenant-admin", "compute-tenant/t"))
		if err != nil || got != want {
			t.Fatalf("granted = %v, %v, want %v", got, err, want)
		}
	}
	for _, want := range []bool{true, false} {
		got, err := Revoke(ctx, b.db, "system:cli", deny("user:a", "fleet-admin", "compute-fleet"))
		if err != nil || got != want {
			t.Fatalf("revoked = %v, %v, want %v", got, err, want)
		}
	}
	want := []model.RoleBinding{wanted[1], wanted[0], allow("user:c", "tenant-admin", "compute-tenant/t")}
	if diff := cmp.Diff(want, b.bindings(t)); diff != "" {
		t.Error(diff)
	}
	only, err := List(ctx, b.db, "user:b")
	if diff := cmp.Diff([]model.RoleBinding{wanted[0]}, only); diff != "" || err != nil {
		t.Error(diff, err)
	}
	wantRows := []auditRow{
		{"t", Configuration, "grantRole", "compute-tenant/t", "allowed", ""},
		{"", Configuration, "grantRole", "compute-fleet", "allowed", ""},
		{"", Configuration, "grantRole", "compute-fleet", "allowed", ""},
		{"t", "system:cli", "grantRole", "compute-tenant/t", "allowed", ""},
		{"t", "system:cli", "grantRole", "compute-tenant/t", "replayed", ""},
		{"", "system:cli", "revokeRole", "compute-fleet", "allowed", ""},
		{"", "system:cli", "revokeRole", "compute-fleet", "replayed", ""},
	}
	if diff := cmp.Diff(wantRows, b.auditRows(t)); diff != "" {
		t.Error(diff)
	}
}

// Two administrators who revoke each other at once: never do both lose their rights, because the second decision is
// taken on what the first one left.
func TestTwoWhoRevokeEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := allow("user:one", "fleet-admin", "compute-fleet"), allow("user:two", "fleet-admin", "compute-fleet")
	for range 50 {
		b.exec(t, "INSERT INTO role_bindings VALUES ('user:one', 'fleet-admin', 'compute-fleet', 'allow'), "+
			"('user:two', 'fleet-admin', 'compute-fleet', 'allow') ON CONFLICT DO NOTHING")
		done := make(chan error)
		go func() {
			_, err := b.d.RevokeRole(as(t.Context(), "user:one"), revokeInput(two))
			done <- err
		}()
		_, err1 := b.d.RevokeRole(as(t.Context(), "user:two"), revokeInput(one))
		err2 := <-done
		if (err1 == nil) == (err2 == nil) {
			t.Fatalf("exactly one must win, got %v and %v", err1, err2)
		}
		if left := b.bindings(t); len(left) != 1 {
			t.Fatalf("left: %v", left)
		}
	}
}

// TestNoGrantOutlivesItsObject makes a binding on an account that is just being deleted: one with the same id may come later.
func TestNoGrantOutlivesItsObject(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:a", "tenant-admin", "compute-tenant/a"))
	b.withItems(t)
	object := "compute-provider-account/" + account1
	granted := make(chan error, 1)
	err := b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw("SELECT FROM provider_accounts WHERE id = ? FOR UPDATE", account1).Exec(ctx); err != nil {
			return err
		}
		go func() {
			_, err := b.d.GrantRole(WithActor(t.Context(), Actor{Subject: "user:a"}), grantInput(allow("user:late", "provider-viewer", object)))
			granted <- err
		}()
		for waiting := false; !waiting; {
			err := tx.NewRaw("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))").Scan(ctx, &waiting)
			if err != nil {
				return err
			}
		}
		if err := Forget(ctx, tx, ProviderAccount("a", account1)); err != nil {
			return err
		}
		_, err := tx.NewRaw("DELETE FROM provider_accounts WHERE id = ?", account1).Exec(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-granted; !problem.Is(err, problem.Forbidden) {
		t.Errorf("the grant ended with %v, want FORBIDDEN as for an account that never was", err)
	}
	var left int
	if err := b.db.NewRaw("SELECT count(*) FROM role_bindings WHERE object = ?", object).Scan(t.Context(), &left); err != nil || left != 0 {
		t.Errorf("%d bindings are left on the account, %v", left, err)
	}
}

// What one tenant's administrators bind somebody to is read with every decision about them, in other tenants as well.
func TestBindingsOfASubjectInATenantAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:a", "tenant-admin", "compute-tenant/a"), allow("user:b", "tenant-admin", "compute-tenant/b"),
		allow("user:victim", "provider-viewer", "compute-tenant/b"))
	b.withItems(t)
	b.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) SELECT 'pool_' || n, 'a', 'p' || n, 'vps', 'none' FROM generate_series(1, ?) n", maxBindings-1)
	b.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) SELECT 'user:victim', 'provider-viewer', 'compute-pool/pool_' || n, 'deny' FROM generate_series(1, ?) n",
		maxBindings-1)
	grant := func(caller string, binding model.RoleBinding) error {
		_, err := b.d.GrantRole(as(t.Context(), caller), grantInput(binding))
		return err
	}
	last := allow("user:victim", "provider-viewer", "compute-provider-account/"+account1)
	for range 2 { // the second time nothing is added
		if err := grant("user:a", last); err != nil {
			t.Fatal(err)
		}
	}
	before := b.bindings(t)
	for _, effect := range []func(subject, role, object string) model.RoleBinding{allow, deny} {
		wantCode(t, grant("user:a", effect("user:victim", "provider-viewer", "compute-pool/"+pool1)), problem.InvalidState)
	}
	if !cmp.Equal(before, b.bindings(t)) {
		t.Error("a refused grant changed bindings")
	}
	for _, binding := range []model.RoleBinding{deny("user:victim", "tenant-admin", "compute-tenant/a"), allow("user:victim", "provider-viewer", "compute-tenant/a")} {
		if err := grant("user:a", binding); err != nil {
			t.Errorf("%s on the tenant itself: %v", binding.Effect, err)
		}
	}
	if err := grant("user:b", allow("user:victim", "provider-manager", "compute-provider-account/"+account2)); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := grant("user:a", allow("user:other", "provider-viewer", "compute-tenant/a")); err != nil {
		t.Errorf("another subject: %v", err)
	}
	if _, err := b.d.RevokeRole(as(t.Context(), "user:a"), revokeInput(last)); err != nil {
		t.Fatal(err)
	}
	if err := grant("user:a", allow("user:victim", "provider-viewer", "compute-pool/"+pool1)); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
}

// A decision reads what each group of its caller is bound to, so that many groups with few bindings each are as dear as one subject with many.
func TestBindingsOfGroupsInATenantAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:a", "tenant-admin", "compute-tenant/a"), allow("user:b", "tenant-admin", "compute-tenant/b"))
	b.withItems(t)
	b.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) SELECT 'pool_' || n, 'a', 'p' || n, 'vps', 'none' FROM generate_series(1, 20) n")
	b.exec(t, `INSERT INTO role_bindings (subject, role, object, effect) SELECT 'group:g' || g, 'provider-viewer', 'compute-pool/pool_' || n, 'deny'
		FROM generate_series(1, ?) g, generate_series(1, 20) n LIMIT ?`, maxGroupBindings/20, maxGroupBindings-1)
	grant := func(caller string, binding model.RoleBinding) error {
		_, err := b.d.GrantRole(as(t.Context(), caller), grantInput(binding))
		return err
	}
	last := allow("group:last", "provider-viewer", "compute-provider-account/"+account1)
	for range 2 { // the second time nothing is added
		if err := grant("user:a", last); err != nil {
			t.Fatal(err)
		}
	}
	before := b.bindings(t)
	wantCode(t, grant("user:a", deny("group:more", "provider-viewer", "compute-pool/"+pool1)), problem.InvalidState)
	wantCode(t, grant("user:b", deny("group:more", "provider-viewer", "compute-pool/"+pool1)), problem.Forbidden)
	if !cmp.Equal(before, b.bindings(t)) {
		t.Error("a refused grant changed bindings")
	}
	for caller, binding := range map[string]model.RoleBinding{
		"user:a": deny("group:more", "tenant-admin", "compute-tenant/a"),
		"user:b": allow("group:more", "provider-viewer", "compute-provider-account/"+account2),
	} {
		if err := grant(caller, binding); err != nil {
			t.Errorf("%s on %s: %v", caller, binding.Object, err)
		}
	}
	if err := grant("user:a", deny("user:victim", "provider-viewer", "compute-pool/"+pool1)); err != nil {
		t.Errorf("no group: %v", err)
	}
}
