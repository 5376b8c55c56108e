package provideraccount

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Update replaces the account's config for a caller who holds compute:providers:manage on it, and raises its version by one; a missing
// config counts as {}. Calls to the provider that begin later use the new config, in every replica. UNAUTHENTICATED, INVALID_INPUT,
// FORBIDDEN, NOT_FOUND, or CONFLICT when the account has another version than ifVersion. Not idempotent: each counts.
func (s *Service) Update(ctx context.Context, in model.UpdateProviderAccountInput) (*model.UpdateProviderAccountPayload, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if err := checkUpdate(in); err != nil {
		return nil, err
	}
	object := authz.ProviderAccount(in.TenantID, in.AccountID)
	if err := s.authz.Check(ctx, model.ProvidersManage, object); err != nil {
		return nil, err
	}
	var updated *model.ProviderAccount
	err := s.authz.Holding(ctx, authz.Need(model.ProvidersManage, object), func(ctx context.Context, tx bun.Tx) error {
		stored, err := lockAccountForUpdate(ctx, tx, in.TenantID, in.AccountID)
		if err != nil {
			return err
		}
		updated, err = s.updateIn(ctx, tx, stored, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &model.UpdateProviderAccountPayload{ProviderAccount: updated}, nil
}

func (s *Service) updateIn(ctx context.Context, tx bun.Tx, stored *model.ProviderAccount, in model.UpdateProviderAccountInput) (
	*model.ProviderAccount, error,
) {
	if _, known := s.registry.Lookup(stored.Provider); !known {
		return nil, noDriver(stored.Provider)
	}
	config := configOrEmpty(in.Config)
	if err := s.checkConfig(stored.Provider, config); err != nil {
		return nil, err
	}
	if in.IfVersion != nil && int64(*in.IfVersion) != stored.Version {
		return nil, problem.New(problem.Conflict, "The account has version %d, not %d.", stored.Version, *in.IfVersion).
			With("version", stored.Version)
	}
	updated, err := updateConfig(ctx, tx, stored.ID, config)
	if err != nil {
		return nil, err
	}
	return updated, record(ctx, tx, updateAction, audit.Allowed, updated)
}

func noDriver(providerName string) error {
	return problem.New(problem.InvalidConfig, "This server has no driver for the provider %s any more.", providerName)
}
