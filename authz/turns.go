package authz

import (
	"context"
	"errors"
	"sync"

	"better/compute/internal/problem"
)

// turns lets one change of rights of each caller go on at a time. All of them wait for one lock in the end, in which who sends many would
// otherwise stand before everybody else, each with a transaction that holds back what streams may tell.
type turns struct {
	mu    sync.Mutex
	lines map[payer]*line
}

// line is those of one caller, for as long as there is one.
type line struct {
	turn  chan struct{} // full while somebody has it
	users int
}

// take waits for the caller's turn, without a connection. RATE_LIMITED when the time of ctx ends before.
func (t *turns) take(ctx context.Context, p payer) (done func(), err error) {
	l := t.join(p)
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; t.leave(p, l) }, nil
	case <-ctx.Done():
		t.leave(p, l)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, problem.New(problem.RateLimited, "Too many of your changes of rights wait for one another; try again later.").
			With("rule", "policy_changes").With("limit", p.limit).With("retryAfterSeconds", 1)
	}
}

func (t *turns) join(p payer) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[p]
	if l == nil {
		if t.lines == nil {
			t.lines = map[payer]*line{}
		}
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[p] = l
	}
	l.users++
	return l
}

func (t *turns) leave(p payer, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lines, p)
	}
}
