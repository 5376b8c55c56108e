package authz

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// policyChange is a change of bindings or roles that a caller asks for.
type policyChange struct {
	about []string // names of objects
	// lacks finds what keeps the caller from it; nil when nothing does.
	lacks func(ctx context.Context, idb bun.IDB, held []bindingsOf) (*shortfall, error)
	// admit refuses what takes too long to find out under the lock; nil when there is no such thing.
	admit func(ctx context.Context) error
	// write makes it, with its audit row, and reports whether there was anything to change.
	write func(ctx context.Context, tx bun.Tx, actor Actor) (changed bool, err error)
}

// shortfall is what a caller would have to hold, and where.
type shortfall struct {
	permission Permission
	object     Object
}

// change decides twice: at first cheaply, so that a caller without rights cannot queue up for the lock, and then on what
// the transaction reads under the lock, so that a right that is being revoked right now gives nothing away any more.
func (d *Decider) change(ctx context.Context, c policyChange) (changed bool, err error) {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return false, err
	}
	ctx = acrossTenants(ctx)
	lack, err := c.lacks(ctx, d.db.DB, held)
	if err == nil && lack == nil && c.admit != nil {
		err = c.admit(ctx)
	}
	if err == nil && lack == nil {
		changed, lack, err = d.changeUnderLock(ctx, actor, c)
	}
	if err != nil {
		return false, err
	}
	if lack != nil {
		return false, d.deny(ctx, actor, lack.permission, lack.object)
	}
	return changed, nil
}

func (d *Decider) changeUnderLock(ctx context.Context, actor Actor, c policyChange) (changed bool, lack *shortfall, err error) {
	done, err := d.takeTurn(ctx, actor.Subject)
	if err != nil {
		return false, nil, err
	}
	defer done()
	q := actor.question()
	err = d.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx, c.about...); err != nil {
			return err
		}
		read, err := d.readPolicy(ctx, tx, q)
		if err != nil {
			return err
		}
		s := read.standing(q)
		if !s.of(actor, d.now()) {
			return errUnauthenticated()
		}
		lack, err = c.lacks(ctx, tx, s.held)
		if err != nil || lack != nil {
			return err
		}
		// What was looked up had to cross tenants. What is written must not.
		if err := postgres.Narrow(ctx, tx, scopeOf(s.held)); err != nil {
			return err
		}
		changed, err = c.write(ctx, tx, actor)
		return err
	})
	return changed, lack, err
}
