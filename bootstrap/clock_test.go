package bootstrap

import (
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// A process whose clock is wrong neither waits longer than it should nor shorter.
func TestWorkerWithAWrongClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			b.cloud.prepared.Ready = false
			w := b.newWorker()
			w.clock.own = func() time.Time { return time.Now().Add(off) }
			b.run(w)
			runID := b.start(b.offer("k"))
			b.await(runID, "a wait", func(r *run) bool { return r.Status == model.Preparing && b.cloud.count("prepare") > 3 })
			b.cloud.next("prepare", fault{err: &provider.Error{Class: provider.RateLimited, Message: "slow down", RetryAfter: time.Hour}})
			b.await(runID, "a long wait", func(r *run) bool { return r.NextAt.Sub(r.Now) > 10*time.Minute })
			var seconds float64
			asked := func() bool {
				err := b.db.NewRaw("SELECT extract(epoch FROM j.scheduled_at - b.next_at) FROM bootstraps b JOIN river_job j ON j.id = b.job_id WHERE j.state = 'scheduled'").
					Scan(t.Context(), &seconds)
				return err == nil
			}
			b.await(runID, "its job is put off", func(*run) bool { return asked() })
			if seconds < -30 || seconds > 30 {
				t.Errorf("the job comes %.0f s after the run is due", seconds)
			}
		})
	}
}

// A job that comes long after its run is due, because whoever put it off had a wrong clock, is not waited for.
func TestSweepFindsJobsThatComeTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	w := b.newWorker()
	b.start(b.offer("k"))
	b.exec("UPDATE bootstraps SET next_at = now() - interval '1 min'")
	b.exec("UPDATE river_job SET state = 'scheduled', scheduled_at = now() + interval '10 min'")
	found, err := w.sweep(t.Context())
	if err != nil || found != 1 {
		t.Errorf("sweep = %d, %v, want 1", found, err)
	}
}
