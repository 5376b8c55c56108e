package bootstrap

import (
	"fmt"
	"sync"
	"testing"

	"better/compute/model"
)

// However many runs of a tenant are stepped at a time, by however many replicas, no more orders go out within an hour than may. The others
// wait without a cost, and go on when there is room.
func TestOrderLimit(t *testing.T) {
	t.Parallel()
	const limit, runs = 5, 16
	b := setup(t, model.ClaimToken)
	b.deps.OrdersPerHour = limit
	replicas := []*Reconciler{NewReconciler(b.deps), NewReconciler(b.deps)}
	b.rec = replicas[0]
	ids := make([]string, runs)
	for i := range ids {
		ids[i] = b.start(b.offer(fmt.Sprint("k", i)))
	}
	stepAll := func() {
		var wg sync.WaitGroup
		for i, runID := range ids {
			wg.Go(func() {
				for range 3 {
					if _, err := replicas[i%2].Step(t.Context(), runID); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	waiting := func() (n int) {
		for _, runID := range ids {
			r := b.row(runID)
			if deref(r.WaitReason) != waitsForOrderLimit {
				continue
			}
			n++
			if r.Attempt != 0 || r.Status != model.Claiming || r.ordered() || !r.DeadlineAt.After(r.Now.Add(b.rec.Timing.ClaimVPS)) {
				t.Errorf("a run that waits for the limit: %+v", r)
			}
		}
		return n
	}
	stepAll()
	stepAll()
	equal(t, "orders", b.cloud.count("order"), limit)
	equal(t, "waiting", waiting(), runs-limit)

	// A run that waits longer than the provider has to deliver does not fail of that.
	b.exec("UPDATE bootstraps SET state_since = state_since - interval '3 hours' WHERE wait_reason = 'ORDER_LIMIT'")
	calls := len(b.cloud.calls)
	stepAll()
	equal(t, "waiting", waiting(), runs-limit)
	equal(t, "orders meanwhile", b.cloud.count("order"), limit)
	for _, method := range b.cloud.calls[calls:] {
		if method == "offers" || method == "find" {
			t.Errorf("the provider is asked for %s while the runs wait", method)
		}
	}
	for sent := limit; sent < runs; sent += limit {
		b.exec("UPDATE bootstraps SET order_attempt_at = order_attempt_at - interval '61 minutes' WHERE order_attempt_at IS NOT NULL")
		stepAll()
		equal(t, "orders an hour later", b.cloud.count("order"), min(sent+limit, runs))
	}
}

// Another tenant's orders, and those that the provider clearly refused, do not count.
func TestOrderLimitCountsWhatMayHaveCost(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimNone)
	b.deps.OrdersPerHour = 1
	b.rec = NewReconciler(b.deps)
	other := b.start(b.offer("other"))
	b.exec("UPDATE bootstraps SET tenant_id = 'other', order_attempt_at = now() WHERE id = ?", other)
	first, second := b.start(b.offer("k1")), b.start(b.offer("k2"))
	b.cloud.next("order", failsWith("out_of_stock"))
	b.driveToStatus(first, model.Failed)
	b.driveToStatus(second, model.Identifying)
	third := b.start(b.offer("k3"))
	b.driveTo(third, "the limit", func(r *run) bool { return deref(r.WaitReason) == waitsForOrderLimit })
	// It can be cancelled like any other, and fails after a day.
	b.exec("UPDATE bootstraps SET state_since = now() - interval '25 hours' WHERE id = ?", third)
	b.step(third)
	b.exec("UPDATE bootstraps SET deadline_at = now() WHERE id = ?", third)
	b.step(third)
	equal(t, "reason", b.row(third).Failure.Reason, model.ClaimTimeout)
	equal(t, "cleanup", b.row(third).Cleanup, model.CleanupNone)
}
