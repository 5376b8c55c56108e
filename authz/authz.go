// Package authz decides whether a caller may do something to an object, and keeps who has which role where.
//
// It owns the permissions, the roles, the bindings and the denials in the audit log; nothing else imports Casbin. It refuses to know
// whether an object exists: it decides on the names that the caller gave, before anything is looked up. The invariant:
// a binding that is gone from the database allows nothing a second later, in any replica, whatever happened to
// the notification; a decision that cannot be made is a denial.
package authz

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"better/compute/audit/journal"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

const (
	loadTimeout   = 2 * time.Second
	denialTimeout = 2 * time.Second
)

// Decider decides, from roles that are fixed and bindings that it caches for as long as Run proves them fresh. Without Run it
// is right all the same and reads the bindings for each decision. Safe for concurrent use.
type Decider struct {
	db       *postgres.DB
	log      *slog.Logger
	now      func() time.Time
	roles    atomic.Pointer[roles] // a new set is built aside and swapped in whole
	bindings *bindingCache
	watchers watchers
}

// New makes a Decider; Run makes it fast.
func New(db *postgres.DB, log *slog.Logger) (*Decider, error) {
	r, err := loadRoles(policyText)
	if err != nil {
		return nil, err
	}
	d := &Decider{db: db, log: log, now: time.Now, bindings: newBindingCache(cachedSubjects)}
	d.roles.Store(r)
	return d, nil
}

// Check answers nil when the caller of the context holds the permission on the object. Otherwise UNAUTHENTICATED (no caller, or
// one whose credential has ended), FORBIDDEN with details.permission and details.object, which is also written to the audit log,
// or UNAVAILABLE when the bindings cannot be read.
func (d *Decider) Check(ctx context.Context, p Permission, o Object) error {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return err
	}
	if d.decide(held, p, o) != granted {
		return d.deny(ctx, actor, p, o)
	}
	return nil
}

// Holds reports whether the caller holds the permission on the object, and records nothing: for what is left out instead of refused.
// UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Holds(ctx context.Context, p Permission, o Object) (bool, error) {
	_, held, err := d.caller(ctx)
	return err == nil && d.decide(held, p, o) == granted, err
}

// Permissions lists what the caller holds on the object, in the order of AllPermissions. Any caller may ask about itself.
// UNAUTHENTICATED or UNAVAILABLE as in Check.
func (d *Decider) Permissions(ctx context.Context, o Object) ([]Permission, error) {
	_, held, err := d.caller(ctx)
	if err != nil {
		return nil, err
	}
	permissions := []Permission{}
	for _, p := range AllPermissions() {
		if d.decide(held, p, o) == granted {
			permissions = append(permissions, p)
		}
	}
	return permissions, nil
}

// caller finds the caller of the context and the bindings that count for it.
func (d *Decider) caller(ctx context.Context) (Actor, []bindingsOf, error) {
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil {
		return Actor{}, nil, err
	}
	held, err := d.bindingsFor(ctx, actor.subjects())
	return actor, held, err
}

// bindingsFor answers from the cache where that is proven fresh, and reads the rest in one query.
func (d *Decider) bindingsFor(ctx context.Context, subjects []Subject) ([]bindingsOf, error) {
	held, missing, generation := d.bindings.get(subjects, d.now())
	if len(missing) == 0 {
		return held, nil
	}
	loaded, err := d.load(ctx, missing)
	if err != nil {
		return nil, err
	}
	d.bindings.put(loaded, generation)
	for _, b := range loaded {
		held = append(held, b)
	}
	return held, nil
}

// bindingsAnew reads them all, whatever the cache has.
func (d *Decider) bindingsAnew(ctx context.Context, subjects []Subject) ([]bindingsOf, error) {
	generation := d.bindings.current()
	loaded, err := d.load(ctx, subjects)
	if err != nil {
		return nil, err
	}
	d.bindings.put(loaded, generation)
	return slices.Collect(maps.Values(loaded)), nil
}

// load reads the bindings of the subjects, or says UNAVAILABLE.
func (d *Decider) load(ctx context.Context, subjects []Subject) (map[Subject]bindingsOf, error) {
	ctx, cancel := context.WithTimeout(acrossTenants(ctx), loadTimeout)
	defer cancel()
	loaded, err := loadBindings(ctx, d.db.DB, subjects)
	if err != nil {
		return nil, problem.New(problem.Unavailable, "The rights of the caller cannot be read right now; try again.").Because(err)
	}
	return loaded, nil
}

type decision int

const (
	undecided decision = iota // no binding says anything
	granted
	denied
)

// decide walks from the object up to the fleet. One deny anywhere beats every grant.
func (d *Decider) decide(held []bindingsOf, p Permission, o Object) decision {
	roles, result := d.roles.Load(), undecided
	for _, name := range o.chain() {
		for _, h := range held {
			switch h.on(name, p, roles) {
			case denied:
				return denied
			case granted:
				result = granted
			case undecided:
			}
		}
	}
	return result
}

// deny writes the denial down and says it. The row is written outside of any transaction of the caller, which is about to be
// rolled back, although the client may be gone already, and although it is about a tenant whose rows the caller does not see. A
// row that cannot be written changes nothing about the denial.
func (d *Decider) deny(ctx context.Context, actor Actor, p Permission, o Object) error {
	ctx, cancel := context.WithTimeout(acrossTenants(context.WithoutCancel(ctx)), denialTimeout)
	defer cancel()
	err := journal.Write(ctx, d.db.DB, actor.Subject, RequestID(ctx), journal.Entry{
		TenantID: o.TenantID(), Action: string(p), Object: o.String(), Outcome: journal.Denied,
	})
	if err != nil {
		d.log.ErrorContext(ctx, "a denial is missing from the audit log", "actor", actor.Subject, "permission", p,
			"object", o.String(), "requestId", RequestID(ctx), "error", err)
	}
	return problem.New(problem.Forbidden, "This needs %s on %s.", p, o).
		With("permission", string(p)).With("object", o.String())
}
