package authz

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
	"better/compute/model"
)

func roleInput(name string, permissions ...Permission) model.DefineRoleInput {
	return model.DefineRoleInput{Name: name, Permissions: permissions}
}

func (b *bundle) define(t testing.TB, name string, permissions ...Permission) {
	t.Helper()
	if _, err := Define(t.Context(), b.db, "system:test", roleInput(name, permissions...)); err != nil {
		t.Fatal(err)
	}
}

func TestDefinedRoleIsOneLikeTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	root := as(t.Context(), "user:root")
	about := "Writes 'pools' \\ \"all\" of them, ?0 ünd nothing else"
	want := &model.Role{Name: "pool-writer", Description: about, Permissions: []Permission{PoolsRead, PoolsManage}}
	got, err := b.d.DefineRole(root, model.DefineRoleInput{Name: "pool-writer", Description: &about, Permissions: []Permission{PoolsManage, PoolsRead}})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	if _, err := b.d.DefineRole(root, roleInput("auditor", AuditRead)); err != nil {
		t.Fatal(err)
	}
	all, err := b.d.Roles(as(t.Context(), "user:anybody"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
		if r.BuiltIn != (len(names) <= 4) || len(r.Permissions) == 0 || r.BuiltIn && r.Description == "" {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(names, " "); got != "fleet-admin provider-manager provider-viewer tenant-admin auditor pool-writer" {
		t.Errorf("roles are %s", got)
	}
	if diff := cmp.Diff(want, all[5]); diff != "" {
		t.Error(diff)
	}
	if _, err := b.d.GrantRole(root, grantInput(allow("user:w", "pool-writer", "compute-tenant/t"))); err != nil {
		t.Fatal(err)
	}
	held, err := b.d.Permissions(as(t.Context(), "user:w"), Pool("t", pool1))
	if diff := cmp.Diff([]Permission{PoolsRead, PoolsManage}, held); diff != "" || err != nil {
		t.Error(diff, err)
	}
	_, err = b.d.Roles(t.Context())
	wantCode(t, err, problem.Unauthenticated)
}

func TestInputOfARole(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		in   model.DefineRoleInput
		want string
	}{
		{roleInput("a", PoolsRead), ""},
		{roleInput("a"+strings.Repeat("-", 62), PoolsRead), ""},
		{model.DefineRoleInput{Name: "b", Description: text(strings.Repeat("ü", 200)), Permissions: AllPermissions()}, ""},
		{model.DefineRoleInput{Name: "b", Description: text(strings.Repeat("ü", 201)), Permissions: AllPermissions()}, "description"},
		{model.DefineRoleInput{Name: "b", Permissions: slices.Repeat(AllPermissions(), 700)}, "permissions"},
		{model.DefineRoleInput{Name: "b", Description: text("a\x00"), Permissions: AllPermissions()}, "description"},
		{model.DefineRoleInput{Name: "b", Description: text("a\nb"), Permissions: AllPermissions()}, "description"},
		{model.DefineRoleInput{Name: "b", Description: text("\xff"), Permissions: AllPermissions()}, "description"},
		{roleInput("a" + strings.Repeat("-", 62)), "permissions"},
		{roleInput("a"+strings.Repeat("-", 63), PoolsRead), "name"},
		{roleInput("", PoolsRead), "name"},
		{roleInput("A", PoolsRead), "name"},
		{roleInput("a\n", PoolsRead), "name"},
		{roleInput("a, compute:pools:manage, allow\np, a", PoolsRead), "name"},
		{roleInput("fleet-admin", PoolsRead), "name"},
		{roleInput("provider-viewer", PoolsRead), "name"},
		{roleInput("a", PoolsRead, "compute:pools:all", PoolsRead, ""), "permissions.1 permissions.2 permissions.3"},
		{model.DefineRoleInput{Name: "*", Description: text("\n")}, "name description permissions"},
	} {
		_, err := b.d.DefineRole(as(t.Context(), "user:root"), c.in)
		if got := issuePaths(t, err); got != c.want {
			t.Errorf("%+v: issues at %q, want %q", c.in, got, c.want)
		}
		_, err = Define(t.Context(), b.db, "cli", c.in)
		if got := issuePaths(t, err); got != c.want {
			t.Errorf("operator's %+v: issues at %q, want %q", c.in, got, c.want)
		}
	}
	for _, name := range []string{"fleet-admin", "", "a\x00"} {
		_, err := b.d.DeleteRole(as(t.Context(), "user:root"), model.DeleteRoleInput{Name: name})
		if got := issuePaths(t, err); got != "name" {
			t.Errorf("delete %q: issues at %q", name, got)
		}
		if _, err = Undefine(t.Context(), b.db, "cli", name); issuePaths(t, err) != "name" {
			t.Errorf("operator's delete of %q: %v", name, err)
		}
	}
	_, err := b.d.DefineRole(t.Context(), roleInput("", "x"))
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.d.DeleteRole(t.Context(), model.DeleteRoleInput{})
	wantCode(t, err, problem.Unauthenticated)
}

func TestUnknownRoleIsToldTheKnownOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.define(t, "made", PoolsRead)
	_, err := b.d.GrantRole(as(t.Context(), "user:stranger"), grantInput(allow("user:x", "gone", "compute-fleet")))
	wantCode(t, err, problem.InvalidInput)
	issues, _ := problem.From(err).Details["issues"].([]problem.Issue)
	if len(issues) != 1 || !strings.Contains(issues[0].Message, "tenant-admin, made") {
		t.Errorf("issues are %v", issues)
	}
	_, err = b.d.GrantRole(t.Context(), grantInput(allow("user:x", "gone", "compute-fleet")))
	wantCode(t, err, problem.Unauthenticated)
}

