package pool

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Actions of this package in the audit log.
const (
	createAction  = "createPool"
	archiveAction = "archivePool"
)

// Create stores a pool for a caller who holds compute:pools:manage on the tenant and, for a pool of one account, compute:providers:read on
// that: else pools would tell which accounts there are. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, NOT_FOUND for an account that is not the
// tenant's, or CONFLICT for a name that another pool has which is not archived. Not idempotent.
func (s *Service) Create(ctx context.Context, in model.CreatePoolInput) (*model.CreatePoolPayload, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if err := checkCreate(in); err != nil {
		return nil, err
	}
	if err := s.authz.Check(ctx, model.PoolsManage, authz.Tenant(in.TenantID)); err != nil {
		return nil, err
	}
	needs := authz.Need(model.PoolsManage, authz.Tenant(in.TenantID))
	if in.AccountID != nil {
		account := authz.ProviderAccount(in.TenantID, *in.AccountID)
		if err := s.authz.Check(ctx, model.ProvidersRead, account); err != nil {
			return nil, err
		}
		needs = needs.And(model.ProvidersRead, account)
	}
	pool := model.Pool{
		ID: id.New(idPrefix), TenantID: in.TenantID, Name: in.Name, Class: in.Class, Agent: in.Agent, AccountID: in.AccountID,
	}
	var created *model.Pool
	err := s.authz.Holding(ctx, needs, func(ctx context.Context, tx bun.Tx) (err error) {
		created, err = createIn(ctx, tx, pool)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &model.CreatePoolPayload{Pool: created}, nil
}

func createIn(ctx context.Context, tx bun.Tx, pool model.Pool) (*model.Pool, error) {
	if err := lockAccount(ctx, tx, pool.TenantID, pool.AccountID); err != nil {
		return nil, err
	}
	created, err := insertPool(ctx, tx, pool)
	if err != nil {
		return nil, err
	}
	if created == nil {
		return nil, problem.New(problem.Conflict, "The tenant has a pool of that name.")
	}
	return created, record(ctx, tx, createAction, audit.Allowed, created)
}

func record(ctx context.Context, tx bun.Tx, action string, outcome audit.Outcome, p *model.Pool) error {
	return audit.Record(ctx, tx, audit.Entry{
		TenantID: p.TenantID, Action: action, Object: authz.Pool(p.TenantID, p.ID).String(), Outcome: outcome,
		Details: map[string]any{"name": p.Name, "class": p.Class, "agent": p.Agent},
	})
}
