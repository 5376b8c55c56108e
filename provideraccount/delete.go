package provideraccount

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

const maxBlockers = 20

// Delete removes an account that nothing uses, for a caller who holds compute:providers:manage on it. UNAUTHENTICATED, INVALID_INPUT,
// FORBIDDEN, NOT_FOUND, or INVALID_STATE while a pool, an instance or a run uses it (details.blockers lists up to 20). The bindings on
// the account go with it. Not idempotent: a repeat is NOT_FOUND.
func (s *Service) Delete(ctx context.Context, in model.DeleteProviderAccountInput) (*model.DeleteProviderAccountPayload, error) {
	at := GetInput(in)
	if err := s.admit(ctx, at, nil, model.ProvidersManage); err != nil {
		return nil, err
	}
	var account *model.ProviderAccount
	needs := authz.Need(model.ProvidersManage, authz.ProviderAccount(at.TenantID, at.AccountID))
	err := s.authz.Ending(ctx, needs,
		func(ctx context.Context, tx bun.Tx) (err error) {
			account, err = lockUnused(ctx, tx, at)
			return err
		},
		func(ctx context.Context, tx bun.Tx) error { return deleteIn(ctx, tx, account) })
	if _, broken := postgres.ForeignKeyViolation(err); broken {
		// The lock makes this impossible for rows that lock the account first; the key is the wall behind it.
		return nil, inUse(nil)
	}
	if err != nil {
		return nil, err
	}
	s.clients.drop(in.AccountID)
	return &model.DeleteProviderAccountPayload{Deleted: true, DeletedID: in.AccountID}, nil
}

// lockUnused takes the lock that keeps others from referring to the account before it looks who does.
func lockUnused(ctx context.Context, tx bun.Tx, at GetInput) (*model.ProviderAccount, error) {
	account, err := lockAccountForDelete(ctx, tx, at.TenantID, at.AccountID)
	if err != nil {
		return nil, err
	}
	blockers, err := selectBlockers(ctx, tx, account.ID, maxBlockers)
	if err != nil {
		return nil, err
	}
	if len(blockers) > 0 {
		return nil, inUse(blockers)
	}
	return account, nil
}

func deleteIn(ctx context.Context, tx bun.Tx, account *model.ProviderAccount) error {
	// First, as a binding is seen with the account that it is on.
	if err := authz.Forget(ctx, tx, authz.ProviderAccount(account.TenantID, account.ID)); err != nil {
		return err
	}
	if err := deleteAccount(ctx, tx, account.ID); err != nil {
		return err
	}
	return record(ctx, tx, deleteAction, audit.Allowed, account)
}

func inUse(blockers []blocker) error {
	return problem.New(problem.InvalidState, "The account is in use.").With("blockers", append([]blocker{}, blockers...))
}
