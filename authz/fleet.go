package authz

import (
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

// FleetFilter says which items of all tenants the caller may not see.
type FleetFilter struct {
	DeniedTenants []string // sorted
	Denied        []string // ids, sorted
}

// FilterFleet decides which items of the kind, in whatever tenant, the caller holds the permission on: with the fleet, all but those of a
// tenant or an item that is denied. FORBIDDEN without the fleet; UNAUTHENTICATED or UNAVAILABLE as in Check.
func (d *Decider) FilterFleet(ctx context.Context, p Permission, kind Kind) (FleetFilter, error) {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return FleetFilter{}, err
	}
	if decide(held, p, Fleet()) != granted {
		return FleetFilter{}, d.deny(ctx, actor, p, Fleet())
	}
	return FleetFilter{DeniedTenants: deniedBelow(held, p, tenantPrefix), Denied: deniedBelow(held, p, string(kind)+"/")}, nil
}

// deniedBelow are the ids of the objects of one prefix that a binding denies.
func deniedBelow(held []bindingsOf, p Permission, prefix string) []string {
	var ids []string
	for _, h := range held {
		for object := range h.grants {
			if id, ok := strings.CutPrefix(object, prefix); ok && h.on(object, p) == denied {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Where adds the filter to a query, on the columns that hold the item's tenant and its id.
func (f FleetFilter) Where(q *bun.SelectQuery, tenantColumn, column string) *bun.SelectQuery {
	if len(f.DeniedTenants) > 0 {
		q = q.Where("? NOT IN (?)", bun.Ident(tenantColumn), bun.List(f.DeniedTenants))
	}
	if len(f.Denied) > 0 {
		q = q.Where("? NOT IN (?)", bun.Ident(column), bun.List(f.Denied))
	}
	return q
}
