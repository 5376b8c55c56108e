package audit

import (
	"context"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Deps is what a Service needs.
type Deps struct {
	DB    *postgres.DB
	Authz *authz.Decider
}

// Service reads the audit log.
type Service struct{ Deps }

// New makes a Service.
func New(d Deps) *Service { return &Service{d} }

// EventsInput says which events to list: those of a tenant, or with nil those that belong to none.
type EventsInput struct {
	TenantID *string
	Filter   *model.AuditEventFilter
	First    *int
	After    *string
}

// Events lists what was done and refused, newest first.
func (s *Service) Events(_ context.Context, _ EventsInput) (*model.AuditEventConnection, error) {
	return nil, problem.New(problem.Internal, "")
}