// Nobody gives more than they hold, also not by changing what a role is.
func TestWhoMayDefineARole(t *testing.T) {
	t.Parallel()
	bindings := []model.RoleBinding{
		allow("user:fleet", "fleet-admin", "compute-fleet"),
		allow("group:admins", "fleet-admin", "compute-fleet"),
		allow("user:iam", "iam-only", "compute-fleet"),
		allow("user:tenant", "tenant-admin", "compute-tenant/a"),
		allow("user:hole", "fleet-admin", "compute-fleet"), deny("user:hole", "pools-only", "compute-tenant/a"),
		allow("user:barred", "fleet-admin", "compute-fleet"), deny("user:barred", "iam-only", "compute-fleet"),
		allow("user:someone", "given", "compute-tenant/a"), deny("user:someone", "held-back", "compute-tenant/b"),
		allow("user:someone", "both", "compute-tenant/a"), deny("user:someone", "both", "compute-tenant/b"),
		allow("user:someone", "not-yet", "compute-tenant/a"),
	}
	for _, c := range []struct {
		actor Actor
		in    model.DefineRoleInput
		want  string
	}{
		{Actor{Subject: "user:fleet"}, roleInput("new", AllPermissions()...), ""},
		{Actor{Subject: "user:fleet"}, roleInput("given", AllPermissions()...), ""},
		{Actor{Subject: "user:member", Groups: []string{"group:admins"}}, roleInput("given", AllPermissions()...), ""},
		{Actor{Subject: "user:fleet"}, roleInput("held-back", AuditRead), ""},
		{Actor{Subject: "user:nobody"}, roleInput("new", PoolsRead), "iam:manage compute-fleet"},
		{Actor{Subject: "user:tenant"}, roleInput("new", PoolsRead), "iam:manage compute-fleet"},
		{Actor{Subject: "user:barred"}, roleInput("new", PoolsRead), "iam:manage compute-fleet"},
		// Nobody is bound: nobody gets anything yet, and who binds somebody must hold it then.
		{Actor{Subject: "user:iam"}, roleInput("new", AllPermissions()...), ""},
		// One more for those who have it, one less for those from whom it is held back.
		{Actor{Subject: "user:iam"}, roleInput("given", PoolsRead, ProvidersRead), "providers:read compute-fleet"},
		{Actor{Subject: "user:iam"}, roleInput("given", PoolsRead, IAMManage), ""},
		{Actor{Subject: "user:iam"}, roleInput("given", IAMManage), ""},
		{Actor{Subject: "user:iam"}, roleInput("held-back", PoolsRead, PoolsManage, ProvidersRead), ""},
		{Actor{Subject: "user:iam"}, roleInput("held-back", PoolsRead), "pools:manage compute-fleet"},
		{Actor{Subject: "user:iam"}, roleInput("both", PoolsRead, ProvidersRead), "providers:read compute-fleet"},
		{Actor{Subject: "user:iam"}, roleInput("both", IAMManage), "pools:read compute-fleet"},
		{Actor{Subject: "user:iam"}, roleInput("not-yet", PoolsRead), "pools:read compute-fleet"},
		// A denial below the fleet counts for nobody who administers that.
		{Actor{Subject: "user:hole"}, roleInput("given", PoolsRead, PoolsManage), ""},
		{Actor{Subject: "user:hole"}, roleInput("given", PoolsRead, AuditRead), ""},
	} {
		t.Run(fmt.Sprintf("%s %v", c.actor.Subject, c.in), func(t *testing.T) {
			t.Parallel()
			b := setup(t, bindings...)
			b.define(t, "iam-only", IAMManage)
			b.define(t, "pools-only", PoolsRead, PoolsManage)
			b.define(t, "given", PoolsRead)
			b.define(t, "held-back", PoolsRead, PoolsManage)
			b.define(t, "both", PoolsRead)
			before := b.roles(t)
			_, err := b.d.DefineRole(WithActor(t.Context(), c.actor), c.in)
			wantShortfall(t, "define", err, c.want)
			if c.want != "" && !cmp.Equal(before, b.roles(t)) {
				t.Error("a refused definition changed roles")
			}
		})
	}
}

