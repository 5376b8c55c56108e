package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

// eventTime bounds how long what a subscription does may take: its start, and then each event, which is an operation and waits for its turn in that time.
// To wait for an event is free.
type eventTime struct {
	limit   time.Duration
	take    func(context.Context) (turn, error)
	present *event
}

// event is what is timed now.
type event struct {
	begin  func() error // its time, and its turn, with its first field
	timer  *time.Timer
	cancel context.CancelCauseFunc
	turn   turn
}

// errLate is UNAVAILABLE, as for any operation that takes too long.
var errLate = fmt.Errorf("an event of a subscription: %w", context.DeadlineExceeded)

// timeEvents makes the fields of a subscription count for its time, and has those of each event executed in its turn, for which take waits.
func timeEvents(op *operation, limit time.Duration, take func(context.Context) (turn, error)) *eventTime {
	t := &eventTime{limit: limit, take: take}
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		if err := t.present.begin(); err != nil {
			return nil, err
		}
		return inner(ctx, next)
	}
	return t
}

// start gives the context of the subscription, and times its start. That takes no turn, or an event could not have one while it goes on.
func (t *eventTime) start(ctx context.Context) (context.Context, *event) {
	return t.time(ctx, func(context.Context) (turn, error) { return turn{}, nil })
}

// next gives the context of the next event.
func (t *eventTime) next(ctx context.Context) (context.Context, *event) { return t.time(ctx, t.take) }

func (t *eventTime) time(ctx context.Context, take func(context.Context) (turn, error)) (context.Context, *event) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := &event{cancel: cancel}
	e.begin = sync.OnceValue(func() (err error) {
		e.timer = time.AfterFunc(t.limit, func() { cancel(errLate) })
		e.turn, err = take(ctx)
		return err
	})
	t.present = e
	return ctx, e
}

// isLate stops the time, and reports whether it was over before.
func (e *event) isLate(ctx context.Context) bool {
	if e.timer != nil {
		e.timer.Stop()
	}
	return errors.Is(context.Cause(ctx), errLate)
}

func (e *event) end() {
	e.cancel(nil)
	e.turn.end()
}
