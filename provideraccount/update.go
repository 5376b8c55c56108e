package provideraccount

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Update replaces the account's config for a caller who holds compute:providers:manage on it, and raises its version by one; a missing
// config counts as {}. A config that refers to a secret that the present one does not refer to takes the right on the tenant too, as making an account does:
// it may be another account's. Calls to the provider that begin later use the new config, in every replica. UNAUTHENTICATED, INVALID_INPUT,
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
	present, err := readAccount(ctx, s.db, in.TenantID, in.AccountID)
	if err != nil {
		return nil, err
	}
	needs := authz.Need(model.ProvidersManage, object)
	if refersToMore(in.Config, present.Config) {
		if err := s.authz.Check(ctx, model.ProvidersManage, authz.Tenant(in.TenantID)); err != nil {
			return nil, err
		}
		needs = needs.And(model.ProvidersManage, authz.Tenant(in.TenantID))
	}
	var updated *model.ProviderAccount
	err = s.authz.Holding(ctx, needs, func(ctx context.Context, tx bun.Tx) error {
		stored, err := lockAccountForUpdate(ctx, tx, in.TenantID, in.AccountID)
		if err != nil {
			return err
		}
		if refersToMore(present.Config, stored.Config) { // what was decided does not hold for it
			return problem.New(problem.Conflict, "The account was changed just now.").With("version", stored.Version)
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

// refersToMore reports whether a config refers to a secret, wherever it is kept, that another does not refer to.
func refersToMore(config, than model.JSON) bool {
	stored, elsewhere := references(config)
	knownStored, knownElsewhere := references(than)
	return !subset(stored, knownStored) || !subset(elsewhere, knownElsewhere)
}

func subset(of, all []string) bool {
	return !slices.ContainsFunc(of, func(s string) bool { return !slices.Contains(all, s) })
}

func noDriver(providerName string) error {
	return problem.New(problem.InvalidConfig, "This server has no driver for the provider %s any more.", providerName)
}
