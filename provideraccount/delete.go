package provideraccount

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

const maxBlockers = 20

// Delete removes an account that nothing uses, for a caller who holds compute:providers:manage on it. UNAUTHENTICATED, INVALID_INPUT,
// FORBIDDEN, NOT_FOUND, or INVALID_STATE while a pool, an instance or a run uses it, or a machine at the provider without an owner would
// be lost from sight with it (details.blockers lists up to 20). Who says ForgetOrphans loses those; the audit log names up to 20. The bindings
// on the account go with it. Not idempotent: a repeat is NOT_FOUND.
func (s *Service) Delete(ctx context.Context, in model.DeleteProviderAccountInput) (*model.DeleteProviderAccountPayload, error) {
	at := GetInput{TenantID: in.TenantID, AccountID: in.AccountID}
	if err := s.admit(ctx, at, nil, model.ProvidersManage); err != nil {
		return nil, err
	}
	var gone *departure
	needs := authz.Need(model.ProvidersManage, authz.ProviderAccount(at.TenantID, at.AccountID))
	err := s.authz.Ending(ctx, needs,
		func(ctx context.Context, tx bun.Tx) (err error) {
			gone, err = lockUnused(ctx, tx, in)
			return err
		},
		func(ctx context.Context, tx bun.Tx) error { return deleteIn(ctx, tx, gone) })
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

// departure is an account that is about to go, with the machines that nobody will see any more.
type departure struct {
	*model.ProviderAccount
	forgotten []string
}

// lockUnused takes the lock that keeps others from referring to the account before it looks who does.
func lockUnused(ctx context.Context, tx bun.Tx, in model.DeleteProviderAccountInput) (*departure, error) {
	account, err := lockAccountForDelete(ctx, tx, in.TenantID, in.AccountID)
	if err != nil {
		return nil, err
	}
	blockers, err := selectBlockers(ctx, tx, account.ID, maxBlockers)
	if err != nil {
		return nil, err
	}
	d := &departure{ProviderAccount: account}
	if in.ForgetOrphans != nil && *in.ForgetOrphans {
		blockers = slices.DeleteFunc(blockers, func(b blocker) bool {
			if b.Type != orphanBlocker {
				return false
			}
			d.forgotten = append(d.forgotten, b.Name)
			return true
		})
	}
	if len(blockers) > 0 {
		return nil, inUse(blockers[:min(len(blockers), maxBlockers)])
	}
	return d, nil
}

func deleteIn(ctx context.Context, tx bun.Tx, gone *departure) error {
	account := gone.ProviderAccount
	// First, as a binding is seen with the account that it is on.
	if err := authz.Forget(ctx, tx, authz.ProviderAccount(account.TenantID, account.ID)); err != nil {
		return err
	}
	if err := deleteAccount(ctx, tx, account.ID); err != nil {
		return err
	}
	details := detailsOf(account)
	if len(gone.forgotten) > 0 {
		details["forgottenMachines"] = gone.forgotten
	}
	return recordWith(ctx, tx, deleteAction, audit.Allowed, account, details)
}

func inUse(blockers []blocker) error {
	return problem.New(problem.InvalidState, "The account is in use.").With("blockers", append([]blocker{}, blockers...))
}
