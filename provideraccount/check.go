package provideraccount

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// Check asks the provider whether it takes the account's credentials.
func (s *Service) Check(_ context.Context, _ model.CheckProviderAccountInput) (*model.ProviderAccount, error) {
	return nil, problem.New(problem.Internal, "")
}
