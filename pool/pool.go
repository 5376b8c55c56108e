// Package pool owns a tenant's pools and the instances in them.
//
// It refuses to know providers and how machines become hosts. The invariant: an archived pool has no account, no instance that is not
// deleted, no host and no run into it, and never gets one again.
package pool

import (
	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

// Deps are what the service works with.
type Deps struct {
	DB      *postgres.DB
	Authz   *authz.Decider
	Cursors *cursor.Sealer
}

// Service is safe for concurrent use.
type Service struct {
	db      *postgres.DB
	authz   *authz.Decider
	cursors *cursor.Sealer
}

// New makes the service.
func New(d Deps) *Service {
	return &Service{db: d.DB, authz: d.Authz, cursors: d.Cursors}
}

func notFound() error {
	return problem.New(problem.NotFound, "The tenant has no such pool.")
}
