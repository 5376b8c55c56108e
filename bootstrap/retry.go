package bootstrap

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Retry starts a new run on the machine of a failed one, with its account and pool, for a caller who holds compute:providers:manage on
// the account. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, NOT_FOUND, or INVALID_STATE when the run has not failed or has no machine that
// is still to be had; then as Start. Idempotent as Start is.
//
// A machine that was named is free once its cleanup is over. One that the run ordered can be had until giving it back has begun; then the
// new run owns the order and the old one has nothing left to give back.
func (s *Service) Retry(ctx context.Context, in model.RetryBootstrapInput) (*model.RetryBootstrapPayload, error) {
	actor, err := s.Authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	var check checklist
	check.retry(in)
	if err := check.err(); err != nil {
		return nil, err
	}
	old, err := s.find(ctx, model.ProvidersManage, in.TenantID, in.BootstrapID)
	if err != nil {
		return nil, err
	}
	runID := id.Derive("boot", retryAction, in.TenantID, actor.Subject, in.IdempotencyKey)
	if p, err := s.replayRetry(ctx, runID, in); p != nil || err != nil {
		return p, err
	}
	if err := retryable(old); err != nil {
		return nil, err
	}
	plan, err := s.plan(ctx, runID, actor.Subject, model.BootstrapMachineInput{
		TenantID: old.TenantID, AccountID: old.AccountID, PoolID: old.PoolID, MachineID: old.MachineID,
	})
	if err != nil {
		return nil, err
	}
	plan.run.RetryOf = &old.ID
	var created *run
	err = s.Authz.Holding(ctx, needs(old.TenantID, old.AccountID), func(ctx context.Context, tx bun.Tx) error {
		created, err = s.create(ctx, tx, plan)
		return err
	})
	if errors.Is(err, errReplay) {
		return s.replayRetry(ctx, runID, in)
	}
	if err != nil {
		return nil, err
	}
	s.fault("retrying.committed")
	return &model.RetryBootstrapPayload{Bootstrap: &created.Bootstrap}, nil
}

// replayRetry finds the run that an earlier call with the key started; nil when there is none.
func (s *Service) replayRetry(ctx context.Context, runID string, in model.RetryBootstrapInput) (*model.RetryBootstrapPayload, error) {
	r, err := load(ctx, s.DB.DB, in.TenantID, runID)
	if r == nil || err != nil {
		return nil, err
	}
	if deref(r.RetryOf) != in.BootstrapID {
		return nil, problem.New(problem.Conflict, "The idempotency key was used for another bootstrap.").With("idempotencyKey", in.IdempotencyKey)
	}
	if err := record(ctx, s.DB.DB, retryAction, audit.Replayed, r); err != nil {
		return nil, postgres.Translate(err)
	}
	return &model.RetryBootstrapPayload{Bootstrap: &r.Bootstrap, Replayed: true}, nil
}

// retryable is INVALID_STATE unless the run has failed and left a machine that another run may have. What was ordered is left only as long as
// its cleanup is due and not begun: from then on the provider may have heard of the release, and nothing takes that back.
func retryable(old *run) error {
	refuse := func(why string) error {
		return problem.New(problem.InvalidState, "%s", why).With("status", old.Status).With("cleanup", old.Cleanup)
	}
	switch {
	case old.Status != model.Failed:
		return refuse("The bootstrap has not failed.")
	case old.MachineID == nil:
		return refuse("The bootstrap never had a machine; start a new one for the offer.")
	case old.OfferID == nil && old.LiveAccountID != nil:
		return refuse("The machine is still being cleaned up; try again when the cleanup is over.")
	case old.OfferID != nil && old.Cleanup != model.CleanupPending:
		return refuse("The machine that the bootstrap ordered is given back, or belongs to another bootstrap or host.")
	}
	return nil
}

// takeOver gives the new run what it needs of the old one, under the old one's lock. Where that ordered the machine, its operation id and all
// that is known of the order move, so that one run at any time can find or release it, and the old one's worker has lost its lease.
func takeOver(ctx context.Context, tx bun.Tx, r *run) (*run, error) {
	old, err := lock(ctx, tx, r.TenantID, *r.RetryOf)
	if err != nil {
		return nil, err
	}
	if err := retryable(old); err != nil {
		return nil, err
	}
	if old.OfferID == nil {
		// A delivery to the same machine counts on from the last one.
		return update(ctx, tx.NewUpdate().Model((*run)(nil)).Set("generation = ?", old.Generation).Where("id = ?", r.ID))
	}
	_, err = update(ctx, fields{
		"cleanup": model.CleanupKept, "operation_id": "retried-by-" + r.ID, "step": "", "wait_reason": nil, "last_error": "",
		"updated_at": now, "lease_until": nil,
	}.apply(tx.NewUpdate().Model((*run)(nil))).Set("lease_epoch = lease_epoch + 1").Where("id = ?", old.ID))
	if err != nil {
		return nil, err
	}
	_, err = tx.NewRaw("UPDATE machine_reservations SET bootstrap_id = ? WHERE bootstrap_id = ? AND host_id IS NULL", r.ID, old.ID).Exec(ctx)
	if err != nil {
		return nil, failed("moving a reservation", err)
	}
	return update(ctx, fields{
		"operation_id": old.OperationID, "offer_id": old.OfferID, "order_intent": old.OrderIntent, "order_intent_at": old.OrderIntentAt,
		"order_attempt_at": old.OrderAttemptAt, "order_ref": old.OrderRef, "claim_resolution": old.ClaimResolution, "generation": old.Generation,
	}.apply(tx.NewUpdate().Model((*run)(nil))).Where("id = ?", r.ID))
}
