package bootstrap

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// Retry starts a new run on the machine of a failed one.
func (s *Service) Retry(_ context.Context, _ model.RetryBootstrapInput) (*model.RetryBootstrapPayload, error) {
	return nil, problem.New(problem.Internal, "")
}
