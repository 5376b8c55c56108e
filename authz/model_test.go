package authz

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/uptrace/bun"
	"pgregory.net/rapid"

	"better/compute/internal/problem"
	"better/compute/model"
)

// reference is what the contract says, without Casbin, maps of objects or caches, and apart from that the one exception to it.
type reference struct {
	bindings []model.RoleBinding
	defined  map[string][]Permission
}

func (r reference) may(role string) []Permission {
	builtIn := map[string][]Permission{
		"fleet-admin": AllPermissions(), "tenant-admin": AllPermissions(),
		"provider-manager": {ProvidersRead, ProvidersManage, PoolsRead}, "provider-viewer": {ProvidersRead, PoolsRead},
	}
	if may, ok := builtIn[role]; ok {
		return may
	}
	return r.defined[role]
}

// decides is what a Decider must say.
func (r reference) decides(a Actor, p Permission, chain ...string) bool {
	return r.exempt(a, p, chain...) || r.allows(a, p, chain...)
}

// exempt is the exception that docs/authorization.md tells: who administers the fleet is kept by nobody below it from putting a tenant right.
func (r reference) exempt(a Actor, p Permission, chain ...string) bool {
	const fleet = "compute-fleet"
	return p == IAMManage && len(chain) > 1 && r.allows(a, p, fleet)
}

// allows is the contract's rule: a grant holds for its object and all below, and a denial beats every grant.
func (r reference) allows(a Actor, p Permission, chain ...string) bool {
	allowed := false
	for _, b := range r.bindings {
		mine := b.Subject == a.Subject || slices.Contains(a.Groups, b.Subject) && b.Subject[:min(6, len(b.Subject))] == "group:"
		if !mine || !slices.Contains(chain, b.Object) || !slices.Contains(r.may(b.Role), p) {
			continue
		}
		if b.Effect == model.Deny {
			return false
		}
		allowed = true
	}
	return allowed
}

// Names that are likely to be taken for one another.
var (
	modelTenants  = []string{"1", "12", "1*", ".*", "fleet-admin", "compute-fleet", "a:b", "A:b"}
	modelItems    = []string{"pacct_1", "pacct_12", "pacct_", "*", "compute-tenant/1"}
	modelSubjects = []string{"user:a", "user:ab", "user:A", "service:a", "group:a", "group:fleet-admin", "user:fleet-admin", "user:*"}
	modelGroups   = []string{"group:a", "group:fleet-admin", "a", "user:a", "user:fleet-admin", ""}
	modelRoles    = []string{"fleet-admin", "tenant-admin", "provider-manager", "provider-viewer", "user:a", "*", "gone", "", "made", "made-too"}
)

func drawObject(t *rapid.T) Object {
	tenant, item := rapid.SampledFrom(modelTenants).Draw(t, "tenant"), rapid.SampledFrom(modelItems).Draw(t, "item")
	return rapid.SampledFrom([]Object{Fleet(), Tenant(tenant), ProviderAccount(tenant, item), Pool(tenant, item)}).Draw(t, "object")
}

func drawBinding(t *rapid.T) model.RoleBinding {
	return model.RoleBinding{
		Subject: rapid.SampledFrom(append(modelSubjects, "fleet-admin", "a", "")).Draw(t, "subject"),
		Role:    rapid.SampledFrom(modelRoles).Draw(t, "role"),
		Object:  drawObject(t).String(),
		Effect:  rapid.SampledFrom([]model.BindingEffect{model.Allow, model.Allow, model.Deny}).Draw(t, "effect"),
	}
}

func drawActor(t *rapid.T) Actor {
	return Actor{
		Subject: rapid.SampledFrom(modelSubjects).Filter(func(s string) bool { return s[:6] != "group:" }).Draw(t, "actor"),
		Groups:  rapid.SliceOfN(rapid.SampledFrom(modelGroups), 0, 3).Draw(t, "groups"),
	}
}

func sameAsReference(ctx context.Context, t *rapid.T, d *Decider, ref reference) {
	actor, p := drawActor(t), rapid.SampledFrom(AllPermissions()).Draw(t, "permission")
	tenant, item := rapid.SampledFrom(modelTenants).Draw(t, "of tenant"), rapid.SampledFrom(modelItems).Draw(t, "of item")
	ctx = WithActor(ctx, actor)
	chain := []string{"compute-provider-account/" + item, "compute-tenant/" + tenant, "compute-fleet"}
	for i, o := range []Object{ProviderAccount(tenant, item), Tenant(tenant), Fleet()} {
		want := ref.decides(actor, p, chain[i:]...)
		if err := d.Check(ctx, p, o); (err == nil) != want || err != nil && !problem.Is(err, problem.Forbidden) {
			t.Fatalf("%v %s on %s: %v, want allowed = %v by %v", actor, p, o, err, want, ref)
		}
	}
	f, err := d.Filter(ctx, p, tenant, ProviderAccounts)
	if err != nil && !problem.Is(err, problem.Forbidden) {
		t.Fatal(err)
	}
	for _, item := range modelItems {
		want := ref.decides(actor, p, "compute-provider-account/"+item, "compute-tenant/"+tenant, "compute-fleet")
		if f.Allows(item) != want {
			t.Fatalf("%v %s on item %s of %s: listed = %v, want %v by %v", actor, p, item, tenant, !want, want, ref)
		}
	}
}

