package bootstrap

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/model"
	"better/compute/provider"
)

// tally is a meter that writes down what it is told.
type tally struct {
	mu                sync.Mutex
	intended, ordered int
	left              []string
	negative          bool
}

func (t *tally) Intended() { t.mu.Lock(); defer t.mu.Unlock(); t.intended++ }

func (t *tally) Ordered() { t.mu.Lock(); defer t.mu.Unlock(); t.ordered++ }

func (t *tally) Left(from, to model.BootstrapStatus, reason string, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = append(t.left, fmt.Sprintf("%s %s %s", from, to, reason))
	t.negative = t.negative || after < 0
}

func TestMeter(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	counted := &tally{}
	b.deps.Meter = counted
	b.rec = NewReconciler(b.deps)
	b.cloud.next("order", failsWith(provider.RateLimited), failsAfter(provider.UnknownOutcome)) // the first was clearly not taken
	b.cloud.next("find", fault{}, fault{}, failsWith(provider.NotFound))
	b.service.Meter = counted
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	b.joinCounted(runID)
	b.cloud.change(func() { b.cloud.status.State = "running" })
	early := b.start(b.machine("early", "k3"))
	b.driveTo(early, "a delivered agent", func(r *run) bool { return r.DeliveredAt != nil })
	b.joinCounted(early)
	failed := b.start(b.machine("box", "k2"))
	b.cloud.next("identify", failsWith(provider.NotFound))
	b.driveToEnd(failed)
	equal(t, "intended, ordered", []int{counted.intended, counted.ordered}, []int{1, 2})
	equal(t, "left", counted.left, []string{
		"claiming identifying ", "identifying preparing ", "preparing installing ", "installing installed ",
		"installed joined ",
		"identifying preparing ", "preparing installing ", "installing installed ", "installed joined ",
		"identifying failed MACHINE_NOT_FOUND",
	})
	if counted.negative {
		t.Error("a run was in a state for less than no time")
	}
}

// joinCounted is join with its figures.
func (b *bench) joinCounted(runID string) {
	b.t.Helper()
	r := b.row(runID)
	err := b.db.RunInTx(b.t.Context(), func(ctx context.Context, tx bun.Tx) error {
		hostID := id.New("host")
		_, err := tx.NewRaw("INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES (?, ?, ?, ?, ?, 'm')",
			hostID, r.TenantID, r.PoolID, r.ID, r.AccountID).Exec(ctx)
		if err != nil {
			return err
		}
		return MarkJoined(ctx, tx, runID, hostID)
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.service.CountJoin(b.t.Context(), runID)
}

func TestFigures(t *testing.T) {
	t.Parallel()
	b, _ := uncertainRun(t, false)
	b.driveToStatus(b.start(b.machine("box", "k2")), model.Preparing)
	blocked := b.start(b.offer("k3"))
	b.driveToStatus(blocked, model.Identifying)
	b.cancel(blocked)
	b.cloud.next("release", failsWith(provider.Fatal))
	b.driveTo(blocked, "a blocked cleanup", func(r *run) bool { return r.Cleanup == model.CleanupBlocked })
	b.exec("UPDATE provider_accounts SET refused_at = now(), refused_stamp = 'x'")
	b.exec("INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id) VALUES ('orph_1', ?, ?, 'not-ours', 'm')", tenant, b.account)
	f, err := b.service.Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "figures", *f, Figures{
		Live: map[model.BootstrapStatus]int{
			model.Claiming: 1, model.Identifying: 0, model.Preparing: 1, model.Installing: 0, model.Installed: 0, model.Failed: 1,
		},
		Uncertain: 1, Blocked: 1, Refused: 1,
		Orphans: map[model.OrphanKind]int{model.OrphanNotOurs: 1, model.OrphanNotThere: 0},
	})
}
