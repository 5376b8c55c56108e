package bootstrap

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// MarkJoined ends the run with the host that its agent became, in the transaction of the join, after the host's row was written. The
// reservation of the machine goes from the run to the host. An agent may join before the reconciler has heard that its install
// ended: the run then passes through installed. INVALID_STATE when the run is not at a place to be joined, or was
// cancelled. It decides nothing about tokens.
func MarkJoined(ctx context.Context, tx bun.IDB, bootstrapID, hostID string) error {
	err := markJoined(ctx, tx, bootstrapID, hostID)
	if errors.Is(err, errLost) {
		return problem.New(problem.InvalidState, "The bootstrap cannot be joined any more.")
	}
	return err
}

// CountJoin tells the meter of the states that a run has just left by a join, which is committed.
func (s *Service) CountJoin(ctx context.Context, bootstrapID string) {
	var entered []time.Time
	err := s.DB.NewRaw(`SELECT at FROM bootstrap_transitions WHERE bootstrap_id = ? AND to_status IN (?, ?, ?) ORDER BY id`,
		bootstrapID, model.Installing, model.Installed, model.Joined).Scan(everyTenant(ctx), &entered)
	if err != nil || len(entered) != 3 {
		return // no figure is a reason to keep a host out
	}
	if entered[1].Equal(entered[2]) { // the join came first, and took it through both
		s.Meter.Left(model.Installing, model.Installed, "", entered[1].Sub(entered[0]))
	}
	s.Meter.Left(model.Installed, model.Joined, "", entered[2].Sub(entered[1]))
}

func markJoined(ctx context.Context, tx bun.IDB, bootstrapID, hostID string) error {
	var status model.BootstrapStatus
	err := tx.NewSelect().Model((*run)(nil)).Column("status").Where("id = ?", bootstrapID).Where("cancel_requested_at IS NULL").
		Where("status IN (?, ?)", model.Installing, model.Installed).For("NO KEY UPDATE").Scan(ctx, &status)
	if err := notLost(err); err != nil {
		return err
	}
	joinable := func() *bun.UpdateQuery { return tx.NewUpdate().Model((*run)(nil)).Where("id = ?", bootstrapID) }
	if status == model.Installing {
		_, err := transition(ctx, tx, joinable(), change{from: &status, to: model.Installed})
		if err != nil {
			return err
		}
		status = model.Installed
	}
	// The new epoch stops a worker that is in the middle of a step.
	_, err = transition(ctx, tx, joinable().Set("lease_epoch = lease_epoch + 1"), change{
		from: &status, to: model.Joined, set: fields{"host_id": hostID, "joined_at": now},
	})
	if err != nil {
		return err
	}
	if err := reserveByFacts(ctx, tx, bootstrapID, hostID); err != nil {
		return err
	}
	_, err = tx.NewRaw("UPDATE machine_reservations SET host_id = ? WHERE bootstrap_id = ?", hostID, bootstrapID).Exec(ctx)
	return failed("giving a reservation to a host", err)
}

// reserveByFacts reserves the machine by what its agent says of it too, which not every driver can ask. What is another's stays that one's: the
// agent is in place by now, so there is nothing left to keep it from.
func reserveByFacts(ctx context.Context, tx bun.IDB, bootstrapID, hostID string) error {
	var facts struct {
		Serial    string `bun:"serial"`
		MachineID string `bun:"machine_id"`
	}
	err := tx.NewRaw("SELECT coalesce(facts ->> 'serial', '') AS serial, coalesce(facts ->> 'machineId', '') AS machine_id FROM hosts WHERE id = ?", hostID).
		Scan(ctx, &facts)
	if err != nil {
		return failed("reading what an agent says of its machine", err)
	}
	for _, key := range identityKeys(machine{Serial: provider.RealSerial(facts.Serial), OSMachineID: facts.MachineID}) {
		if _, err := reserve(ctx, tx, key, bootstrapID); err != nil {
			return err
		}
	}
	return nil
}
