package bootstrap

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// OrphansInput says which orphans to list.
type OrphansInput struct {
	TenantID  string
	AccountID *string
	First     *int
	After     *string
}

// Orphans lists machines without an owner.
func (s *Service) Orphans(_ context.Context, _ OrphansInput) (*model.OrphanConnection, error) {
	return nil, problem.New(problem.Internal, "")
}

// ReleaseMachine gives an orphan back to its provider.
func (s *Service) ReleaseMachine(_ context.Context, _ model.ReleaseMachineInput) (*model.ReleaseMachinePayload, error) {
	return nil, problem.New(problem.Internal, "")
}
