package authz

import (
	"context"
	"slices"

	"better/compute/internal/postgres"
)

// Scope says whose rows the caller of the context may touch at all: those of each tenant in which a binding allows it anything, on the
// tenant or on one of its items, and everybody's with a binding on the fleet. Nothing narrows it, neither a denial nor what is
// asked for: it is a wall behind the decisions, and takes nothing from their arguments. A service that has to see more for a caller says so with
// postgres.WithScope, and is its own wall there: the repeat of a create in its tenant, and the release of a machine that other
// tenants may have. Without a caller, or with one whose credential has ended or was revoked, it is the scope of nobody. UNAVAILABLE when
// the bindings cannot be read.
func (d *Decider) Scope(ctx context.Context) (postgres.Scope, error) {
	held, err := d.located(ctx)
	if err != nil || held == nil {
		return postgres.Scope{}, err
	}
	return scopeOf(held), nil
}

// located is what the context's caller holds, with the tenants of the items; nothing for nobody.
func (d *Decider) located(ctx context.Context) ([]bindingsOf, error) {
	actor, ok := ActorFrom(ctx)
	if !ok || !actor.authenticated(d.now()) {
		return nil, nil
	}
	s, err := d.standing(ctx, actor.question())
	if err == nil && s.of(actor, d.now()) && slices.ContainsFunc(s.held, bindingsOf.incomplete) {
		s, err = d.standingAnew(ctx, actor.question())
	}
	if err != nil || !s.of(actor, d.now()) {
		return nil, err
	}
	return s.held, nil
}

func (b bindingsOf) incomplete() bool { return b.places.unknown }

func scopeOf(held []bindingsOf) postgres.Scope {
	fleet, tenants := reach(held)
	if fleet {
		return postgres.AllTenants()
	}
	return postgres.Tenants(tenants...)
}

// reach says where the bindings allow something; the tenants are sorted, so that equal callers find connections that have their scope.
func reach(held []bindingsOf) (fleet bool, tenants []string) {
	for _, h := range held {
		if h.places.fleet {
			return true, nil
		}
		tenants = append(tenants, h.places.tenants...)
	}
	slices.Sort(tenants)
	return false, slices.Compact(tenants)
}

// places are where the bindings of a subject allow it something.
type places struct {
	fleet   bool
	tenants []string
	unknown bool // an item is not there, so its tenant has to be asked for again: it may come
}

// add takes the object of a binding, with its tenant when it is an item that is there.
func (p *places) add(object, itemTenant string) {
	o, _ := parseObject(object)
	switch {
	case object == fleetName:
		p.fleet = true
	case o.kind != "" && itemTenant == "":
		p.unknown = true
	case o.kind != "":
		p.tenants = append(p.tenants, itemTenant)
	case o.tenantID != "":
		p.tenants = append(p.tenants, o.tenantID)
	}
}

// acrossTenants is for what this package does itself. To find out whose an object is, and where a caller has rights at all, it
// must see every tenant; and the scope of a caller cannot be needed to find that very scope.
func acrossTenants(ctx context.Context) context.Context {
	return postgres.WithScope(ctx, postgres.AllTenants())
}
