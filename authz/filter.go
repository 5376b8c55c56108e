package authz

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

// Filter says which items of a tenant the caller may see. With All it is every one but Denied, without it only Granted. Granted
// and Denied may name items that were not there when the bindings were read: a query must name the tenant too.
type Filter struct {
	All     bool
	Granted []string // ids, sorted; used without All
	Denied  []string // ids, sorted; used with All
}

// Filter decides which items of the kind, in the tenant, the caller holds the permission on. A caller who holds it on the
// tenant gets all but the denied ones, and one with grants on single items just those. FORBIDDEN on the tenant when there
// is neither, or when the tenant itself is denied; UNAUTHENTICATED or UNAVAILABLE as in Check.
func (d *Decider) Filter(ctx context.Context, p Permission, tenantID string, kind Kind) (Filter, error) {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return Filter{}, err
	}
	f := filterOf(held, p, tenantID, kind)
	if f.None() {
		return Filter{}, d.deny(ctx, actor, p, Tenant(tenantID))
	}
	return f, nil
}

// Held is Filter for what is left out instead of refused: it records nothing, and where Filter is FORBIDDEN it lets nothing through.
// UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Held(ctx context.Context, p Permission, tenantID string, kind Kind) (Filter, error) {
	_, held, err := d.caller(ctx)
	if err != nil {
		return Filter{}, err
	}
	return filterOf(held, p, tenantID, kind), nil
}

func filterOf(held []bindingsOf, p Permission, tenantID string, kind Kind) Filter {
	switch decide(held, p, Tenant(tenantID)) {
	case granted:
		return Filter{All: true, Denied: items(held, p, tenantID, kind, denied)}
	case undecided:
		return Filter{Granted: items(held, p, tenantID, kind, granted)}
	default:
		return Filter{}
	}
}

// None reports whether the filter lets nothing through.
func (f Filter) None() bool { return !f.All && len(f.Granted) == 0 }

// items are the ids of the kind on which the bindings, by themselves, come to that decision. Those that are known to be another tenant's are
// left out, so that a right on one of them is none in this tenant. None is denied to whom decide hears no
// denial below the fleet for.
func items(held []bindingsOf, p Permission, tenantID string, kind Kind, want decision) []string {
	if want == denied && p == IAMManage && administersFleet(held) {
		return nil
	}
	found := map[string]decision{}
	for _, h := range held {
		for object, grants := range h.grants {
			id, ok := strings.CutPrefix(object, string(kind)+"/")
			if t := grants[0].itemTenant; ok && (t == tenantID || t == "") { // one that was not there may have come since
				found[id] = max(found[id], h.on(object, p)) // denied is the greatest
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, got decision) bool { return got != want })
	return slices.Sorted(maps.Keys(found))
}

// Allows reports whether the filter lets the item of the tenant through.
func (f Filter) Allows(id string) bool {
	if f.All {
		_, isDenied := slices.BinarySearch(f.Denied, id)
		return !isDenied
	}
	_, isGranted := slices.BinarySearch(f.Granted, id)
	return isGranted
}

// Where adds the filter to a query, on the column that holds the item's id.
func (f Filter) Where(q *bun.SelectQuery, column string) *bun.SelectQuery {
	switch {
	case !f.All:
		return q.Where("? IN (?)", bun.Ident(column), bun.List(f.Granted)) // an empty list is NULL: no row
	case len(f.Denied) > 0:
		return q.Where("? NOT IN (?)", bun.Ident(column), bun.List(f.Denied))
	default:
		return q
	}
}

// Of gives those of the ids that the filter lets through.
func (f Filter) Of(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !f.Allows(id) })
}

// Condition is Where for a statement that is prepared: it has few texts, and one argument whatever the filter names.
func (f Filter) Condition(column, argument string) (text string, ids []string) {
	if f.All {
		return column + " <> ALL (" + argument + ")", append([]string{}, f.Denied...)
	}
	return column + " = ANY (" + argument + ")", f.Granted
}
