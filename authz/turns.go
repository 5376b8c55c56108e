package authz

import (
	"context"
	"errors"

	"better/compute/internal/problem"
	"better/compute/internal/slots"
)

// newTurns lets one change of rights of each payer go on at a time. All of them wait for one lock in the end, in which who sends many would
// otherwise stand before everybody else, each with a transaction that holds back what streams may tell.
func newTurns() *slots.Set {
	return slots.New(slots.Level{Name: limitSubject, PerKey: 1}, slots.Level{Name: limitTenant, PerKey: 1})
}

// takeTurn waits for the turn of the caller's payer, without a connection. RATE_LIMITED when the time of ctx ends before.
func (d *Decider) takeTurn(ctx context.Context, caller Subject) (done func(), err error) {
	p := payerOf(caller)
	done, err = d.turns.Take(ctx, slots.Key{Level: p.limit, Name: p.name})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, problem.New(problem.RateLimited, "Too many of your changes of rights wait for one another; try again later.").
			With("rule", "policy_changes").With("limit", p.limit).With("retryAfterSeconds", 1)
	}
	return done, err
}