func drawReference(t *rapid.T) reference {
	permissions := rapid.SliceOfNDistinct(rapid.SampledFrom(AllPermissions()), 1, -1, rapid.ID)
	return reference{
		bindings: rapid.SliceOfNDistinct(rapid.Custom(drawBinding), 1, 30, rapid.ID).Draw(t, "bindings"),
		defined:  rapid.MapOfN(rapid.SampledFrom([]string{"made", "made-too"}), permissions, 0, 2).Draw(t, "defined"),
	}
}

// A Decider against the contract, on bindings that nobody sane would make. It reads the bindings for each decision.
func TestDecisionsAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		ref := drawReference(rt)
		if err := b.become(t.Context(), ref); err != nil {
			rt.Fatal(err)
		}
		for range 5 {
			sameAsReference(t.Context(), rt, b.d, ref)
		}
	})
}

// become makes roles and bindings those of the reference.
func (b *bundle) become(ctx context.Context, ref reference) error {
	return b.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error { return ref.write(ctx, tx) })
}

func (r reference) write(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.NewRaw("DELETE FROM role_bindings; DELETE FROM roles").Exec(ctx); err != nil {
		return err
	}
	for name, permissions := range r.defined {
		if _, err := upsertRole(ctx, tx, "user:test", model.Role{Name: name, Permissions: permissions}); err != nil {
			return err
		}
	}
	if len(r.bindings) == 0 {
		return nil
	}
	_, err := tx.NewInsert().Model(&r.bindings).Exec(ctx)
	return err
}

// The rule alone, without a database: a hundred thousand decisions in the time of a few.
func TestRuleIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	roles, err := loadRoles(policyText)
	if err != nil {
		t.Fatal(err)
	}
	decisions, exceptions := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		ref := drawReference(rt)
		for range 20 {
			actor := drawActor(rt)
			held := ref.held(rt, roles, actor)
			for _, tenant := range modelTenants {
				for _, o := range []Object{ProviderAccount(tenant, rapid.SampledFrom(modelItems).Draw(rt, "item")), Tenant(tenant), Fleet()} {
					for _, p := range AllPermissions() {
						decisions++
						got, want := decide(held, p, o) == granted, ref.decides(actor, p, o.chain()...)
						if got != want {
							rt.Fatalf("%v %s on %s: %v, want %v by %v", actor, p, o, got, want, ref)
						}
						if got != ref.allows(actor, p, o.chain()...) {
							exceptions++
						}
					}
				}
			}
		}
	})
	fmt.Printf("authz-model decisions=%d exceptions=%d wrong=0 %s\n", decisions, exceptions,
		map[bool]string{true: "FAIL", false: "PASS"}[t.Failed() || decisions < 100_000])
}

// The exception in full: it is one to a denial below the fleet, for the right to administer, and for who has that on the fleet.
func TestOneDenialDoesNotBeatAGrant(t *testing.T) {
	t.Parallel()
	roles, err := loadRoles(policyText)
	if err != nil {
		t.Fatal(err)
	}
	item := ProviderAccount("t", "pacct_1")
	for _, c := range []struct {
		granted, denied Object
		on              Object
		exempt          bool
	}{
		{Fleet(), Tenant("t"), Tenant("t"), true},
		{Fleet(), Tenant("t"), item, true},
		{Fleet(), item, item, true},
		{Fleet(), Fleet(), item, false},
		{Fleet(), Fleet(), Fleet(), false},
		{Tenant("t"), item, item, false},
		{Tenant("t"), Tenant("t"), item, false},
	} {
		ref := reference{bindings: []model.RoleBinding{
			{Subject: "user:a", Role: "tenant-admin", Object: c.granted.String(), Effect: model.Allow},
			{Subject: "user:a", Role: "tenant-admin", Object: c.denied.String(), Effect: model.Deny},
		}}
		a := Actor{Subject: "user:a"}
		held := ref.held(t, roles, a)
		for _, p := range AllPermissions() {
			if ref.allows(a, p, c.on.chain()...) {
				t.Errorf("the contract's rule allows %s on %s by %v", p, c.on, ref)
			}
			if got, want := decide(held, p, c.on) == granted, c.exempt && p == IAMManage; got != want {
				t.Errorf("%s on %s: %v, want %v by %v", p, c.on, got, want, ref)
			}
		}
	}
}

// held is what a Decider would read.
func (r reference) held(t rapid.TB, roles *roles, a Actor) []bindingsOf {
	var rows []policyRow
	for _, b := range r.bindings {
		row := policyRow{RoleBinding: b}
		if defined, ok := r.defined[b.Role]; ok {
			row.Permissions = texts(defined)
		}
		rows = append(rows, row)
	}
	bindings, err := roles.bySubject(a.subjects(), rows)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Values(bindings))
}
