package bootstrap

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"better/compute/model"
	"better/compute/provider"
)

// unmarkedOf are the machines that an account lists and no claim tells of. Which operation ordered each, if any of ours did, only we can know.
func unmarkedOf(c provider.Client, all []*model.Machine, claims []provider.OwnedMachine) (unmarked []claimedMachine) {
	marked := make(map[string]bool, len(claims))
	for _, claim := range claims {
		marked[claim.MachineID] = true
	}
	for _, m := range all {
		if !marked[m.ID] && m.Status != provider.MachineFree && namePattern.MatchString(m.ID) {
			unmarked = append(unmarked, claimedMachine{OwnedMachine: provider.OwnedMachine{MachineID: m.ID}, Key: keyOf(c, m.ID)})
		}
	}
	return unmarked
}

// orderedOf gives those of the unmarked machines that runs of the account have ordered, with the operation of each: the mark came off, or was never
// on and a person said what the order had brought. What was given back is left out, as some providers list the same machine for ever.
func orderedOf(ctx context.Context, idb bun.IDB, account *model.ProviderAccount, unmarked []claimedMachine) ([]claimedMachine, error) {
	if len(unmarked) == 0 {
		return nil, nil
	}
	ids, keys := make([]string, len(unmarked)), make(map[string]string, len(unmarked))
	for i, m := range unmarked {
		ids[i], keys[m.MachineID] = m.MachineID, m.Key
	}
	var rows []struct {
		OperationID string `bun:"operation_id"`
		MachineID   string `bun:"machine_id"`
	}
	err := orderedQuery(idb, account, ids).Scan(ctx, &rows)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("looking for machines that were ordered and are not marked", err)
	}
	var ordered []claimedMachine
	for _, row := range rows {
		if provider.IsOperationID(row.OperationID) { // a run that was tried again has left its operation to the next
			owned := provider.OwnedMachine{OperationID: row.OperationID, MachineID: row.MachineID}
			ordered = append(ordered, claimedMachine{OwnedMachine: owned, Key: keys[row.MachineID]})
		}
	}
	return ordered, nil
}

// orderedQuery looks the machines up among what the account's runs have ordered. Of runs that had the same one the latest counts.
func orderedQuery(idb bun.IDB, account *model.ProviderAccount, ids []string) *bun.RawQuery {
	return idb.NewRaw(`SELECT DISTINCT ON (b.machine_id) b.machine_id, b.operation_id FROM bootstraps AS b
		WHERE b.tenant_id = ?0 AND b.account_id = ?1 AND b.machine_id = ANY (?2::text[]) AND b.offer_id IS NOT NULL
			AND (b.status <> 'failed' OR b.cleanup <> 'released')
			AND NOT EXISTS (SELECT FROM orphans AS o WHERE o.tenant_id = ?0 AND o.account_id = ?1 AND o.machine_id = b.machine_id
				AND o.operation_id = b.operation_id AND o.resolved_at IS NOT NULL AND o.release_asked_at IS NOT NULL AND o.release_dropped_at IS NULL)
		ORDER BY b.machine_id, b.created_at DESC, b.id DESC`,
		account.TenantID, account.ID, pgdialect.Array(ids))
}
