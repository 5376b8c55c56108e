package bootstrap

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// PlanInput names what a bootstrap would be started with.
type PlanInput struct {
	TenantID  string
	AccountID string
	PoolID    string
	MachineID *string
	OfferID   *string
}

// Plan says what a bootstrap would do.
func (s *Service) Plan(_ context.Context, _ PlanInput) (*model.BootstrapPlan, error) {
	return nil, problem.New(problem.Internal, "")
}
