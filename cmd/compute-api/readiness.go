package main

import (
	"context"
	"sync/atomic"

	"better/compute/internal/event"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

// readiness is set once everything has started.
type readiness struct{ started atomic.Bool }

func (r *readiness) set() { r.started.Store(true) }

// isReady is what /readyz says: started, the database takes writes, keeps tenants apart, and counts on from where its events were written.
func (a *app) isReady(ctx context.Context) error {
	if !a.ready.started.Load() {
		return problem.New(problem.Unavailable, "The server is starting.")
	}
	if err := a.db.WriteProbe(ctx); err != nil {
		return err
	}
	if err := event.CheckCounter(postgres.WithScope(ctx, postgres.AllTenants()), a.db.DB); err != nil {
		return err
	}
	return a.db.CheckWalls(ctx)
}

func isUnavailable(err error) bool { return problem.Is(err, problem.Unavailable) }
