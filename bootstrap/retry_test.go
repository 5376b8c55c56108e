package bootstrap

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

func again(runID, key string) model.RetryBootstrapInput {
	return model.RetryBootstrapInput{TenantID: tenant, BootstrapID: runID, IdempotencyKey: key}
}

func (b *bench) retry(runID, key string) *model.RetryBootstrapPayload {
	b.t.Helper()
	p, err := b.service.Retry(b.ctx, again(runID, key))
	if err != nil {
		b.t.Fatalf("Retry: %v", err)
	}
	return p
}

// keeping makes what failed runs ordered be kept for a while.
func (b *bench) keeping(d time.Duration) {
	b.deps.Timing.KeepFailed = d
	b.rec = NewReconciler(b.deps)
}

// failedOrder is a run that ordered a machine and failed while it installed the agent.
func (b *bench) failedOrder(key string) string {
	b.t.Helper()
	runID := b.start(b.offer(key))
	b.driveToStatus(runID, model.Installing)
	b.cloud.next("install", failsWith(provider.InstallError))
	b.driveToStatus(runID, model.Failed)
	return runID
}

func TestRetryChecks(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	_, err := b.service.Retry(t.Context(), again(runID, "r"))
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.service.Retry(b.ctx, model.RetryBootstrapInput{})
	if issues := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue); len(issues) != 3 {
		t.Errorf("issues = %v", issues)
	}
	b.grant("user:reader", "provider-viewer", "compute-tenant/"+tenant)
	_, err = b.service.Retry(as(t.Context(), "user:reader"), again(runID, "r"))
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Retry(b.ctx, again(id.New("boot"), "r"))
	wantCode(t, err, problem.NotFound)

	_, err = b.service.Retry(b.ctx, again(runID, "r")) // it is live
	wantCode(t, err, problem.InvalidState)
	b.cancel(runID)
	b.driveToEnd(runID)
	_, err = b.service.Retry(b.ctx, again(runID, "r")) // it never had a machine
	wantCode(t, err, problem.InvalidState)

	ordered := b.failedOrder("k2")
	b.driveToEnd(ordered)
	_, err = b.service.Retry(b.ctx, again(ordered, "r")) // it has given its machine back
	equal(t, "cleanup", wantCode(t, err, problem.InvalidState).Details["cleanup"], model.CleanupReleased)

	named := b.start(b.machine("box", "k3"))
	b.driveToStatus(named, model.Installing)
	b.cloud.next("install", failsWith(provider.InstallError))
	b.driveToStatus(named, model.Failed)
	_, err = b.service.Retry(b.ctx, again(named, "r")) // the agent is being stopped
	wantCode(t, err, problem.InvalidState)
}

func TestRetryOfANamedMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	old := b.start(b.machine("box", "k"))
	b.driveToStatus(old, model.Installing)
	b.cloud.next("install", failsWith(provider.InstallError))
	b.driveToEnd(old)
	first := b.retry(old, "r")
	if first.Replayed || deref(first.Bootstrap.RetryOf) != old || deref(first.Bootstrap.MachineID) != "box" || first.Bootstrap.Status != model.Identifying {
		t.Errorf("the retry is %+v", first)
	}
	replay := b.retry(old, "r")
	if !replay.Replayed || replay.Bootstrap.ID != first.Bootstrap.ID {
		t.Errorf("a repeat gives %+v", replay)
	}
	other := b.start(b.machine("other", "k2"))
	_, err := b.service.Retry(b.ctx, again(other, "r"))
	wantCode(t, err, problem.Conflict) // the key
	_, err = b.service.Retry(b.ctx, again(old, "r2"))
	wantCode(t, err, problem.Conflict) // the machine

	b.driveToStatus(first.Bootstrap.ID, model.Installed)
	if last := b.cloud.installs[len(b.cloud.installs)-1]; last.Generation != 2 {
		t.Errorf("the new delivery has generation %d, so it does not supersede the old one", last.Generation)
	}
	b.mustJoin(first.Bootstrap.ID)
	got, err := b.service.Get(b.ctx, tenant, first.Bootstrap.ID)
	if err != nil || deref(got.RetryOf) != old {
		t.Errorf("the retry reads as %+v, %v", got, err)
	}
	equal(t, "orders and releases", b.cloud.orders+b.cloud.released, 0)
}

