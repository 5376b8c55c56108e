package authz

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/model"
)

// GrantRole makes the binding, for a caller who holds compute:iam:manage and, unless the binding denies, every permission of the role, on
// the object and all below it, and for a tenant's own service compute:iam:manage on that tenant too: the others would else decide
// whom its administrators may make tokens for. INVALID_STATE when the subject has maxBindings on items of the tenant, or its groups maxGroupBindings, INVALID_INPUT (which for a role that is not there lists those that are: any caller may read
// them), UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
//
// An account or pool that does not exist is decided on the fleet, so that a refusal tells nothing about existence. A binding
// that denies may be for anybody, an administrator of the fleet included, who then needs Revoke at the machine to lift it.
func (d *Decider) GrantRole(ctx context.Context, in model.GrantRoleInput) (*model.RoleBinding, error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return nil, err
	}
	b := newBinding(in.Subject, in.Role, in.Object, in.Effect)
	if err := d.roles.checkGrant(ctx, d.db.DB, b); err != nil {
		return nil, err
	}
	_, err := d.changeBinding(ctx, bindingChange{b, grantAction, b.Effect == model.Allow, insertBinding})
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// RevokeRole removes the binding and reports whether there was one, for a caller who holds compute:iam:manage on the object and,
// to lift a denial, every permission that this gives back. The role need not exist any more. INVALID_INPUT,
// UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
func (d *Decider) RevokeRole(ctx context.Context, in model.RevokeRoleInput) (revoked bool, err error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return false, err
	}
	b := newBinding(in.Subject, in.Role, in.Object, in.Effect)
	if err := checkRevoke(b); err != nil {
		return false, err
	}
	return d.changeBinding(ctx, bindingChange{b, revokeAction, b.Effect == model.Deny, deleteBinding})
}

func newBinding(subject, role, object string, effect *model.BindingEffect) model.RoleBinding {
	b := model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: model.Allow}
	if effect != nil {
		b.Effect = *effect
	}
	return b
}

// maxBindings is how many bindings on items the administrators of one tenant may make for one subject, which need not know of it: each decision that is
// not in the cache reads all that a subject has, so that they could else make every one of its calls slow, in other tenants too.
const maxBindings = 200

// maxGroupBindings is how many they may make for all groups together, since a decision reads those of each group that its caller is in.
const maxGroupBindings = 1_000

// bindingChange is what GrantRole and RevokeRole have in common.
type bindingChange struct {
	binding model.RoleBinding
	action  string
	gives   bool // somebody gets permissions by it
	write   writeBinding
}

func (d *Decider) changeBinding(ctx context.Context, c bindingChange) (changed bool, err error) {
	var at place
	return d.change(ctx, policyChange{
		about: []string{c.binding.Object},
		lacks: func(ctx context.Context, idb bun.IDB, held []bindingsOf) (_ *shortfall, err error) {
			if at, err = locate(ctx, idb, c.binding.Object); err != nil {
				return nil, err
			}
			return d.lacksForBinding(ctx, idb, held, at, c)
		},
		admit: func(ctx context.Context) error {
			if c.action != grantAction {
				return nil
			}
			return checkGroups(ctx, d.db.DB, c.binding, at.named)
		},
		write: func(ctx context.Context, tx bun.Tx, actor Actor) (bool, error) {
			if c.action == grantAction { // the role may be gone by now
				if err := d.roles.checkGrant(ctx, tx, c.binding); err != nil {
					return false, err
				}
			}
			changed, err := writeAudited(ctx, tx, actor.Subject, c.action, at.named.TenantID(), c.binding, c.write)
			if err != nil || !changed || c.action != grantAction {
				return changed, err
			}
			return true, checkBindings(ctx, tx, c.binding.Subject, at.named)
		},
	})
}

// lacksForBinding finds what keeps the caller from making the change. One that gives somebody permissions must not give more
// than the caller holds, on the object and on everything below it.
func (d *Decider) lacksForBinding(ctx context.Context, idb bun.IDB, held []bindingsOf, at place, c bindingChange) (*shortfall, error) {
	if decide(held, IAMManage, at.decided) != granted {
		return &shortfall{IAMManage, at.named}, nil
	}
	if owner, owned := tenantOf(c.binding.Subject); owned && c.action == grantAction && decide(held, IAMManage, owner) != granted {
		return &shortfall{IAMManage, owner}, nil
	}
	if !c.gives {
		return nil, nil
	}
	r, err := d.roles.read(ctx, idb, c.binding.Role)
	if err != nil {
		return nil, err
	}
	return newCeiling(held).lacks(at, r.permissions()), nil
}
