package bootstrap

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// Claims gives what is known of the orders of the runs, in their order; nil for a run that named a machine.
func (s *Service) Claims(_ context.Context, _ []*model.Bootstrap) ([]*model.BootstrapClaim, error) {
	return nil, problem.New(problem.Internal, "")
}

// Candidates lists the machines that an order with an unknown outcome may have brought.
func (s *Service) Candidates(_ context.Context, _ *model.BootstrapClaim) ([]*model.Machine, error) {
	return nil, problem.New(problem.Internal, "")
}
