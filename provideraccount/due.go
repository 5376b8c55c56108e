package provideraccount

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"

	"better/compute/model"
)

// TakeDue takes the account, of whatever tenant that is not busy, that nobody has taken for longest, and for at least `every`, for a service
// that goes through all of them; nil when there is none. Each is taken by one caller, whichever replica it is in.
func (s *Service) TakeDue(ctx context.Context, every time.Duration, busy []string) (*model.ProviderAccount, error) {
	due := new(model.ProviderAccount)
	err := s.db.NewRaw(`UPDATE provider_accounts SET swept_at = now() WHERE id = (
			SELECT id FROM provider_accounts WHERE swept_at <= now() - ? * interval '1 microsecond' AND tenant_id <> ALL (?::text[])
			ORDER BY swept_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
		RETURNING `+columns, every.Microseconds(), pgdialect.Array(busy)).Scan(ctx, due)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, translated(err, "taking an account that is due")
	}
	return due, nil
}
