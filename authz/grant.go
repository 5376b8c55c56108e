package authz

import (
	"context"
	"maps"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/internal/problem"
	"better/compute/model"
)

// GrantRole makes the binding, for a caller who holds compute:iam:manage and, unless the binding denies, every permission of the role, on
// the object and all below it. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
//
// An account or pool that does not exist is decided on the fleet, so that a refusal tells nothing about existence. A binding
// that denies may be for anybody, an administrator of the fleet included, who then needs Revoke at the machine to lift it.
func (d *Decider) GrantRole(ctx context.Context, in model.GrantRoleInput) (*model.RoleBinding, error) {
	b := newBinding(in.Subject, in.Role, in.Object, in.Effect)
	var issues problem.Issues
	checkBinding(&issues, "", b)
	d.roles.Load().checkRole(&issues, "", b.Role)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	_, err := d.change(ctx, bindingChange{b, grantAction, b.Effect == model.Allow, insertBinding})
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// RevokeRole removes the binding and reports whether there was one, for a caller who holds compute:iam:manage on the object and,
// to lift a denial, every permission that this gives back. The role need not exist any more. INVALID_INPUT,
// UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
func (d *Decider) RevokeRole(ctx context.Context, in model.RevokeRoleInput) (revoked bool, err error) {
	b := newBinding(in.Subject, in.Role, in.Object, in.Effect)
	var issues problem.Issues
	checkBinding(&issues, "", b)
	checkRoleForm(&issues, b.Role)
	if err := issues.Err(); err != nil {
		return false, err
	}
	return d.change(ctx, bindingChange{b, revokeAction, b.Effect == model.Deny, deleteBinding})
}

func newBinding(subject, role, object string, effect *model.BindingEffect) model.RoleBinding {
	b := model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: model.Allow}
	if effect != nil {
		b.Effect = *effect
	}
	return b
}

// bindingChange is what GrantRole and RevokeRole have in common.
type bindingChange struct {
	binding model.RoleBinding
	action  string
	gives   bool // somebody gets permissions by it
	write   writeBinding
}

// change decides twice: at first cheaply, so that a caller without rights cannot queue up for the lock, and then on what
// the transaction reads under the lock, so that a right that is being revoked right now gives nothing away any more.
func (d *Decider) change(ctx context.Context, c bindingChange) (changed bool, err error) {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return false, err
	}
	ctx = acrossTenants(ctx)
	at, err := locate(ctx, d.db.DB, c.binding.Object)
	if err != nil {
		return false, err
	}
	lack, err := d.lacks(ctx, d.db.DB, held, at, c)
	if err == nil && lack == nil {
		changed, lack, err = d.changeUnderLock(ctx, actor, at, c)
	}
	if err != nil {
		return false, err
	}
	if lack != nil {
		return false, d.deny(ctx, actor, lack.permission, lack.object)
	}
	return changed, nil
}

func (d *Decider) changeUnderLock(ctx context.Context, actor Actor, at place, c bindingChange) (changed bool, lack *shortfall, err error) {
	err = d.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx); err != nil {
			return err
		}
		held, err := loadBindings(ctx, tx, actor.subjects())
		if err != nil {
			return err
		}
		lack, err = d.lacks(ctx, tx, slices.Collect(maps.Values(held)), at, c)
		if err != nil || lack != nil {
			return err
		}
		changed, err = writeAudited(ctx, tx, actor.Subject, c.action, at.named.TenantID(), c.binding, c.write)
		return err
	})
	return changed, lack, err
}

// shortfall is what a caller would have to hold, and where.
type shortfall struct {
	permission Permission
	object     Object
}

// lacks finds what keeps the caller from making the change; nil when nothing does. A change that gives somebody permissions
// must not give more than the caller holds, on the object and on everything below it.
func (d *Decider) lacks(ctx context.Context, idb bun.IDB, held []bindingsOf, at place, c bindingChange) (*shortfall, error) {
	if d.decide(held, IAMManage, at.decided) != granted {
		return &shortfall{IAMManage, at.named}, nil
	}
	if !c.gives {
		return nil, nil
	}
	roles := d.roles.Load()
	for _, p := range AllPermissions() {
		if roles.allows(c.binding.Role, p) && d.decide(held, p, at.decided) != granted {
			return &shortfall{p, at.named}, nil
		}
	}
	return d.deniedBelow(ctx, idb, held, at.named, c.binding.Role)
}

// deniedBelow finds an object below that one on which the caller is denied a permission of the role.
func (d *Decider) deniedBelow(ctx context.Context, idb bun.IDB, held []bindingsOf, above Object, role string) (*shortfall, error) {
	for _, h := range held {
		for _, name := range slices.Sorted(maps.Keys(h.grants)) {
			p, found := d.deniedOn(h, name, role)
			if !found {
				continue
			}
			at, err := locate(ctx, idb, name)
			if err != nil {
				return nil, err
			}
			if at.named.isBelow(above) {
				return &shortfall{p, at.named}, nil
			}
		}
	}
	return nil, nil
}

// deniedOn finds a permission of the role that the bindings on that very object deny.
func (d *Decider) deniedOn(h bindingsOf, object, role string) (Permission, bool) {
	roles := d.roles.Load()
	for _, p := range AllPermissions() {
		if roles.allows(role, p) && h.on(object, p, roles) == denied {
			return p, true
		}
	}
	return "", false
}
