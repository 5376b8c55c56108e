package provideraccount

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/model"
)

const columns = "id, tenant_id, provider, name, config, version, created_by, created_at, updated_at, last_check"

// selectAccount gives NOT_FOUND when the tenant has none of that id.
func selectAccount(ctx context.Context, idb bun.IDB, tenantID, accountID string) (*model.ProviderAccount, error) {
	return oneAccount(ctx, idb, `SELECT `+columns+` FROM provider_accounts WHERE id = ? AND tenant_id = ?`, accountID, tenantID)
}

const (
	getAccount  = `SELECT ` + columns + ` FROM provider_accounts WHERE id = $1 AND tenant_id = $2`
	getAccounts = `SELECT ` + columns + ` FROM provider_accounts WHERE id = ANY ($1) AND tenant_id = $2`
)

// readAccount is selectAccount for the hot reads.
func readAccount(ctx context.Context, db *postgres.DB, tenantID, accountID string) (*model.ProviderAccount, error) {
	a, err := postgres.ReadOne(ctx, db, scanAccount, getAccount, accountID, tenantID)
	return a, translated(err, "reading a provider account")
}

// scanAccount takes the columns. The config stays the bytes that it is.
func scanAccount(row postgres.Row) (*model.ProviderAccount, error) {
	a := new(model.ProviderAccount)
	return a, scanInto(a, row)
}

func scanInto(a *model.ProviderAccount, row postgres.Row) error {
	return row.Scan(&a.ID, &a.TenantID, &a.Provider, &a.Name, (*[]byte)(&a.Config), &a.Version, &a.CreatedBy, &a.CreatedAt.Time, &a.UpdatedAt.Time, &a.Check)
}

// lockAccountForUpdate waits for those that refer to the account just now. It does not keep anybody from referring to it later.
func lockAccountForUpdate(ctx context.Context, tx bun.IDB, tenantID, accountID string) (*model.ProviderAccount, error) {
	return oneAccount(ctx, tx,
		`SELECT `+columns+` FROM provider_accounts WHERE id = ? AND tenant_id = ? FOR NO KEY UPDATE`, accountID, tenantID)
}

// lockAccountForDelete keeps anybody from referring to the account until tx ends.
func lockAccountForDelete(ctx context.Context, tx bun.IDB, tenantID, accountID string) (*model.ProviderAccount, error) {
	return oneAccount(ctx, tx,
		`SELECT `+columns+` FROM provider_accounts WHERE id = ? AND tenant_id = ? FOR UPDATE`, accountID, tenantID)
}

// lockAccountForUse keeps the account from being deleted, and lets it be updated.
func lockAccountForUse(ctx context.Context, tx bun.IDB, tenantID, accountID string) error {
	var one int
	err := tx.NewRaw(`SELECT 1 FROM provider_accounts WHERE id = ? AND tenant_id = ? FOR KEY SHARE`, accountID, tenantID).
		Scan(ctx, &one)
	return translated(err, "locking a provider account")
}

func oneAccount(ctx context.Context, idb bun.IDB, query string, args ...any) (*model.ProviderAccount, error) {
	a := new(model.ProviderAccount)
	if err := idb.NewRaw(query, args...).Scan(ctx, a); err != nil {
		return nil, translated(err, "reading a provider account")
	}
	return a, nil
}

const (
	insertBefore = `INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) VALUES`
	insertBehind = ` ON CONFLICT DO NOTHING RETURNING ` + columns
)

// insertAccount stores the account and reads it back as the database has it. It gives false when the id or the name is taken.
func insertAccount(ctx context.Context, tx bun.IDB, a *model.ProviderAccount) (inserted bool, err error) {
	err = tx.NewRaw(insertBefore+` (?, ?, ?, ?, ?::jsonb, ?)`+insertBehind,
		a.ID, a.TenantID, a.Provider, a.Name, string(a.Config), a.CreatedBy).Scan(ctx, a)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("storing a provider account: %w", err)
	}
	return true, nil
}

// queueInsert is insertAccount as a statement of a batch, which fails with sql.ErrNoRows when the id or the name is taken.
func queueInsert(b *postgres.Batch, a *model.ProviderAccount) {
	b.Queue(insertBefore+` ($1, $2, $3, $4, $5, $6)`+insertBehind,
		a.ID, a.TenantID, a.Provider, a.Name, string(a.Config), a.CreatedBy).QueryRow(func(row postgres.Row) error { return scanInto(a, row) })
}

