package bootstrap

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/model"
)

func TestOfferBecomesHost(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k1"))
	r := b.row(runID)
	if r.Status != model.Claiming || r.DeadlineAt == nil || r.MachineID != nil || r.JobID == nil {
		t.Fatalf("a new run is %+v", r)
	}
	r = b.driveToStatus(runID, model.Installed)
	equal(t, "intent", r.OrderIntent.Kind, model.VPS)
	if r.MachineID == nil || deref(r.OrderRef) != "order-"+*r.MachineID || r.Machine == nil || r.Machine.Serial != "S1" {
		t.Errorf("an installed run is %+v", r)
	}
	b.mustJoin(runID)
	r = b.row(runID)
	if r.Status != model.Joined || r.HostID == nil || r.JoinedAt == nil || r.DeadlineAt != nil || r.LiveAccountID != nil {
		t.Errorf("a joined run is %+v", r)
	}
	equal(t, "orders", b.cloud.orders, 1)
	equal(t, "history", b.history(runID), []model.BootstrapStatus{
		model.Claiming, model.Identifying, model.Preparing, model.Installing, model.Installed, model.Joined,
	})
	equal(t, "events", b.events(runID), []string{
		"started claiming", "progressed identifying", "progressed preparing", "progressed installing", "installed installed", "joined joined",
	})
	equal(t, "reservations", b.reservations(runID), 1)
	if next := b.step(runID); !next.Done {
		t.Errorf("a joined run wants another step: %+v", next)
	}
}

func TestNamedMachineBecomesHost(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimNone)
	runID := b.start(b.machine("box-1", "k1"))
	b.driveToStatus(runID, model.Installed)
	b.mustJoin(runID)
	equal(t, "calls to order", b.cloud.count("order")+b.cloud.count("find")+b.cloud.count("offers"), 0)
	equal(t, "events", b.events(runID), []string{
		"started identifying", "progressed preparing", "progressed installing", "installed installed", "joined joined",
	})
	payload := b.cloud.installs[0]
	if payload.Token == "" || payload.JoinURL == "" || payload.CAPin == "" || payload.Generation != 1 {
		t.Errorf("the agent was delivered with %+v", payload)
	}
}

// An agent may be faster than the poll that would tell that it is installed.
func TestJoinFromInstalling(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.status.State = "running"
	runID := b.start(b.offer("k1"))
	b.driveTo(runID, "a delivered agent", func(r *run) bool { return r.DeliveredAt != nil })
	b.mustJoin(runID)
	events := b.events(runID)
	equal(t, "last events", events[len(events)-2:], []string{"installed installed", "joined joined"})
}

// A join whose transaction began before the one that told of the install still tells of itself later.
func TestEventsFollowTheirCauses(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.machine("box", "k1"))
	b.driveTo(runID, "a delivered agent", func(r *run) bool { return r.Status == model.Installing })
	runs := 0
	err := b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		var xid string
		if err := tx.NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &xid); err != nil {
			return err
		}
		if runs++; runs == 1 {
			b.driveToStatus(runID, model.Installed)
		}
		hostID := id.New("host")
		_, err := tx.NewRaw("INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES (?, ?, ?, ?, ?, 'box')",
			hostID, tenant, b.pool, runID, b.account).Exec(ctx)
		if err != nil {
			return err
		}
		return MarkJoined(ctx, tx, runID, hostID)
	})
	if err != nil || runs != 2 {
		t.Fatalf("the join ran %d times: %v", runs, err)
	}
	events := b.events(runID)
	equal(t, "last events", events[len(events)-2:], []string{"installed installed", "joined joined"})
}
