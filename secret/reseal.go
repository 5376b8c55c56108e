package secret

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// resealedAtOnce bounds how long a tenant's change of a secret waits.
const resealedAtOnce = 100

// Resealed counts what Reseal did.
type Resealed struct {
	Done int
	// Unopened are the secrets that no key opens. They are left as they are: they have to be written again.
	Unopened int
}

// Reseal seals everything that one of the old keys has sealed with the present one, for the operator of the server. It works beside running
// servers that have both keys, and begins where it stopped when it is run again.
func (s *Service) Reseal(ctx context.Context) (Resealed, error) {
	if s.key == nil {
		return Resealed{}, errors.New("there is no key to seal with: set secrets.store.keyFile")
	}
	ctx = postgres.WithScope(ctx, postgres.AllTenants())
	var total Resealed
	last := place{}
	for {
		var part Resealed
		var next place
		err := s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
			part, next, err = s.resealSome(ctx, tx, last)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("sealing secrets anew: %w", err)
		}
		total.Done += part.Done
		total.Unopened += part.Unopened
		if next == last {
			return total, nil
		}
		last = next
	}
}

// place is that of a secret in the order that Reseal takes.
type place struct {
	TenantID string `bun:"tenant_id"`
	Name     string `bun:"name"`
}

// resealSome takes the next secrets after a place, and gives the place of the last of them: the same place when there are no more.
func (s *Service) resealSome(ctx context.Context, tx bun.Tx, last place) (part Resealed, next place, err error) {
	rows, err := lockSealedByOthers(ctx, tx, s.key.id, last)
	if err != nil {
		return Resealed{}, last, err
	}
	next = last
	for _, row := range rows {
		next = row.place
		text, err := s.open(row.TenantID, row.Name, row.sealedRow)
		if err != nil {
			part.Unopened++
			continue
		}
		if err := replaceSealed(ctx, tx, row.place, s.key.seal(row.TenantID, row.Name, text)); err != nil {
			return Resealed{}, last, err
		}
		part.Done++
	}
	return part, next, nil
}
