package provideraccount

import (
	"context"
	"errors"
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
// be lost from sight with it (details.blockers lists up to 20, but for those that the caller may not read: details.hidden counts them).
// Who says ForgetOrphans loses those machines; the audit log names up to 20. The bindings on the account go with it. Not idempotent: a
// repeat is NOT_FOUND.
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
		return nil, inUse()
	}
	if used, ok := errors.AsType[*usedError](err); ok {
		return nil, s.tellUsers(ctx, at, used.users)
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
	users, err := selectUsers(ctx, tx, account.ID, maxBlockers)
	if err != nil {
		return nil, err
	}
	d := &departure{ProviderAccount: account}
	if in.ForgetOrphans != nil && *in.ForgetOrphans {
		users = slices.DeleteFunc(users, func(u user) bool {
			if u.Type != orphanBlocker {
				return false
			}
			d.forgotten = append(d.forgotten, u.Name)
			return true
		})
	}
	if len(users) > 0 {
		return nil, &usedError{users[:min(len(users), maxBlockers)]}
	}
	return d, nil
}

// usedError ends the transaction that found what uses the account. What of it may be told is decided without its connection.
type usedError struct{ users []user }

func (*usedError) Error() string { return "the account is in use" }

// tellUsers names what uses the account, except what the caller may not read: pools and what is in them by the pool, the rest by the
// account. It is counted in details.hidden.
func (s *Service) tellUsers(ctx context.Context, at GetInput, users []user) error {
	var blockers []blocker
	for _, u := range users {
		p, on := model.ProvidersRead, authz.ProviderAccount(at.TenantID, at.AccountID)
		if u.PoolID != "" {
			p, on = model.PoolsRead, authz.Pool(at.TenantID, u.PoolID)
		}
		may, err := s.authz.Holds(ctx, p, on)
		if err != nil {
			return err
		}
		if may {
			blockers = append(blockers, u.blocker)
		}
	}
	prob := inUse(blockers...)
	if hidden := len(users) - len(blockers); hidden > 0 {
		return prob.With("hidden", hidden)
	}
	return prob
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

func inUse(blockers ...blocker) *problem.Error {
	return problem.New(problem.InvalidState, "The account is in use.").With("blockers", append([]blocker{}, blockers...))
}
