package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

// eventTime bounds how long what a subscription does may take: its start, and then what is read for each event. To wait for an event is free.
type eventTime struct {
	limit   time.Duration
	present *event
}

// event is what is timed now.
type event struct {
	begin  func() // its time, with the first field that a resolver stands behind
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// errLate is UNAVAILABLE, as for any operation that takes too long.
var errLate = fmt.Errorf("an event of a subscription: %w", context.DeadlineExceeded)

// timeEvents makes the fields of a subscription count for its time.
func timeEvents(op *operation, limit time.Duration) *eventTime {
	t := &eventTime{limit: limit}
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		if graphql.GetFieldContext(ctx).IsResolver {
			t.present.begin()
		}
		return inner(ctx, next)
	}
	return t
}

// next gives the context of the next thing to be timed.
func (t *eventTime) next(ctx context.Context) (context.Context, *event) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := &event{cancel: cancel}
	e.begin = sync.OnceFunc(func() { e.timer = time.AfterFunc(t.limit, func() { cancel(errLate) }) })
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

func (e *event) end() { e.cancel(nil) }
