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
	_, err := d.change(ctx, policyChange{
		lacks: func(ctx context.Context, idb bun.IDB, held []bindingsOf) (*shortfall, error) {
			if decide(held, IAMManage, o) != granted {
				return &shortfall{IAMManage, o}, nil
			}
			return d.uncovered(ctx, idb, held, s)
		},
		write: func(ctx context.Context, tx bun.Tx, _ Actor) (bool, error) { return true, fn(ctx, tx) },
	})
	return err
}

// uncovered finds what the caller would have to hold.
func (d *Decider) uncovered(ctx context.Context, idb bun.IDB, held []bindingsOf, s Subject) (*shortfall, error) {
	read, err := d.readPolicy(ctx, idb, question{subjects: []Subject{s}})
	if err != nil {
		return nil, err
	}
	given, limit := read.bindings[s], newCeiling(held)
	for _, name := range slices.Sorted(maps.Keys(given.grants)) {
		for _, g := range given.grants[name] {
			if g.effect != model.Allow {
				continue
			}
			if lack := limit.lacks(given.place(name), g.role.permissions()); lack != nil {
				return lack, nil
			}
		}
	}
	return nil, nil
}
