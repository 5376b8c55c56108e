package bootstrap

import (
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// askedBack makes a machine of nobody whose giving back a person asked for, and takes the work on it, as a worker does that then stands still.
func (b *bench) askedBack() (stale *orphan) {
	b.t.Helper()
	b.rec.Timing.Cleanup, b.rec.Timing.CleanupMax = time.Hour, time.Hour
	b.lose()
	b.sweepNow()
	b.askBack()
	return b.takeRelease()
}

func (b *bench) askBack() {
	b.t.Helper()
	if _, err := b.service.ReleaseMachine(b.ctx, release(b.orphan())); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) takeRelease() *orphan {
	b.t.Helper()
	b.exec("UPDATE orphans SET release_at = now() WHERE release_at IS NOT NULL")
	o, err := dueRelease(b.t.Context(), b.db.DB, time.Hour, []string{})
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

func (b *bench) goOn(o *orphan) {
	b.t.Helper()
	if err := b.rec.releaseOrphan(b.t.Context(), o); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) orphanState() (told string) {
	b.t.Helper()
	err := b.db.NewRaw(`SELECT format('attempt %s%s%s%s', release_attempt, CASE WHEN release_at IS NULL THEN '' ELSE ' due' END,
		CASE WHEN release_dropped_at IS NULL THEN '' ELSE ' dropped' END, CASE WHEN resolved_at IS NULL THEN '' ELSE ' resolved' END)
		FROM orphans`).Scan(b.t.Context(), &told)
	if err != nil {
		b.t.Fatal(err)
	}
	return told
}

// A worker that stood still before its call makes none any more when another one has taken its work over, or has done it.
func TestAWorkerThatStoodStillGivesNothingBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*bench)
		after     string
	}{
		"another has it":   {func(b *bench) { b.takeRelease() }, "attempt 2 due"},
		"its time is up":   {func(b *bench) { b.exec("UPDATE orphans SET release_at = now()") }, "attempt 1 due"},
		"it is over":       {func(b *bench) { b.exec("UPDATE orphans SET release_at = NULL, resolved_at = now()") }, "attempt 1 resolved"},
		"it was said anew": {func(b *bench) { b.sayAnew() }, "attempt 1 due"},
		"somebody has it": {func(b *bench) {
			b.exec("UPDATE machine_reservations SET bootstrap_id = ?, orphan_id = NULL", b.ended())
		}, "attempt 1 dropped"},
		"nothing has become": {func(*bench) {}, "attempt 1 resolved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			stale := b.askedBack()
			tc.meanwhile(b)
			b.goOn(stale)
			equal(t, "the orphan", b.orphanState(), tc.after)
			want := 0
			if name == "nothing has become" {
				want = 1
			}
			equal(t, "machines given back", b.cloud.released, want)
		})
	}
}

// sayAnew drops the word and has a person say it again, upon which another worker makes the first attempt on it.
func (b *bench) sayAnew() {
	b.exec("UPDATE orphans SET release_at = NULL, release_dropped_at = now()")
	b.exec("DELETE FROM machine_reservations")
	b.askBack()
	b.takeRelease()
}

// ended is a run that is over.
func (b *bench) ended() string {
	runID := b.start(b.offer("ended"))
	b.cancel(runID)
	b.driveToEnd(runID)
	return runID
}

// What a worker hears after it stood still in its call is not written: neither does an error bring back what is over, nor does a success end what
// another one is still at.
func TestAWorkerThatStoodStillWritesNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		hears     provider.Class
		meanwhile func(*bench)
		after     string
		reserved  int
	}{
		"an error, when it is over":          {provider.Unavailable, func(b *bench) { b.goOn(b.takeRelease()) }, "attempt 2 resolved", 0},
		"a refusal, when it is over":         {provider.IdentityChanged, func(b *bench) { b.goOn(b.takeRelease()) }, "attempt 2 resolved", 0},
		"an error, when another has it":      {provider.Unavailable, func(b *bench) { b.takeRelease() }, "attempt 2 due", 1},
		"a success, when another has it":     {"", func(b *bench) { b.takeRelease() }, "attempt 2 due", 1},
		"a success, when it was said anew":   {"", func(b *bench) { b.sayAnew() }, "attempt 1 due", 1},
		"a refusal, when it was said anew":   {provider.IdentityChanged, func(b *bench) { b.sayAnew() }, "attempt 1 due", 1},
		"an error, after its time, and none": {provider.Unavailable, func(b *bench) { b.exec("UPDATE orphans SET release_at = now()") }, "attempt 1 due", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			stale := b.askedBack()
			first := true
			b.cloud.hook = func(method string) {
				if method != "release" || !first {
					return
				}
				first = false
				tc.meanwhile(b)
				if tc.hears != "" {
					b.cloud.next("release", failsWith(tc.hears))
				}
			}
			b.goOn(stale)
			equal(t, "the orphan", b.orphanState(), tc.after)
			equal(t, "reservations", b.orphanReservations(), tc.reserved)
		})
	}
}

// A row that says both, over and due, as the version before could leave it, is nobody's work.
func TestWhatIsOverIsNotDue(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.askedBack()
	b.exec("UPDATE orphans SET resolved_at = now()")
	if o := b.takeRelease(); o != nil {
		t.Errorf("taken: %s", o.ID)
	}
}
