package pool

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

// CreateInstance writes an instance of the pool, made through the pool's account. It is for the pool's own controller and decides
// nothing. NOT_FOUND when the tenant has no such pool; INVALID_STATE when it is archived or has no account.
func CreateInstance(ctx context.Context, tx bun.IDB, tenantID, poolID, name string) (*model.Instance, error) {
	pool, err := lockPoolForUse(ctx, tx, tenantID, poolID)
	if err != nil {
		return nil, err
	}
	if pool.ArchivedAt != nil {
		return nil, problem.New(problem.InvalidState, "The pool is archived.")
	}
	if pool.AccountID == nil {
		return nil, problem.New(problem.InvalidState, "The pool has no provider account to create instances through.")
	}
	if err := lockAccount(ctx, tx, tenantID, pool.AccountID); err != nil {
		return nil, err
	}
	instance := &model.Instance{
		ID: id.New(instanceIDPrefix), TenantID: tenantID, PoolID: pool.ID, AccountID: pool.AccountID, Name: name,
	}
	if err := insertInstance(ctx, tx, instance); err != nil {
		return nil, err
	}
	return instance, nil
}

// DeleteInstance marks an instance as deleted, which keeps its row and drops the account. It is for the pool's own controller and decides
// nothing. NOT_FOUND when the tenant has none of that id. Idempotent.
func DeleteInstance(ctx context.Context, tx bun.IDB, tenantID, instanceID string) error {
	return setInstanceDeleted(ctx, tx, tenantID, instanceID)
}
