package pool

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

const maxBlockers = 20

// Archive ends a pool, for a caller who holds compute:pools:manage on it: its name is free again and its account dropped.
// UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, NOT_FOUND, or INVALID_STATE while a run into it is not over, or it has hosts or instances
// (details.blockers lists up to 20, but for those that the caller may not read: details.hidden counts them). Idempotent.
func (s *Service) Archive(ctx context.Context, in model.ArchivePoolInput) (*model.ArchivePoolPayload, error) {
	if err := s.admit(ctx, GetInput(in), model.PoolsManage); err != nil {
		return nil, err
	}
	var pool *model.Pool
	err := s.authz.Holding(ctx, authz.Need(model.PoolsManage, authz.Pool(in.TenantID, in.PoolID)), func(ctx context.Context, tx bun.Tx) (err error) {
		pool, err = archiveIn(ctx, tx, in.TenantID, in.PoolID)
		return err
	})
	if used, ok := errors.AsType[*usedError](err); ok {
		return nil, s.tellUsers(ctx, in, used.users)
	}
	if err != nil {
		return nil, err
	}
	return &model.ArchivePoolPayload{Pool: pool}, nil
}

// archiveIn takes the lock that keeps others from putting something into the pool before it looks what is in there.
func archiveIn(ctx context.Context, tx bun.Tx, tenantID, poolID string) (*model.Pool, error) {
	pool, err := lockPoolForArchive(ctx, tx, tenantID, poolID)
	if err != nil {
		return nil, err
	}
	if pool.ArchivedAt != nil {
		return pool, record(ctx, tx, archiveAction, audit.Replayed, pool)
	}
	users, err := selectUsers(ctx, tx, pool, maxBlockers)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, &usedError{users}
	}
	if pool, err = setArchived(ctx, tx, pool.ID); err != nil {
		return nil, err
	}
	return pool, record(ctx, tx, archiveAction, audit.Allowed, pool)
}

// usedError ends the transaction that found what is in the pool. What of it may be told is decided without its connection.
type usedError struct{ users []user }

func (*usedError) Error() string { return "the pool is in use" }

// tellUsers names what is in the pool, except what the caller may not read: runs by their accounts, the rest by the pool. It is counted
// in details.hidden.
func (s *Service) tellUsers(ctx context.Context, in model.ArchivePoolInput, users []user) error {
	blockers := []blocker{}
	for _, u := range users {
		p, on := model.PoolsRead, authz.Pool(in.TenantID, in.PoolID)
		if u.AccountID != "" {
			p, on = model.ProvidersRead, authz.ProviderAccount(in.TenantID, u.AccountID)
		}
		may, err := s.authz.Holds(ctx, p, on)
		if err != nil {
			return err
		}
		if may {
			blockers = append(blockers, u.blocker)
		}
	}
	prob := problem.New(problem.InvalidState, "The pool is in use.").With("blockers", blockers)
	if hidden := len(users) - len(blockers); hidden > 0 {
		return prob.With("hidden", hidden)
	}
	return prob
}

// admit lets a caller through who is one, asks properly, and may do it to the pool.
func (s *Service) admit(ctx context.Context, at GetInput, p authz.Permission) error {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return err
	}
	var issues problem.Issues
	checkPlace(&issues, at.TenantID, at.PoolID)
	if err := issues.Err(); err != nil {
		return err
	}
	return s.authz.Check(ctx, p, authz.Pool(at.TenantID, at.PoolID))
}