func (b *bundle) roles(t testing.TB) []*model.Role {
	t.Helper()
	all, err := ListRoles(t.Context(), b.db)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDeleteARole(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"), allow("user:a", "made", "compute-tenant/b"), deny("group:b", "made", "compute-tenant/a"))
	b.define(t, "made", PoolsRead)
	in := model.DeleteRoleInput{Name: "made"}
	_, err := b.d.DeleteRole(as(t.Context(), "user:a"), in)
	wantShortfall(t, "delete", err, "iam:manage compute-fleet")
	root := as(t.Context(), "user:root")
	_, err = b.d.DeleteRole(root, in)
	wantCode(t, err, problem.InvalidState)
	want := []blocker{{"role-binding", "compute-tenant/a", "group:b"}, {"role-binding", "compute-tenant/b", "user:a"}}
	if diff := cmp.Diff(any(want), problem.From(err).Details["blockers"]); diff != "" {
		t.Error(diff)
	}
	b.exec(t, "INSERT INTO role_bindings SELECT 'user:' || n, 'made', 'compute-fleet', 'allow' FROM generate_series(1, 30) n")
	_, err = Undefine(t.Context(), b.db, "cli", "made")
	if blockers, _ := problem.From(err).Details["blockers"].([]blocker); len(blockers) != 20 {
		t.Errorf("%d blockers are listed: %v", len(blockers), err)
	}
	b.exec(t, "DELETE FROM role_bindings WHERE role = 'made'")
	for _, want := range []bool{true, false} {
		if got, err := b.d.DeleteRole(root, in); err != nil || got != want {
			t.Errorf("deleted = %v, %v, want %v", got, err, want)
		}
	}
}

func TestRolesAreWrittenDown(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	ctx := WithRequestID(as(t.Context(), "user:root"), "req-9")
	version := func() (v int64) {
		if err := b.db.NewRaw("SELECT version FROM policy_version").Scan(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	var versions []int64
	for _, permissions := range [][]Permission{{PoolsRead}, {PoolsRead}, {PoolsManage}} {
		if _, err := b.d.DefineRole(ctx, roleInput("made", permissions...)); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version())
	}
	for range 2 {
		if _, err := b.d.DeleteRole(ctx, model.DeleteRoleInput{Name: "made"}); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version())
	}
	first := versions[0]
	if diff := cmp.Diff([]int64{first, first, first + 1, first + 2, first + 2}, versions); diff != "" {
		t.Errorf("a change moves the version by one, and a repeat does not: %s", diff)
	}
	row := func(action, outcome string) auditRow {
		return auditRow{"", "user:root", action, "compute-role/made", outcome, "req-9"}
	}
	want := []auditRow{
		row("defineRole", "allowed"), row("defineRole", "replayed"), row("defineRole", "allowed"),
		row("deleteRole", "allowed"), row("deleteRole", "replayed"),
	}
	if diff := cmp.Diff(want, b.auditRows(t)); diff != "" {
		t.Error(diff)
	}
	b.exec(t, "DROP TABLE audit_log CASCADE")
	if _, err := b.d.DefineRole(ctx, roleInput("made", PoolsRead)); err == nil || len(b.roles(t)) != 4 {
		t.Errorf("a role that could not be written down was defined: %v", err)
	}
}

func TestThereAreOnlySoManyRoles(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	b.exec(t, `INSERT INTO roles (name, permissions, created_by, updated_by)
		SELECT 'made-' || n, '{compute:pools:read}', '', '' FROM generate_series(1, 100) n`)
	root := as(t.Context(), "user:root")
	_, err := b.d.DefineRole(root, roleInput("one-more", PoolsRead))
	wantCode(t, err, problem.InvalidState)
	if _, err := b.d.DefineRole(root, roleInput("made-7", PoolsManage)); err != nil {
		t.Errorf("changing one of them: %v", err)
	}
}

// A role is deleted while somebody is being bound to it: one of the two is refused, and nobody is left with a role that is not there.
func TestDeleteBesideGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"))
	root := as(t.Context(), "user:root")
	granted, deleted := 0, 0
	for range 50 {
		b.define(t, "made", PoolsRead)
		done := make(chan error)
		go func() {
			_, err := b.d.GrantRole(root, grantInput(allow("user:x", "made", "compute-fleet")))
			done <- err
		}()
		_, deleteErr := b.d.DeleteRole(root, model.DeleteRoleInput{Name: "made"})
		grantErr := <-done
		if (grantErr == nil) == (deleteErr == nil) {
			t.Fatalf("exactly one must win, got %v and %v", grantErr, deleteErr)
		}
		if grantErr == nil {
			granted++
			wantCode(t, deleteErr, problem.InvalidState)
		} else {
			deleted++
			wantCode(t, grantErr, problem.InvalidInput)
		}
		b.exec(t, "DELETE FROM role_bindings WHERE role = 'made'")
	}
	t.Logf("granted %d, deleted %d", granted, deleted)
}

