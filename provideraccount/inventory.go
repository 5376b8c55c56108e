package provideraccount

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"better/compute/internal/postgres"
	"better/compute/model"
	"better/compute/provider"
)

// inventory keeps book of an account's machines in our own database, for providers that have no ordering API.
type inventory struct {
	db        *postgres.DB
	accountID string
}

// A claim ends with its run: when that is final, has nothing left to clean up, and left no host behind. A claim whose run is not
// to be found stands, since the run may be about to be written.
const claimEnded = `EXISTS (SELECT FROM bootstraps b WHERE b.operation_id = c.operation_id AND b.live_account_id IS NULL
	AND NOT EXISTS (SELECT FROM hosts h WHERE h.bootstrap_id = b.id AND h.removed_at IS NULL))`

const takenMachines = `
	SELECT machine_id FROM inventory_claims c WHERE account_id = ?0 AND NOT ` + claimEnded + `
	UNION
	SELECT machine_id FROM bootstraps WHERE live_account_id = ?0 AND machine_id IS NOT NULL
	UNION
	SELECT machine_id FROM hosts WHERE account_id = ?0 AND removed_at IS NULL`

// Machines that a run, a host or a release has, through whichever account of whichever tenant.
const reservedMachines = `SELECT m.machine_id FROM unnest(?0::text[], ?1::text[]) AS m (machine_id, machine_key)
	JOIN machine_reservations r ON r.machine_key = m.machine_key`

// Taken lists the machines that are claimed, in a live run, or hosts, and those that are reserved through another account.
func (i *inventory) Taken(ctx context.Context, keyed []provider.KeyedMachine) (map[string]bool, error) {
	taken, err := i.taken(ctx, i.db.DB, keyed)
	return taken, i.failure(err)
}

func (i *inventory) taken(ctx context.Context, idb bun.IDB, keyed []provider.KeyedMachine) (map[string]bool, error) {
	ids, keys := idsAndKeys(keyed)
	taken := map[string]bool{}
	for _, query := range []*bun.RawQuery{
		idb.NewRaw(takenMachines, i.accountID), idb.NewRaw(reservedMachines, pgdialect.Array(ids), pgdialect.Array(keys)),
	} {
		var found []string
		if err := query.Scan(ctx, &found); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		for _, id := range found {
			taken[id] = true
		}
	}
	return taken, nil
}

func idsAndKeys(keyed []provider.KeyedMachine) (ids, keys []string) {
	ids, keys = make([]string, len(keyed)), make([]string, len(keyed))
	for i, m := range keyed {
		ids[i], keys[i] = m.MachineID, m.Key
	}
	return ids, keys
}

// Claimed is the machine that the operation has taken.
func (i *inventory) Claimed(ctx context.Context, operationID string) (machineID string, err error) {
	machineID, err = i.claimed(ctx, i.db.DB, operationID)
	return machineID, i.failure(err)
}

func (i *inventory) claimed(ctx context.Context, idb bun.IDB, operationID string) (machineID string, err error) {
	err = idb.NewRaw(`SELECT machine_id FROM inventory_claims WHERE account_id = ? AND operation_id = ?`,
		i.accountID, operationID).Scan(ctx, &machineID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return machineID, err
}

// Take takes the first machine that is free, those that failed last only when there is no other: else one that is dead would be given out again
// and again. Takes of one account go one after the other, so that none is told that all are taken
// because of one that comes to nothing.
func (i *inventory) Take(ctx context.Context, operationID string, machines []provider.KeyedMachine) (machineID string, err error) {
	err = i.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		machineID, err = i.takeIn(ctx, tx, operationID, machines)
		return err
	})
	return machineID, i.failure(err)
}

func (i *inventory) takeIn(ctx context.Context, tx bun.Tx, operationID string, machines []provider.KeyedMachine) (string, error) {
	var one int
	err := tx.NewRaw(`SELECT 1 FROM provider_accounts WHERE id = ? FOR NO KEY UPDATE`, i.accountID).Scan(ctx, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return "", provider.Errorf(provider.NotFound, "The account is gone.")
	}
	if err != nil {
		return "", err
	}
	if machineID, err := i.claimed(ctx, tx, operationID); err != nil || machineID != "" {
		return machineID, err
	}
	if _, err := tx.NewRaw(`DELETE FROM inventory_claims c WHERE account_id = ? AND `+claimEnded, i.accountID).Exec(ctx); err != nil {
		return "", err
	}
	taken, err := i.taken(ctx, tx, machines)
	if err != nil {
		return "", err
	}
	ordered, err := i.byFailure(ctx, tx, machines)
	if err != nil {
		return "", err
	}
	for _, machineID := range ordered {
		if !taken[machineID] {
			_, err := tx.NewRaw(`INSERT INTO inventory_claims (account_id, machine_id, operation_id) VALUES (?, ?, ?)`,
				i.accountID, machineID, operationID).Exec(ctx)
			return machineID, err
		}
	}
	return "", provider.Errorf(provider.OutOfStock, "No such machine of the account is free.")
}

// byFailure orders machines by when they failed, those whose last run did not first. A run that a person cancelled tells nothing of its machine.
func (i *inventory) byFailure(ctx context.Context, idb bun.IDB, machines []provider.KeyedMachine) (ids []string, err error) {
	all, _ := idsAndKeys(machines)
	err = idb.NewRaw(`SELECT m.machine_id FROM unnest(?1::text[]) WITH ORDINALITY AS m (machine_id, place)
		LEFT JOIN (
			SELECT DISTINCT ON (b.machine_id) b.machine_id, b.status, b.created_at
			FROM bootstraps b JOIN provider_accounts a ON a.tenant_id = b.tenant_id AND a.id = b.account_id
			WHERE a.id = ?0 AND b.machine_id IS NOT NULL AND b.failure ->> 'reason' IS DISTINCT FROM ?2
			ORDER BY b.machine_id, b.created_at DESC, b.id DESC
		) AS last ON last.machine_id = m.machine_id AND last.status = ?3
		ORDER BY last.created_at NULLS FIRST, m.place`, i.accountID, pgdialect.Array(all), model.Cancelled, model.Failed).Scan(ctx, &ids)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	return ids, nil
}

// Drop gives back what the operation took.
func (i *inventory) Drop(ctx context.Context, operationID string) error {
	_, err := i.db.NewRaw(`DELETE FROM inventory_claims WHERE account_id = ? AND operation_id = ?`,
		i.accountID, operationID).Exec(ctx)
	return i.failure(err)
}

// failure speaks to drivers in their own errors.
func (i *inventory) failure(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*provider.Error](err); ok {
		return err
	}
	return provider.Errorf(provider.Unavailable, "The book of taken machines cannot be read right now.").
		Because(fmt.Errorf("inventory of %s: %w", i.accountID, err))
}
