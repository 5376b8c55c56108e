package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// Needs is what a change takes: permissions, each on an object.
type Needs []need

type need struct {
	permission Permission
	object     Object
}

// Need makes Needs of a permission on each of the objects.
func Need(p Permission, on ...Object) Needs { return Needs(nil).And(p, on...) }

// And gives what takes another permission, on each of the objects, as well.
func (n Needs) And(p Permission, on ...Object) Needs {
	both := slices.Clone(n)
	for _, o := range on {
		both = append(both, need{p, o})
	}
	return both
}

// errLost rolls back a transaction whose caller has lost what it needs.
var errLost = errors.New("the caller has lost the right meanwhile")

// Holding runs fn in a transaction that commits only if, at its end, the caller of ctx still has what it needs, and still is a caller:
// a change that waited, for a lock or a provider, is not made with a right or a token that was taken away meanwhile. Check before it,
// so that nobody without rights takes locks. FORBIDDEN, which is also written to the audit log, UNAUTHENTICATED or UNAVAILABLE.
// As fn can run several times, it must leave nothing behind outside of the transaction.
func (d *Decider) Holding(ctx context.Context, n Needs, fn func(ctx context.Context, tx bun.Tx) error) error {
	return d.holding(ctx, n, func(ctx context.Context, tx bun.Tx, confirm func() error) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return confirm()
	})
}

// errUnsure rolls back a transaction whose caller may have lost what it needs.
var errUnsure = errors.New("what the caller holds is not known at the transaction's version of the policy")

// HoldingAtOnce is Holding for statements that need no look in between: they take one round trip and the commit another. It reports false, and
// has changed nothing, where memory does not say yes at the very version of the policy that the transaction sees at its end: Holding finds
// out more. As fill can run several times, it must leave nothing behind but the batch.
func (d *Decider) HoldingAtOnce(ctx context.Context, n Needs, fill func(b *postgres.Batch) error) (done bool, err error) {
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil {
		return false, err
	}
	if _, remembered, _ := d.cache.get(actor.question(), d.now()); !remembered {
		return false, nil
	}
	var version int64
	err = d.db.Write(ctx, func(b *postgres.Batch) error {
		if err := fill(b); err != nil {
			return err
		}
		b.Queue("SELECT " + PolicyVersion).QueryRow(func(row postgres.Row) error { return row.Scan(&version) })
		return nil
	}, func() error {
		if !d.remembers(version, actor, n) {
			return errUnsure
		}
		return nil
	})
	if errors.Is(err, errUnsure) {
		return false, nil
	}
	return err == nil, err
}

// remembers reports whether the actor holds what it needs at that version of the policy, as far as memory knows.
func (d *Decider) remembers(version int64, actor Actor, n Needs) bool {
	now := d.now()
	s, ok := d.cache.at(version, actor.question(), now)
	return ok && actor.authenticated(now) && s.of(actor, now) && s.lacking(n) == nil
}

// Ending is Holding for the end of what the caller's right may hang on itself: an object with bindings, or an API token. The decision
// is taken between find, which waits for what it needs to lock, and end; no right changes from then to the commit.
func (d *Decider) Ending(ctx context.Context, n Needs, find, end func(ctx context.Context, tx bun.Tx) error) error {
	return d.holding(ctx, n, func(ctx context.Context, tx bun.Tx, confirm func() error) error {
		if err := find(ctx, tx); err != nil {
			return err
		}
		if err := lockPolicy(ctx, tx); err != nil {
			return err
		}
		if err := confirm(); err != nil {
			return err
		}
		return end(ctx, tx)
	})
}

func (d *Decider) holding(ctx context.Context, n Needs, fn func(ctx context.Context, tx bun.Tx, confirm func() error) error) error {
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil {
		return err
	}
	var lack *shortfall
	err = d.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		lack = nil
		return fn(ctx, tx, func() (err error) {
			if lack, err = d.lacking(ctx, tx, actor, n); err == nil && lack != nil {
				return errLost
			}
			return err
		})
	})
	if lack != nil {
		return d.deny(ctx, actor, lack.permission, lack.object) // now that the connection of the transaction is free
	}
	if postgres.OutOfScope(err) { // the right was lost before the transaction began, so that it did not come to its decision
		return d.errorFor(ctx, n, err)
	}
	return err
}

func (d *Decider) errorFor(ctx context.Context, n Needs, err error) error {
	for _, need := range n {
		if denied := d.Check(ctx, need.permission, need.object); denied != nil {
			return denied
		}
	}
	return err
}

// lacking decides in the transaction.
func (d *Decider) lacking(ctx context.Context, tx bun.Tx, actor Actor, n Needs) (*shortfall, error) {
	s, err := d.standingIn(ctx, tx, actor.question())
	if err != nil {
		return nil, err
	}
	if !actor.authenticated(d.now()) || !s.of(actor, d.now()) {
		return nil, errUnauthenticated()
	}
	return s.lacking(n), nil
}

// lacking is what the bindings do not give; nil when they give it all.
func (s standing) lacking(n Needs) *shortfall {
	for _, need := range n {
		if decide(s.held, need.permission, need.object) != granted {
			return &shortfall{need.permission, need.object}
		}
	}
	return nil
}

// standingIn answers from the cache when that is of the very version that the transaction sees, and else reads in the transaction,
// which needs no second connection.
func (d *Decider) standingIn(ctx context.Context, tx bun.Tx, q question) (standing, error) {
	var version int64
	if err := tx.NewRaw("SELECT version FROM policy_version").Scan(ctx, &version); err != nil {
		return standing{}, fmt.Errorf("asking for the policy version: %w", err)
	}
	if answer, ok := d.cache.at(version, q, d.now()); ok {
		return answer, nil
	}
	// Bindings on the fleet are seen by who sees all, and nobody goes on seeing that.
	if err := postgres.Narrow(ctx, tx, postgres.AllTenants()); err != nil {
		return standing{}, err
	}
	read, err := d.readPolicy(ctx, tx, q)
	if err != nil {
		return standing{}, err
	}
	s := read.standing(q)
	return s, postgres.Narrow(ctx, tx, scopeOf(s.held))
}
