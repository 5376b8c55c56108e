package main

import (
	"context"
	"sync/atomic"

	"better/compute/internal/problem"
)

// readiness is set once everything has started.
type readiness struct{ started atomic.Bool }

func (r *readiness) set() { r.started.Store(true) }

// isReady is what /readyz says: started, and the database takes writes.
func (a *app) isReady(ctx context.Context) error {
	if !a.ready.started.Load() {
		return problem.New(problem.Unavailable, "The server is starting.")
	}
	return a.db.WriteProbe(ctx)
}

func isUnavailable(err error) bool { return problem.Is(err, problem.Unavailable) }