// nameTaken reports whether the tenant has an account of that name.
func nameTaken(ctx context.Context, idb bun.IDB, tenantID, name string) (taken bool, err error) {
	err = idb.NewRaw(`SELECT EXISTS (SELECT FROM provider_accounts WHERE tenant_id = ? AND name = ?)`, tenantID, name).
		Scan(ctx, &taken)
	return taken, translated(err, "looking for a provider account's name")
}

// updateConfig counts the version in the statement itself, so that equal concurrent updates each count. What was learnt of the
// credentials was learnt of the old config.
func updateConfig(ctx context.Context, tx bun.IDB, accountID string, config model.JSON) (*model.ProviderAccount, error) {
	return oneAccount(ctx, tx, `UPDATE provider_accounts
		SET config = ?::jsonb, version = version + 1, updated_at = greatest(updated_at, clock_timestamp()),
			last_check = NULL, refused_stamp = NULL, refused_at = NULL
		WHERE id = ? RETURNING `+columns, string(config), accountID)
}

func deleteAccount(ctx context.Context, tx bun.IDB, accountID string) error {
	_, err := tx.NewRaw(`DELETE FROM provider_accounts WHERE id = ?`, accountID).Exec(ctx)
	if err != nil {
		return fmt.Errorf("deleting a provider account: %w", err)
	}
	return nil
}

// blocker is something that keeps an account from being deleted.
type blocker struct {
	Type string `bun:"type" json:"type"`
	ID   string `bun:"id" json:"id"`
	Name string `bun:"name" json:"name"`
}

// user is a blocker, with the pool that it is or is in.
type user struct {
	blocker
	PoolID string `bun:"pool_id"` // empty: none
}

// orphanBlocker is the type of a machine at the provider that nobody owns.
const orphanBlocker = "orphan"

// selectUsers reads what refers to the account, up to limit of each type. Archived pools, deleted instances and finished runs have
// dropped their reference. A run has no name: what it was asked for stands in, and for an orphan its machine.
func selectUsers(ctx context.Context, tx bun.IDB, accountID string, limit int) ([]user, error) {
	var users []user
	err := tx.NewRaw(`
		(SELECT 'pool' AS type, id, name, id AS pool_id FROM pools WHERE account_id = ?0 ORDER BY id LIMIT ?1)
		UNION ALL
		(SELECT 'instance', id, name, pool_id FROM instances WHERE account_id = ?0 ORDER BY id LIMIT ?1)
		UNION ALL
		(SELECT 'bootstrap', id, coalesce(machine_id, offer_id), '' FROM bootstraps WHERE live_account_id = ?0 ORDER BY id LIMIT ?1)
		UNION ALL
		(SELECT ?2, id, machine_id, '' FROM orphans WHERE account_id = ?0 AND kind = ?3 AND resolved_at IS NULL ORDER BY id LIMIT ?1)
		ORDER BY type, id`, accountID, limit, orphanBlocker, model.OrphanNotOurs).Scan(ctx, &users)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("looking for what uses a provider account: %w", err)
	}
	return users, nil
}

// listAccounts reads the tenant's accounts that the filter lets through and that come after a name, sorted by name.
func listAccounts(ctx context.Context, db *postgres.DB, f authz.Filter, q listQuery) ([]*model.ProviderAccount, error) {
	text, args := q.statement(f)
	accounts, err := postgres.Read(ctx, db, scanAccount, text, args...)
	return accounts, translated(err, "listing provider accounts")
}

// accountsByID reads those that there are.
func accountsByID(ctx context.Context, db *postgres.DB, tenantID string, ids []string) ([]*model.ProviderAccount, error) {
	accounts, err := postgres.Read(ctx, db, scanAccount, getAccounts, ids, tenantID)
	return accounts, translated(err, "reading provider accounts")
}

type listQuery struct {
	tenantID  string
	afterName string // every name comes after the empty one
	provider  *string
	limit     int
}

// statement has one of four texts.
func (q listQuery) statement(f authz.Filter) (text string, args []any) {
	visible, ids := f.Condition("id", "$4")
	text = `SELECT ` + columns + ` FROM provider_accounts WHERE tenant_id = $1 AND name > $2 AND ` + visible
	args = []any{q.tenantID, q.afterName, q.limit, ids}
	if q.provider != nil {
		text += ` AND provider = $5`
		args = append(args, *q.provider)
	}
	return text + ` ORDER BY name LIMIT $3`, args
}

func translated(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return notFound()
	}
	return postgres.Translate(fmt.Errorf("%s: %w", doing, err))
}
