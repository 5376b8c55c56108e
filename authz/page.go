package authz

import (
	"context"
	"slices"

	"better/compute/internal/cursor"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// BindingsInput says which bindings to list: those on a tenant and its items, or with nil those on the fleet itself.
type BindingsInput struct {
	TenantID *string
	Subject  *string
	First    *int // 1 to 100; nil: 50
	After    *string
}

// Bindings lists the bindings on a tenant and on its accounts and pools, or those on the fleet itself, sorted by object, subject, role and
// effect in byte order, for a caller who holds compute:iam:manage on the tenant, or on the fleet; those on an item on which the
// caller is denied it are left out. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE.
func (d *Decider) Bindings(ctx context.Context, in BindingsInput) (*model.RoleBindingConnection, error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return nil, err
	}
	at := Fleet()
	if in.TenantID != nil {
		at = Tenant(*in.TenantID)
	}
	list, err := d.cursors.List(ctx, "roleBindings", at.TenantID(), cursor.Optional(in.TenantID), cursor.Optional(in.Subject))
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	if in.TenantID != nil {
		input.Tenant(&issues, *in.TenantID)
	}
	if in.Subject != nil {
		checkSubject(&issues, "", *in.Subject)
	}
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[model.RoleBinding](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	actor, held, err := d.caller(ctx)
	if err != nil {
		return nil, err
	}
	if decide(held, IAMManage, at) != granted {
		return nil, d.deny(ctx, actor, IAMManage, at)
	}
	bindings, err := selectBindings(ctx, d.db.DB, at, in.Subject, hidden(held, IAMManage, at.TenantID()), p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(bindings, p.First, p.After, cursor.Encode(list, func(b *model.RoleBinding) model.RoleBinding { return *b })), nil
}

// Hidden lists the tenant's items on which the caller is denied the permission, by their names as objects: what is about one of them is left out
// of a list that the caller may read on the tenant. UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Hidden(ctx context.Context, p Permission, tenantID string) ([]string, error) {
	_, held, err := d.caller(ctx)
	if err != nil {
		return nil, err
	}
	return hidden(held, p, tenantID), nil
}

func hidden(held []bindingsOf, p Permission, tenantID string) []string {
	var names []string
	for _, kind := range []Kind{ProviderAccounts, Pools} {
		for _, id := range items(held, p, tenantID, kind, denied) {
			names = append(names, itemName(kind, id))
		}
	}
	return slices.Clip(names)
}
