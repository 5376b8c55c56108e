package bootstrap

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

// needs is what every change of a run takes, still at its end.
func needs(tenantID, accountID string) authz.Needs {
	return authz.Need(model.ProvidersManage, authz.ProviderAccount(tenantID, accountID))
}

// Cancel asks a run to fail with CANCELLED at its next step; what it ordered is then given back. It needs
// compute:providers:manage on the run's account. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, or INVALID_STATE once it has joined.
// A run that failed and keeps what it ordered for a retry gives that back now. Idempotent: it changes nothing for any other run that failed, or
// was cancelled before.
func (s *Service) Cancel(ctx context.Context, in model.CancelBootstrapInput) (*model.CancelBootstrapPayload, error) {
	r, err := s.find(ctx, model.ProvidersManage, in.TenantID, in.BootstrapID)
	if err != nil {
		return nil, err
	}
	var after *run
	err = s.Authz.Holding(ctx, needs(r.TenantID, r.AccountID), func(ctx context.Context, tx bun.Tx) (err error) {
		after, err = s.cancelIn(ctx, tx, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.fault("cancelling.committed")
	return &model.CancelBootstrapPayload{Bootstrap: &after.Bootstrap}, nil
}

func (s *Service) cancelIn(ctx context.Context, tx bun.Tx, in model.CancelBootstrapInput) (*run, error) {
	r, err := lock(ctx, tx, in.TenantID, in.BootstrapID)
	if err != nil {
		return nil, err
	}
	if r.Status == model.Joined {
		return nil, problem.New(problem.InvalidState, "The bootstrap has joined; remove the host instead.").With("status", r.Status)
	}
	if r.CancelRequestedAt != nil || r.Status == model.Failed && !r.keeps() {
		return r, record(ctx, tx, cancelAction, audit.Replayed, r)
	}
	r, err = update(ctx, tx.NewUpdate().Model((*run)(nil)).
		Set("cancel_requested_at = now()").Set("updated_at = now()").Where("id = ?", r.ID))
	if err != nil {
		return nil, err
	}
	if err := s.queue.wake(ctx, tx, r.ID); err != nil {
		return nil, err
	}
	s.fault("cancelling.written")
	return r, record(ctx, tx, cancelAction, audit.Allowed, r)
}

// keeps reports whether what the run ordered may be waiting for a retry.
func (r *run) keeps() bool { return r.OfferID != nil && r.Cleanup == model.CleanupPending }
