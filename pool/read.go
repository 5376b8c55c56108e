package pool

import (
	"context"
	"strconv"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// GetInput names a pool.
type GetInput struct {
	TenantID string `json:"tenantId"`
	PoolID   string `json:"poolId"`
}

// PageInput asks for one page of a tenant's pools.
type PageInput struct {
	TenantID        string  `json:"tenantId"`
	IncludeArchived bool    `json:"includeArchived"`
	First           *int    `json:"first"` // 1 to 100; nil: 50
	After           *string `json:"after"`
}

// Get gives the pool to a caller who holds compute:pools:read on it. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, or NOT_FOUND also
// for another tenant's.
func (s *Service) Get(ctx context.Context, in GetInput) (*model.Pool, error) {
	if err := s.admit(ctx, in, model.PoolsRead); err != nil {
		return nil, err
	}
	return selectPool(ctx, s.db.DB, in.TenantID, in.PoolID)
}

// Page gives those of the tenant's pools that the caller holds compute:pools:read on, sorted by name in byte order, then id.
// INVALID_INPUT, UNAUTHENTICATED, or FORBIDDEN when there is neither a grant on the tenant nor on a single pool.
func (s *Service) Page(ctx context.Context, in PageInput) (*model.PoolConnection, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.cursors.List(ctx, "pools", in.TenantID, strconv.FormatBool(in.IncludeArchived))
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[place](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	filter, err := s.authz.Filter(ctx, model.PoolsRead, in.TenantID, authz.Pools)
	if err != nil {
		return nil, err
	}
	pools, err := selectPools(ctx, s.db.DB, filter, in.TenantID, in.IncludeArchived, p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(pools, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

// Node gives the pool of that id, whichever tenant's it is, to a caller who holds compute:pools:read on it; nil when it is not there,
// not readable or no pool's id. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) Node(ctx context.Context, poolID string) (*model.Pool, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if !id.Valid(idPrefix, poolID) {
		return nil, nil
	}
	pool, err := onePool(ctx, s.db.DB, `SELECT `+columns+` FROM pools WHERE id = ?`, poolID)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if held, err := s.authz.Holds(ctx, model.PoolsRead, authz.Pool(pool.TenantID, pool.ID)); !held {
		return nil, err
	}
	return pool, nil
}

// ByIDs gives those of the tenant's pools that the caller holds compute:pools:read on, by id, in one query. What is not there or not
// readable is left out. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) ByIDs(ctx context.Context, tenantID string, ids []string) (map[string]*model.Pool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	filter, err := s.authz.Held(ctx, model.PoolsRead, tenantID, authz.Pools)
	if err != nil || filter.None() {
		return nil, err
	}
	return poolsByID(ctx, s.db, tenantID, filter.Of(ids))
}

// ForBootstrap reads a pool for a run that is about to be written in tx, and keeps it from being archived until tx ends. It
// decides nothing. NOT_FOUND when the tenant has none of that id; an archived one comes back as it is.
func (s *Service) ForBootstrap(ctx context.Context, tx bun.IDB, tenantID, poolID string) (*model.Pool, error) {
	return lockPoolForUse(ctx, tx, tenantID, poolID)
}