// The new run owns the order: it becomes a host of the machine that the old one paid for, or gives it back, once.
func TestRetryTakesTheOrderOver(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimLabel, model.ClaimLocal} {
		b := setup(t, mode)
		b.keeping(time.Hour)
		old := b.failedOrder("k")
		b.step(old)
		b.step(old)
		before := b.row(old)
		equal(t, "cleanup while it is kept", before.Cleanup, model.CleanupPending)

		second := b.retry(old, "r").Bootstrap.ID
		r, left := b.row(second), b.row(old)
		if r.OperationID != before.OperationID || r.OfferID == nil || deref(r.MachineID) != *before.MachineID || !r.ordered() || deref(r.OrderRef) != deref(before.OrderRef) {
			t.Errorf("the new run does not own the order: %+v", r)
		}
		if left.Cleanup != model.CleanupKept || left.LiveAccountID != nil || left.OperationID == before.OperationID {
			t.Errorf("the old run still does: %+v", left)
		}
		equal(t, "reservations", []int{b.reservations(old), b.reservations(second)}, []int{0, 1})
		_, err := b.service.Retry(b.ctx, again(old, "r2"))
		wantCode(t, err, problem.InvalidState)
		if next := b.step(old); !next.Done {
			t.Error("the old run still has work")
		}
		b.driveToStatus(second, model.Installed)
		b.cancel(second)
		b.driveToEnd(second)
		equal(t, "cleanup", b.row(second).Cleanup, model.CleanupReleased)
		equal(t, "orders, released, leaked", []int{b.cloud.orders, b.cloud.released, b.cloud.leaked(nil)}, []int{1, 1, 0})
	}
}

// A retry of a retry, and the end of the time that a machine is kept.
func TestKeptMachineIsGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.keeping(time.Hour)
	second := b.retry(b.failedOrder("k"), "r").Bootstrap.ID
	b.cloud.next("identify", failsWith(provider.NotFound))
	b.driveToStatus(second, model.Failed)
	third := b.retry(second, "r2").Bootstrap.ID
	b.cloud.next("identify", failsWith(provider.NotFound))
	b.driveToStatus(third, model.Failed)
	b.step(third)
	equal(t, "released", b.cloud.released, 0)
	b.exec("UPDATE bootstraps SET state_since = now() - interval '2 hours' WHERE id = ?", third)
	b.driveToEnd(third)
	equal(t, "orders, released", []int{b.cloud.orders, b.cloud.released}, []int{1, 1})
}

// Taking the machine over and giving it back exclude each other, whichever comes first.
func TestRetryRacesCleanup(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	won, lost := 0, 0
	for round := range 24 {
		b.keeping(time.Duration(round) * 5 * time.Millisecond)
		old := b.failedOrder(fmt.Sprint("k", round))
		released := b.cloud.released
		var p *model.RetryBootstrapPayload
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { p, err = b.service.Retry(b.ctx, again(old, "r-"+old[5:20])) })
		wg.Go(func() {
			for b.row(old).Cleanup == model.CleanupPending {
				if _, err := b.rec.Step(t.Context(), old); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		b.driveToEnd(old)
		if err == nil {
			won++
			equal(t, "released under the new run", b.cloud.released-released, 0)
			b.driveToStatus(p.Bootstrap.ID, model.Installed)
			b.cancel(p.Bootstrap.ID)
			b.driveToEnd(p.Bootstrap.ID)
		} else {
			lost++
			wantCode(t, err, problem.InvalidState)
		}
		equal(t, "released", b.cloud.released-released, 1)
	}
	equal(t, "leaked", b.cloud.leaked(nil), 0)
	t.Logf("of 24 retries %d came before the cleanup and %d after", won, lost)
}

func TestEqualRetriesAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.keeping(time.Hour)
	old := b.failedOrder("k")
	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			p, err := b.service.Retry(b.ctx, again(old, "same"))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = p.Bootstrap.ID
		})
	}
	wg.Wait()
	for _, got := range ids {
		equal(t, "run", got, ids[0])
	}
	equal(t, "events", len(b.events(ids[0])), 1)
}

func TestHistoryHasTheTimeOfEachState(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	all, err := b.service.Histories(t.Context(), []*model.Bootstrap{{ID: runID}})
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range all[0] {
		last := i == len(all[0])-1
		if last != (h.Until == nil) || !last && !h.Until.Equal(all[0][i+1].At.Time) {
			t.Errorf("%s lasts until %v", h.To, h.Until)
		}
	}
}
