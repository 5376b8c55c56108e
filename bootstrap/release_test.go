package bootstrap

import (
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// A worker that dies after a machine was given back, and before that was written down, leaves no question: which machine it was is known,
// also where the run failed before it had the machine.
func TestDeathAfterAReleaseLeavesNoQuestion(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.delivered = false
	runID := b.start(b.offer("k"))
	b.driveTo(runID, "an order", func(r *run) bool { return r.OrderRef != nil })
	b.cancel(runID)
	b.driveToStatus(runID, model.Failed)
	b.cloud.change(func() { b.cloud.delivered = true })
	doomed := b.dieAt("cleaning.released", 1)
	for range 10 {
		if b.stepOrDie(doomed, runID) {
			break
		}
	}
	equal(t, "released", b.cloud.released, 1)
	b.endLease(runID)
	r := b.driveToEnd(runID)
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// That a machine of some id is gone proves nothing where the provider named the wrong one: it is asked again until it shows none.
func TestReleaseOfAWrongIDIsNoRelease(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.delivered = false
	runID := b.start(b.offer("k"))
	b.driveTo(runID, "an order", func(r *run) bool { return r.OrderRef != nil })
	b.cancel(runID)
	b.driveToStatus(runID, model.Failed)
	m := b.cloud.machines[b.row(runID).OperationID]
	right := m.id
	b.cloud.change(func() { m.id, b.cloud.delivered = "m-wrong", true })
	b.cloud.hook = func(method string) {
		if method == "release" {
			b.cloud.change(func() { m.id = right })
		}
	}
	equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// Nor is it while lists may not show the right one yet: whether the run was cancelled before it met the machine, or failed because there is
// none of that id.
func TestReleaseOfAWrongIDIsNoReleaseWhileListsLag(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench, runID string){
		"not found": func(b *bench, _ string) { b.cloud.next("identify", failsWith(provider.NotFound)) },
		"cancelled": func(b *bench, runID string) {
			b.driveToStatus(runID, model.Identifying)
			b.cancel(runID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			b.rec.Timing.ListMargin = time.Hour
			runID := b.start(b.offer("k"))
			end(b, runID)
			b.driveToStatus(runID, model.Failed)
			m := b.cloud.machines[b.row(runID).OperationID]
			right := m.id
			b.cloud.change(func() { m.id, m.hidden = "m-another", true })
			for range 5 {
				b.step(runID)
			}
			equal(t, "cleanup", b.row(runID).Cleanup, model.CleanupReleasing)
			b.cloud.change(func() { m.id, m.hidden = right, false })
			b.step(runID)
			b.rec.Timing.ListMargin = 0
			equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
			equal(t, "leaked", b.cloud.leaked(nil), 0)
		})
	}
}

// An order without an answer that no list shows yet may be there all the same: as long as lists lag it is not given up.
func TestReleaseIsSoughtAsLongAsListsLag(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.rec.Timing.ListMargin = time.Hour
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.offer("k"))
	b.driveTo(runID, "an order", func(r *run) bool { return r.ordered() })
	m := b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { m.hidden = true })
	b.cancel(runID)
	b.driveToStatus(runID, model.Failed)
	for range 5 {
		b.step(runID)
	}
	equal(t, "cleanup", b.row(runID).Cleanup, model.CleanupReleasing)
	b.cloud.change(func() { m.hidden = false })
	b.step(runID)
	b.rec.Timing.ListMargin = 0
	equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// Who wants to try no more need not pay for the machine any longer.
func TestCancelGivesUpWhatIsKeptForARetry(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.rec.Timing.KeepFailed = time.Hour
	b.cloud.status = provider.InstallStatus{State: provider.InstallFailed}
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Failed)
	b.step(runID)
	equal(t, "cleanup", b.row(runID).Cleanup, model.CleanupPending)
	for range 2 {
		b.cancel(runID)
	}
	r := b.driveToEnd(runID)
	equal(t, "cleanup, reason", []any{r.Cleanup, r.Failure.Reason}, []any{model.CleanupReleased, model.InstallFailed})
	equal(t, "leaked", b.cloud.leaked(nil), 0)
	var outcomes []string
	if err := b.db.NewRaw("SELECT outcome FROM audit_log WHERE action = 'cancelBootstrap' ORDER BY id").Scan(t.Context(), &outcomes); err != nil {
		t.Fatal(err)
	}
	equal(t, "audit", outcomes, []string{"allowed", "replayed"})
}
