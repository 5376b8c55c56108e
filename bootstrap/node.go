package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/model"
)

// Node gives the run of that id, whichever tenant's it is, to a caller who holds compute:providers:read on its account; nil when it
// is not there, not readable or no run's id. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) Node(ctx context.Context, bootstrapID string) (*model.Bootstrap, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if !id.Valid("boot", bootstrapID) {
		return nil, nil
	}
	var found model.Bootstrap
	err := s.DB.NewSelect().Model(&found).ModelTableExpr("bootstraps AS b").ColumnExpr(columns).
		Where("b.id = ?", bootstrapID).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading a run: %w", err))
	}
	if held, err := s.Authz.Holds(ctx, model.ProvidersRead, authz.ProviderAccount(found.TenantID, found.AccountID)); !held {
		return nil, err
	}
	return &found, nil
}
