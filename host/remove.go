package host

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/model"
)

// Remove ends the trust in a host, for a caller who holds compute:pools:manage on its pool. From its commit on every request of the
// host is refused, whatever connection it comes on, and its machine may be bootstrapped again. UNAUTHENTICATED, INVALID_INPUT,
// FORBIDDEN or NOT_FOUND. Idempotent.
func (s *Service) Remove(ctx context.Context, in model.RemoveHostInput) (*model.RemoveHostPayload, error) {
	h, err := s.admitted(ctx, GetInput(in), model.PoolsManage)
	if err != nil {
		return nil, err
	}
	needs := authz.Need(model.PoolsManage, authz.Pool(h.TenantID, h.PoolID))
	err = s.authz.Holding(ctx, needs, func(ctx context.Context, tx bun.Tx) error {
		removed, err := setRemoved(ctx, tx, in.HostID)
		if err != nil {
			return err
		}
		outcome := audit.Allowed
		if !removed {
			outcome = audit.Replayed
		}
		if h, err = selectHost(ctx, tx, in.TenantID, in.HostID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			TenantID: h.TenantID, Action: removeAction, Object: authz.Pool(h.TenantID, h.PoolID).String(), Outcome: outcome,
			Details: map[string]any{"hostId": h.ID, "machineId": h.MachineID},
		})
	})
	if err != nil {
		return nil, err
	}
	return &model.RemoveHostPayload{Host: h}, nil
}
