package bootstrap

import (
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/model"
	"better/compute/provider"
)

// stay is how a run comes to stay in a state until its time is up.
type stay struct {
	hold   func(*cloud)
	calls  []string      // that the state makes
	limit  time.Duration // in limitedTiming
	reason model.FailureReason
}

// stays has each state that is not final.
var stays = map[model.BootstrapStatus]stay{
	model.Claiming: {
		func(c *cloud) { c.delivered = false }, []string{"find", "order"}, 11 * time.Minute, model.ClaimTimeout,
	},
	model.Identifying: {
		func(c *cloud) { c.next("identify", always(provider.Unavailable)...) }, []string{"identify"}, 13 * time.Minute, model.MachineNotFound,
	},
	model.Preparing: {
		func(c *cloud) { c.prepared.Ready = false }, []string{"prepare"}, 17 * time.Minute, model.RebootFailed,
	},
	model.Installing: {
		func(c *cloud) { c.status.State = provider.InstallRunning }, []string{"install", "status"}, 19 * time.Minute, model.InstallTimeout,
	},
	model.Installed: {func(*cloud) {}, nil, 23 * time.Minute, model.JoinTimeout},
}

func limitedTiming(t Timing) Timing {
	t.ClaimVPS, t.ClaimMetal = stays[model.Claiming].limit, stays[model.Claiming].limit
	t.Identifying, t.Preparing = stays[model.Identifying].limit, stays[model.Preparing].limit
	t.Installing, t.Installed = stays[model.Installing].limit, stays[model.Installed].limit
	return t
}

func always(class provider.Class) []fault {
	faults := make([]fault, 100)
	for i := range faults {
		faults[i] = failsWith(class)
	}
	return faults
}

// eachState runs the test for each state that a run does not end in.
func eachState(t *testing.T, test func(*testing.T, model.BootstrapStatus, stay)) {
	t.Helper()
	for _, state := range model.BootstrapStatuses() {
		if state.Final() {
			continue
		}
		s, known := stays[state]
		if !known {
			t.Errorf("nothing says how a run stays in %s and what that ends in", state)
			continue
		}
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			test(t, state, s)
		})
	}
}

// pass lets time go by for a run.
func (b *bench) pass(runID string, d time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE bootstraps SET deadline_at = deadline_at - ?0 * interval '1 s', state_since = state_since - ?0 * interval '1 s',
		next_at = next_at - ?0 * interval '1 s' WHERE id = ?1`, d.Seconds(), runID)
}

// A run may stay in each state for as long as that has, and then fails with the state's reason.
func TestEveryStateEndsInItsReason(t *testing.T) {
	t.Parallel()
	const margin = time.Minute // for the time that the test itself takes
	var ended atomic.Int32
	t.Cleanup(func() { harness.Report(t, t.Name(), 0, "states=%d ended-in-their-reason=%d", len(stays), ended.Load()) })
	eachState(t, func(t *testing.T, state model.BootstrapStatus, s stay) {
		t.Helper()
		b := setup(t, model.ClaimToken)
		b.deps.Timing = limitedTiming(b.deps.Timing)
		service, err := New(b.deps)
		if err != nil {
			t.Fatal(err)
		}
		b.service, b.rec = service, NewReconciler(b.deps)
		s.hold(b.cloud)
		runID := b.start(b.offer("k"))
		r := b.driveToStatus(runID, state)
		equal(t, "the time of the state", r.DeadlineAt.Sub(r.StateSince).Round(time.Second), s.limit)
		b.pass(runID, s.limit-margin)
		for range 3 {
			b.step(runID)
		}
		equal(t, "just before its time is up", b.row(runID).Status, state)
		b.pass(runID, margin)
		b.step(runID)
		r = b.row(runID)
		if r.Status != model.Failed || r.Failure.Reason != s.reason {
			t.Fatalf("once its time is up the run is %s, %+v; want %s", r.Status, r.Failure, s.reason)
		}
		b.cloud.change(func() { b.cloud.delivered = true })
		equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
		equal(t, "leaked", b.cloud.leaked(nil), 0)
		ended.Add(1)
	})
}

// A run that is cancelled during a call, or just before its time is up, ends cancelled and gives back what it ordered.
func TestCancelDuringEveryCall(t *testing.T) {
	t.Parallel()
	var cancelled, leaked atomic.Int32
	t.Cleanup(func() { harness.Report(t, t.Name(), 0, "cancelled=%d leaked=%d", cancelled.Load(), leaked.Load()) })
	eachState(t, func(t *testing.T, state model.BootstrapStatus, s stay) {
		t.Helper()
		ends := func(name string, cancel func(b *bench, runID string)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, model.ClaimToken)
				runID := b.start(b.offer("k"))
				cancel(b, runID)
				r := b.driveToEnd(runID)
				cancelled.Add(1)
				leaked.Add(int32(b.cloud.leaked(nil)))
				equal(t, "reason", r.Failure.Reason, model.Cancelled)
				equal(t, "leaked", b.cloud.leaked(nil), 0)
				equal(t, "machines given back", b.cloud.released, b.cloud.orders)
				equal(t, "reservations", b.reservations(runID), 0)
			})
		}
		ends("late", func(b *bench, runID string) {
			s.hold(b.cloud)
			b.driveToStatus(runID, state)
			b.cancel(runID)
			b.pass(runID, 24*time.Hour)
			b.step(runID)
			b.cloud.change(func() { b.cloud.delivered = true })
		})
		for _, call := range s.calls {
			ends("during "+call, func(b *bench, runID string) {
				b.cloud.hook = func(method string) {
					if method == call {
						b.cancel(runID)
						b.cancel(runID)
					}
				}
				b.driveTo(runID, "the call", func(*run) bool { return b.cloud.count(call) > 0 })
				b.cloud.hook = nil
			})
		}
	})
}
