package bootstrap

import (
	"context"
	"fmt"
	"testing"
	"time"

	"better/compute/model"
)

func (b *bench) work() *Worker {
	b.t.Helper()
	w := b.newWorker()
	b.run(w)
	return w
}

func (b *bench) newWorker() *Worker {
	b.t.Helper()
	w, err := NewWorker(b.rec, 4)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// run has the worker work until the test ends.
func (b *bench) run(w *Worker) {
	b.t.Helper()
	if err := w.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			b.t.Errorf("Stop: %v", err)
		}
	})
}

// await polls until the condition holds.
func (b *bench) await(runID, what string, done func(*run) bool) *run {
	b.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		r := b.row(runID)
		if done(r) {
			return r
		}
		select {
		case <-deadline:
			b.t.Fatalf("the run did not come to %s: status %s step %q wait %q", what, r.Status, r.Step, deref(r.WaitReason))
		case <-tick.C:
		}
	}
}

func installed(r *run) bool { return r.Status == model.Installed }

func TestWorkerDrivesRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.work()
	b.cloud.change(func() { b.cloud.delivered = false })
	first, second := b.start(b.offer("k1")), b.start(b.machine("box", "k2"))
	b.await(second, "installed while another waits", installed)
	b.cloud.change(func() { b.cloud.delivered = true })
	b.await(first, "installed", installed)

	b.mustJoin(second)
	b.cancel(first) // wakes a run that waits for minutes
	r := b.await(first, "its end", func(r *run) bool { return r.Status == model.Failed && r.LiveAccountID == nil })
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "events", len(b.events(first)), 6)
}

// A run whose job was lost, or counts as running in a process that died, goes on as soon as a server starts.
func TestSweepFindsRunsWithoutJob(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"lost":    "DELETE FROM river_job",
		"running": "UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now()",
		"ended":   "UPDATE river_job SET state = 'completed', finalized_at = now()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			runID := b.start(b.offer("k"))
			b.exec(lose)
			b.rec.Timing.Unattended = time.Hour // the first tick
			b.exec("UPDATE bootstraps SET next_at = now() - interval '2 hours'")
			b.work()
			b.await(runID, "installed", installed)
			equal(t, "orders", b.cloud.orders, 1)
		})
	}
}

// The sweep leaves alone what the queue will come to, what is being worked on, and what is not due.
func TestSweepLeavesAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	w, err := NewWorker(b.rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	runID := b.start(b.offer("k"))
	sweep := func(what string, want int) {
		t.Helper()
		found, err := w.sweep(t.Context())
		if err != nil || found != want {
			t.Errorf("%s: sweep = %d, %v, want %d", what, found, err, want)
		}
	}
	b.exec("UPDATE bootstraps SET next_at = now() - interval '1 min'")
	sweep("a job is there", 0)
	b.exec("DELETE FROM river_job")
	b.exec("UPDATE bootstraps SET lease_until = now() + interval '1 min'")
	sweep("somebody works on it", 0)
	b.exec("UPDATE bootstraps SET lease_until = now(), next_at = now() + interval '1 s'")
	sweep("not due", 0)
	b.exec("UPDATE bootstraps SET next_at = now() - interval '1 min'")
	sweep("due and lost", 1)
	sweep("has a new job", 0)
	b.exec("DELETE FROM river_job")
	b.driveToStatus(runID, model.Installed)
	b.mustJoin(runID)
	b.exec("UPDATE bootstraps SET next_at = now() - interval '1 min'")
	sweep("final", 0)
}

// Two workers on one database, with their steps interleaved as they come: one machine for each run, each transition once.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	other := *b
	other.rec = NewReconciler(b.deps)
	b.work()
	other.work()
	var ids []string
	for i := range 30 {
		ids = append(ids, b.start(b.offer(fmt.Sprint("k", i))))
	}
	for _, runID := range ids {
		b.await(runID, "installed", installed)
		b.mustJoin(runID)
		equal(t, "events", len(b.events(runID)), 6)
	}
	equal(t, "orders", b.cloud.orders, len(ids))
}
