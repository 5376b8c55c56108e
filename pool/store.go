package pool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

const columns = "id, tenant_id, name, class, agent, account_id, archived_at, created_at"

// selectPool gives NOT_FOUND when the tenant has none of that id.
func selectPool(ctx context.Context, idb bun.IDB, tenantID, poolID string) (*model.Pool, error) {
	return onePool(ctx, idb, `SELECT `+columns+` FROM pools WHERE id = ? AND tenant_id = ?`, poolID, tenantID)
}

// lockPoolForArchive waits for those that refer to the pool just now, and keeps others from it until tx ends.
func lockPoolForArchive(ctx context.Context, tx bun.IDB, tenantID, poolID string) (*model.Pool, error) {
	return onePool(ctx, tx, `SELECT `+columns+` FROM pools WHERE id = ? AND tenant_id = ? FOR UPDATE`, poolID, tenantID)
}

// lockPoolForUse keeps the pool from being archived until tx ends. Any number of users can hold it at once.
func lockPoolForUse(ctx context.Context, tx bun.IDB, tenantID, poolID string) (*model.Pool, error) {
	return onePool(ctx, tx, `SELECT `+columns+` FROM pools WHERE id = ? AND tenant_id = ? FOR KEY SHARE`, poolID, tenantID)
}

func onePool(ctx context.Context, idb bun.IDB, query string, args ...any) (*model.Pool, error) {
	p := new(model.Pool)
	err := idb.NewRaw(query, args...).Scan(ctx, p)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound()
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading a pool: %w", err))
	}
	return p, nil
}

// lockAccount keeps the account, if there is one, from being deleted until tx ends. NOT_FOUND when it is not the tenant's.
func lockAccount(ctx context.Context, tx bun.IDB, tenantID string, accountID *string) error {
	if accountID == nil {
		return nil
	}
	var one int
	err := tx.NewRaw(`SELECT 1 FROM provider_accounts WHERE id = ? AND tenant_id = ? FOR KEY SHARE`, *accountID, tenantID).
		Scan(ctx, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return problem.New(problem.NotFound, "The tenant has no such provider account.")
	}
	if err != nil {
		return fmt.Errorf("locking a provider account: %w", err)
	}
	return nil
}

// insertPool stores the pool and reads it back, into memory of its own: a scan writes through pointers. It gives nil when the name
// is taken.
func insertPool(ctx context.Context, tx bun.IDB, p model.Pool) (*model.Pool, error) {
	stored := new(model.Pool)
	err := tx.NewRaw(`INSERT INTO pools (id, tenant_id, name, class, agent, account_id) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING RETURNING `+columns, p.ID, p.TenantID, p.Name, p.Class, p.Agent, p.AccountID).Scan(ctx, stored)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storing a pool: %w", err)
	}
	return stored, nil
}

func setArchived(ctx context.Context, tx bun.IDB, poolID string) (*model.Pool, error) {
	return onePool(ctx, tx, `UPDATE pools SET archived_at = clock_timestamp(), account_id = NULL WHERE id = ? RETURNING `+columns, poolID)
}

// blocker is something that keeps a pool from being archived.
type blocker struct {
	Type string `bun:"type" json:"type"`
	ID   string `bun:"id" json:"id"`
	Name string `bun:"name" json:"name"`
}

// user is a blocker, with the account whose reader may know of it.
type user struct {
	blocker
	AccountID string `bun:"account_id"` // empty: the pool's reader may
}

// selectUsers reads up to limit of what is in the pool or on its way into it. Runs and hosts have no name: the machine's stands in.
func selectUsers(ctx context.Context, tx bun.IDB, p *model.Pool, limit int) ([]user, error) {
	var users []user
	err := tx.NewRaw(`
		SELECT 'bootstrap' AS type, id, coalesce(machine_id, offer_id) AS name, account_id FROM bootstraps
			WHERE tenant_id = ?0 AND pool_id = ?1 AND live_account_id IS NOT NULL
		UNION ALL
		SELECT 'host', id, machine_id, '' FROM hosts WHERE tenant_id = ?0 AND pool_id = ?1 AND removed_at IS NULL
		UNION ALL
		SELECT 'instance', id, name, '' FROM instances WHERE pool_id = ?1 AND deleted_at IS NULL
		ORDER BY type, id LIMIT ?2`, p.TenantID, p.ID, limit).Scan(ctx, &users)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("looking for what uses a pool: %w", err)
	}
	return users, nil
}

// selectPools reads one item more than the page has.
func selectPools(ctx context.Context, idb bun.IDB, f authz.Filter, tenantID string, archived bool, p input.Page[place]) ([]*model.Pool, error) {
	pools := []*model.Pool{}
	query := f.Where(idb.NewSelect().TableExpr("pools").ColumnExpr(columns), "id").
		Where("tenant_id = ?", tenantID).OrderExpr("name, id").Limit(int64(p.First + 1))
	if !archived {
		query.Where("archived_at IS NULL")
	}
	if p.After != "" {
		query.Where("(name, id) > (?, ?)", p.Place.Name, p.Place.ID)
	}
	if err := query.Scan(ctx, &pools); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing pools: %w", err))
	}
	return pools, nil
}

// poolsByID reads those that there are.
func poolsByID(ctx context.Context, db *postgres.DB, tenantID string, ids []string) (map[string]*model.Pool, error) {
	pools, err := postgres.Read(ctx, db, scanPool, `SELECT `+columns+` FROM pools WHERE tenant_id = $1 AND id = ANY ($2)`, tenantID, ids)
	if err != nil {
		return nil, fmt.Errorf("reading pools: %w", err)
	}
	byID := make(map[string]*model.Pool, len(pools))
	for _, p := range pools {
		byID[p.ID] = p
	}
	return byID, nil
}

func scanPool(row postgres.Row) (*model.Pool, error) {
	p := new(model.Pool)
	return p, row.Scan(&p.ID, &p.TenantID, &p.Name, (*string)(&p.Class), (*string)(&p.Agent), &p.AccountID, &p.ArchivedAt, &p.CreatedAt.Time)
}

func insertInstance(ctx context.Context, tx bun.IDB, i *model.Instance) error {
	err := tx.NewRaw(`INSERT INTO instances (id, tenant_id, pool_id, account_id, name) VALUES (?, ?, ?, ?, ?) RETURNING created_at`,
		i.ID, i.TenantID, i.PoolID, i.AccountID, i.Name).Scan(ctx, &i.CreatedAt)
	if err != nil {
		return fmt.Errorf("storing an instance: %w", err)
	}
	return nil
}

func setInstanceDeleted(ctx context.Context, tx bun.IDB, tenantID, instanceID string) error {
	res, err := tx.NewRaw(`UPDATE instances SET deleted_at = coalesce(deleted_at, clock_timestamp()), account_id = NULL
		WHERE id = ? AND tenant_id = ?`, instanceID, tenantID).Exec(ctx)
	if err != nil {
		return fmt.Errorf("deleting an instance: %w", err)
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		return problem.New(problem.NotFound, "The tenant has no such instance.")
	}
	return err
}
