package authz

import (
	"context"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"better/compute/internal/problem"
	"better/compute/model"
)

// reference is what the contract says, without Casbin, maps or caches.
type reference []model.RoleBinding

func (r reference) allows(a Actor, p Permission, chain ...string) bool {
	may := map[string][]Permission{
		"fleet-admin": AllPermissions(), "tenant-admin": AllPermissions(),
		"provider-manager": {ProvidersRead, ProvidersManage, PoolsRead}, "provider-viewer": {ProvidersRead, PoolsRead},
	}
	allowed := false
	for _, b := range r {
		mine := b.Subject == a.Subject || slices.Contains(a.Groups, b.Subject) && b.Subject[:min(6, len(b.Subject))] == "group:"
		if !mine || !slices.Contains(chain, b.Object) || !slices.Contains(may[b.Role], p) {
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
	modelRoles    = []string{"fleet-admin", "tenant-admin", "provider-manager", "provider-viewer", "user:a", "*", "gone", ""}
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
		want := ref.allows(actor, p, chain[i:]...)
		if err := d.Check(ctx, p, o); (err == nil) != want || err != nil && !problem.Is(err, problem.Forbidden) {
			t.Fatalf("%v %s on %s: %v, want allowed = %v by %v", actor, p, o, err, want, ref)
		}
	}
	f, err := d.Filter(ctx, p, tenant, ProviderAccounts)
	if err != nil && !problem.Is(err, problem.Forbidden) {
		t.Fatal(err)
	}
	for _, item := range modelItems {
		want := ref.allows(actor, p, "compute-provider-account/"+item, "compute-tenant/"+tenant, "compute-fleet")
		if f.Allows(item) != want {
			t.Fatalf("%v %s on item %s of %s: listed = %v, want %v by %v", actor, p, item, tenant, !want, want, ref)
		}
	}
}

// A Decider against the contract, on bindings that nobody sane would make. It reads the bindings for each decision.
func TestDecisionsAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		if _, err := b.db.NewRaw("DELETE FROM role_bindings").Exec(t.Context()); err != nil {
			rt.Fatal(err)
		}
		ref := reference(rapid.SliceOfNDistinct(rapid.Custom(drawBinding), 1, 30, rapid.ID).Draw(rt, "bindings"))
		rows := []model.RoleBinding(ref)
		if _, err := b.db.NewInsert().Model(&rows).Exec(t.Context()); err != nil {
			rt.Fatal(err)
		}
		for range 5 {
			sameAsReference(t.Context(), rt, b.d, ref)
		}
	})
}

// The rule alone, without a database: a hundred thousand decisions in the time of a few.
func TestRuleIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	roles, err := loadRoles(policyText)
	if err != nil {
		t.Fatal(err)
	}
	d := &Decider{}
	d.roles.Store(roles)
	decisions := 0
	rapid.Check(t, func(rt *rapid.T) {
		ref := reference(rapid.SliceOfN(rapid.Custom(drawBinding), 1, 30).Draw(rt, "bindings"))
		for range 20 {
			actor := drawActor(rt)
			held := slices.Collect(maps.Values(bySubject(actor.subjects(), ref.of(actor.subjects()))))
			for _, tenant := range modelTenants {
				for _, o := range []Object{ProviderAccount(tenant, rapid.SampledFrom(modelItems).Draw(rt, "item")), Tenant(tenant), Fleet()} {
					for _, p := range AllPermissions() {
						decisions++
						if got, want := d.decide(held, p, o) == granted, ref.allows(actor, p, o.chain()...); got != want {
							rt.Fatalf("%v %s on %s: %v, want %v by %v", actor, p, o, got, want, ref)
						}
					}
				}
			}
		}
	})
	t.Logf("%d decisions", decisions)
}

func (r reference) of(subjects []Subject) (rows []placedBinding) {
	for _, b := range r {
		if slices.Contains(subjects, b.Subject) {
			rows = append(rows, placedBinding{RoleBinding: b})
		}
	}
	return rows
}