func TestReplicaFollowsARole(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:v", "made", "compute-tenant/t"), allow("group:g", "made", "compute-tenant/t"))
	replica := follow(t, newDecider(t, b.db))
	changes := replica.Changes(t.Context(), Actor{Subject: "user:v"}, "t")
	for i := range 6 {
		warm(t, replica, "user:v", false)
		b.define(t, "made", PoolsRead)
		wantWithinASecond(t, replica, "user:v", true)
		receive(t, changes)
		warm(t, replica, "user:v", true)
		if i%2 == 0 {
			b.killLink(t)
		}
		b.exec(t, "DELETE FROM roles")
		wantWithinASecond(t, replica, "user:v", false)
	}
	b.define(t, "made", PoolsRead)
	wantWithinASecond(t, replica, "user:v", true)
	b.exec(t, "TRUNCATE roles")
	wantWithinASecond(t, replica, "user:v", false)
}

// What this version does not know of a role it passes over.
func TestPermissionOfALaterVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:v", "made", "compute-fleet"), allow("user:w", "later", "compute-fleet"))
	b.exec(t, `INSERT INTO roles (name, permissions, created_by, updated_by)
		VALUES ('made', '{compute:later:do,compute:pools:read}', '', ''), ('later', '{compute:later:do}', '', '')`)
	held, err := b.d.Permissions(as(t.Context(), "user:v"), Fleet())
	if err != nil || !slices.Equal(held, []Permission{PoolsRead}) {
		t.Errorf("held are %v, %v", held, err)
	}
	held, err = b.d.Permissions(as(t.Context(), "user:w"), Fleet())
	if err != nil || len(held) != 0 {
		t.Errorf("held are %v, %v", held, err)
	}
	for _, r := range b.roles(t) {
		if want := map[string]int{"made": 1, "later": 0}; !r.BuiltIn && len(r.Permissions) != want[r.Name] {
			t.Errorf("%+v", r)
		}
	}
}
