package provideraccount

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"better/compute/model"
)

// TakeDue takes up to n accounts, of any tenant, that nobody has taken within the last `every`, for a service that goes through all of them.
// Each is taken by one caller, whichever replica it is in.
func (s *Service) TakeDue(ctx context.Context, every time.Duration, n int) ([]*model.ProviderAccount, error) {
	var due []*model.ProviderAccount
	err := s.db.NewRaw(`UPDATE provider_accounts SET swept_at = now() WHERE id IN (
			SELECT id FROM provider_accounts WHERE swept_at <= now() - ? * interval '1 microsecond'
			ORDER BY swept_at LIMIT ? FOR NO KEY UPDATE SKIP LOCKED)
		RETURNING `+columns, every.Microseconds(), n).Scan(ctx, &due)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, translated(err, "taking accounts that are due")
	}
	return due, nil
}
