package bootstrap

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

// How a person resolved an order whose outcome was unknown.
const (
	resolvedMachine = "machine"
	resolvedNothing = "nothing-ordered"
)

// ResolveClaim says what became of an order whose outcome is unknown: it brought this machine, or nothing and may be sent again.
// For a run that failed meanwhile it is the word that the cleanup waits for. It needs compute:providers:manage on the run's
// account. INVALID_INPUT (also for a machine that the account does not list or another order brought), UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, CONFLICT for a
// machine that another run or a host has, whoever's it is, the errors of the account's machines when the provider cannot be asked about the one
// that is named, or INVALID_STATE unless the run waits with CLAIM_UNCERTAIN. Not idempotent: once it is said, a repeat is INVALID_STATE.
func (s *Service) ResolveClaim(ctx context.Context, in model.ResolveClaimInput) (*model.ResolveClaimPayload, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var check checklist
	check.resolve(in)
	if err := check.err(); err != nil {
		return nil, err
	}
	r, err := s.find(ctx, model.ProvidersManage, in.TenantID, in.BootstrapID)
	if err != nil {
		return nil, err
	}
	named, err := s.named(ctx, r, in.MachineID)
	if err != nil {
		return nil, s.Authz.ErrorFor(ctx, model.ProvidersManage, authz.ProviderAccount(r.TenantID, r.AccountID), err)
	}
	var after *run
	err = s.Authz.Holding(ctx, needs(r.TenantID, r.AccountID), func(ctx context.Context, tx bun.Tx) (err error) {
		after, err = s.resolveIn(ctx, tx, in, named)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.fault("resolving.committed")
	return &model.ResolveClaimPayload{Bootstrap: &after.Bootstrap}, nil
}

func (s *Service) resolveIn(ctx context.Context, tx bun.Tx, in model.ResolveClaimInput, named namedMachine) (*run, error) {
	r, err := lock(ctx, tx, in.TenantID, in.BootstrapID)
	if err != nil {
		return nil, err
	}
	if err := r.resolvable(); err != nil {
		return nil, err
	}
	set, err := s.resolution(ctx, tx, r, in)
	if err != nil {
		return nil, err
	}
	// The new epoch takes the run from a worker that is just looking for the order once more.
	r, err = update(ctx, set.apply(tx.NewUpdate().Model((*run)(nil))).Set("lease_epoch = lease_epoch + 1").Where("id = ?", r.ID))
	if err != nil {
		return nil, err
	}
	if err := named.reserveIn(ctx, tx, r); err != nil {
		return nil, err
	}
	if err := s.queue.wake(ctx, tx, r.ID); err != nil {
		return nil, err
	}
	s.fault("resolving.written")
	return r, record(ctx, tx, resolveAction, audit.Allowed, r)
}

// namedMachine is how reservations know the machine that a person names; its key is empty for none, and for one that cannot be reserved.
type namedMachine struct {
	key       string
	contested bool
}

// named is the machine that a person names, if the order may have brought it.
func (s *Service) named(ctx context.Context, r *run, machineID *string) (n namedMachine, err error) {
	if machineID == nil {
		return n, nil
	}
	if err := s.mayBeOf(ctx, r, *machineID); err != nil {
		return n, err
	}
	keys, err := s.keysOf(ctx, &r.Bootstrap, []*model.Machine{{ID: *machineID}})
	if err != nil {
		return n, err
	}
	n.key = keys[*machineID]
	n.contested, err = s.contested(ctx, n.key, r.TenantID)
	return n, err
}

// reserveIn makes the machine the run's, so that no two orders are said to have brought it, and gives back one that was named by mistake before.
func (n namedMachine) reserveIn(ctx context.Context, tx bun.IDB, r *run) error {
	if err := unreserve(ctx, tx, r.ID); err != nil || n.key == "" {
		return err
	}
	got, err := reserve(ctx, tx, n.key, r.ID)
	if err == nil && !got && !n.contested {
		return machineInUse(*r.MachineID)
	}
	return err
}

// mayBeOf refuses a machine that the order cannot have brought: one that the account does not list, or that another order brought, since
// whoever sent that one waits for it. INVALID_STATE, too, for a run that is just about to wait for the word: nobody has looked at the machine then.
func (s *Service) mayBeOf(ctx context.Context, r *run, machineID string) error {
	if err := r.resolvable(); err != nil {
		return err
	}
	there, err := s.atProvider(ctx, &r.Bootstrap)
	if err != nil {
		return err
	}
	var check checklist
	order := there.orders[machineID]
	switch {
	case order != "" && order != r.OperationID:
		check.issues.Add("machineId", "must be what this order brought; this machine carries the operation id of another")
	case order == "" && there.machines != nil && !there.lists(machineID):
		check.issues.Add("machineId", "must be one of the account's machines")
	}
	return check.err()
}

// resolvable is INVALID_STATE unless the run waits for a person to say what became of its order.
func (r *run) resolvable() error {
	if r.uncertain() {
		return nil
	}
	return problem.New(problem.InvalidState, "The bootstrap does not wait for anybody to resolve its claim.").
		With("status", r.Status).With("waitReason", r.WaitReason)
}

// uncertain reports whether the run waits for a person to say what became of its order.
func (r *run) uncertain() bool {
	return r.WaitReason != nil && *r.WaitReason == model.ClaimUncertain
}

// resolution is what the person's word writes. The time for claiming starts anew. A machine counts as ordered, also where this run sent no order.
func (s *Service) resolution(ctx context.Context, tx bun.IDB, r *run, in model.ResolveClaimInput) (fields, error) {
	set := fields{"wait_reason": nil, "step": "", "attempt": 0, "lease_until": nil, "updated_at": now}
	if in.MachineID != nil {
		set = set.with(fields{
			"claim_resolution": resolvedMachine, "machine_id": *in.MachineID, "order_attempt_at": bun.Safe("coalesce(order_attempt_at, now())"),
		})
	} else {
		set = set.with(fields{"claim_resolution": resolvedNothing, "machine_id": nil, "order_attempt_at": nil, "order_ref": nil})
	}
	if r.Status == model.Failed {
		return set.with(fields{"cleanup": model.CleanupPending}), nil
	}
	account, err := s.Accounts.Account(ctx, tx, r.TenantID, r.AccountID)
	if err != nil {
		return nil, err
	}
	manifest, _ := s.Accounts.Manifest(account.Provider)
	return set.with(fields{"deadline_at": fromNow(s.Timing.claim(manifest, r.kind()))}), nil
}
