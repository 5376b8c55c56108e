// Package apitoken owns the credentials that administrators make for programs: API tokens.
//
// It refuses to know what a token's subject may do, which package authz decides. The invariant: a token is shown once, in the answer
// that made it; what is stored is its hash, from which nobody gets it back.
package apitoken

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

// Service makes, lists and revokes API tokens.
type Service struct{ Deps }

// New makes a Service.
func New(d Deps) *Service { return &Service{d} }

// PageInput says which tokens to list: those of a tenant, or with nil those of the fleet.
type PageInput struct {
	TenantID *string
	First    *int
	After    *string
}

// Create makes a token.
func (s *Service) Create(_ context.Context, _ model.CreateAPITokenInput) (*model.CreateAPITokenPayload, error) {
	return nil, problem.New(problem.Internal, "")
}

// Revoke ends a token.
func (s *Service) Revoke(_ context.Context, _ model.RevokeAPITokenInput) (*model.RevokeAPITokenPayload, error) {
	return nil, problem.New(problem.Internal, "")
}

// Page lists tokens.
func (s *Service) Page(_ context.Context, _ PageInput) (*model.APITokenConnection, error) {
	return nil, problem.New(problem.Internal, "")
}
