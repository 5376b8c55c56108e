package authz

import (
	"context"
	"maps"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/model"
)

// Covering runs fn in a transaction in which the caller of ctx holds compute:iam:manage on the object, and whatever a binding allows the
// subject, on the binding's object and everything below it: what lets somebody act as the subject gives nobody more than they
// hold. No binding changes before the transaction ends. FORBIDDEN names the first permission that is missing; UNAUTHENTICATED or
// UNAVAILABLE. As fn can run several times, it must leave nothing behind outside of the transaction.
//
// What the subject is denied does not count for it: a denial can be lifted while whoever acts as the subject stays.
func (d *Decider) Covering(ctx context.Context, o Object, s Subject, fn func(ctx context.Context, tx bun.Tx) error) error {
	if err := d.Check(ctx, IAMManage, o); err != nil {
		return err // without queuing up for the lock
	}
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil {
		return err
	}
	var lack *shortfall
	err = d.db.RunInTx(acrossTenants(ctx), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx); err != nil {
			return err
		}
		if lack, err = d.uncovered(ctx, tx, actor, o, s); err != nil || lack != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	if lack != nil {
		return d.deny(ctx, actor, lack.permission, lack.object)
	}
	return nil
}

// uncovered finds what the actor would have to hold, on what the transaction reads.
func (d *Decider) uncovered(ctx context.Context, tx bun.Tx, actor Actor, o Object, s Subject) (*shortfall, error) {
	read, err := loadBindings(ctx, tx, append(actor.subjects(), s))
	if err != nil {
		return nil, err
	}
	given := read[s].grants
	if !slices.Contains(actor.subjects(), s) {
		delete(read, s)
	}
	held := slices.Collect(maps.Values(read))
	if d.decide(held, IAMManage, o) != granted {
		return &shortfall{IAMManage, o}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, g := range given[name] {
			if g.effect != model.Allow {
				continue
			}
			if lack, err := d.lacksRole(ctx, tx, held, name, g.role); err != nil || lack != nil {
				return lack, err
			}
		}
	}
	return nil, nil
}

// lacksRole finds a permission of the role that the bindings do not give on the object and everything below it.
func (d *Decider) lacksRole(ctx context.Context, tx bun.Tx, held []bindingsOf, object, role string) (*shortfall, error) {
	at, err := locate(ctx, tx, object)
	if err != nil {
		return nil, err
	}
	roles := d.roles.Load()
	for _, p := range AllPermissions() {
		if roles.allows(role, p) && d.decide(held, p, at.decided) != granted {
			return &shortfall{p, at.named}, nil
		}
	}
	return d.deniedBelow(ctx, tx, held, at.named, role)
}
