package bootstrap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// died is what a worker panics with where a kill would end it: nothing after the point runs, and the lease stays.
var errDied = errors.New("died")

// dieAt makes a reconciler that dies at the nth time that the point is reached.
func (b *bench) dieAt(point string, nth int) *Reconciler {
	r := NewReconciler(b.deps)
	r.Fault = func(p string) {
		if p == point {
			if nth--; nth == 0 {
				panic(errDied)
			}
		}
	}
	return r
}

// stepOrDie steps the run and reports whether the worker died.
func (b *bench) stepOrDie(r *Reconciler, runID string) (died bool) {
	b.t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if p != errDied {
				panic(p)
			}
			died = true
		}
	}()
	if _, err := r.Step(b.t.Context(), runID); err != nil {
		b.t.Fatalf("Step: %v", err)
	}
	return false
}

func (b *bench) endLease(runID string) {
	b.t.Helper()
	b.exec("UPDATE bootstraps SET lease_until = now() WHERE id = ?", runID)
}

// points are the names of all fault points that a run passes, in its order.
func points(b *bench, in model.BootstrapMachineInput, drive func(runID string)) []string {
	var seen []string
	b.rec.Fault = func(p string) {
		if !slices.Contains(seen, p) {
			seen = append(seen, p)
		}
	}
	drive(b.start(in))
	b.rec.Fault = nil
	return seen
}

// A worker that dies between any two writes or calls costs nothing but time: the next one ends the run with one machine, and
// every transition is told once.
func TestDeathAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimLabel} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			all := points(b, b.offer("probe"), func(runID string) { b.driveToStatus(runID, model.Installed) })
			if len(all) < 14 {
				t.Fatalf("only %d fault points: %v", len(all), all)
			}
			joined := map[string]bool{b.joinOp(t): true}
			for _, point := range all {
				for hit := 1; ; hit++ {
					runID := b.start(b.offer(fmt.Sprint(point, ":", hit)))
					doomed := b.dieAt(point, hit)
					died := false
					for !died && b.row(runID).Status != model.Installed {
						died = b.stepOrDie(doomed, runID)
					}
					b.endLease(runID)
					r := b.driveTo(runID, "installed or a question", func(r *run) bool { return r.Status == model.Installed || r.uncertain() })
					if r.uncertain() {
						b.settleUncertain(t, r, point)
						r = b.driveToStatus(runID, model.Installed)
					}
					b.mustJoin(runID)
					joined[r.OperationID] = true
					if got := b.history(runID); len(got) != 6 {
						t.Errorf("death at %s #%d: history %v", point, hit, got)
					}
					if got := b.events(runID); len(got) != 6 {
						t.Errorf("death at %s #%d: events %v", point, hit, got)
					}
					if !died {
						break
					}
				}
			}
			equal(t, "machines against joined runs", b.cloud.orders, len(joined))
			equal(t, "leaked", b.cloud.leaked(joined), 0)
		})
	}
}

// settleUncertain is the person: it looks into the cloud's ledger. A question is only right where the worker died with the order on its way.
func (b *bench) settleUncertain(t *testing.T, r *run, point string) {
	t.Helper()
	if point != "claiming.attempted" {
		t.Errorf("death at %s left a question", point)
	}
	yes := true
	if b.cloud.machines[r.OperationID] != nil {
		t.Errorf("death at %s: the order was there to be found", point)
	}
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: r.ID, NothingOrdered: &yes}); err != nil {
		t.Fatal(err)
	}
}

// joinOp joins the probe run and names its operation.
func (b *bench) joinOp(t *testing.T) string {
	t.Helper()
	var runID string
	if err := b.db.NewRaw("SELECT id FROM bootstraps").Scan(t.Context(), &runID); err != nil {
		t.Fatal(err)
	}
	b.mustJoin(runID)
	return b.row(runID).OperationID
}

// The same for the way to a failure and its cleanup: nothing that was ordered stays.
func TestDeathAtEveryPointOfCleanup(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	fail := func(runID string) { b.cancel(runID); b.driveToEnd(runID) }
	all := points(b, b.offer("probe"), func(runID string) { b.driveToStatus(runID, model.Installing); fail(runID) })
	for _, point := range all {
		for hit := 1; hit < 20; hit++ {
			runID := b.start(b.offer(fmt.Sprint(point, ":", hit)))
			b.driveToStatus(runID, model.Installing)
			b.cancel(runID)
			doomed := b.dieAt(point, hit)
			died := false
			for !died && b.row(runID).LiveAccountID != nil {
				died = b.stepOrDie(doomed, runID)
			}
			b.endLease(runID)
			r := b.driveToEnd(runID)
			equal(t, point+" cleanup", r.Cleanup, model.CleanupReleased)
			equal(t, point+" events", len(b.events(runID)), 5)
			equal(t, point+" reservations", b.reservations(runID), 0)
			if !died {
				break
			}
		}
	}
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// A worker that was stopped for longer than its lease, at any point, writes nothing when it goes on.
func TestStoppedWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	all := points(b, b.offer("probe"), func(runID string) { b.driveToStatus(runID, model.Installed) })
	runs := 1
	for _, point := range all {
		if point == "transition" || point == "settled" || point == "waiting" {
			continue // within, or after, the last write of a step
		}
		runs++
		runID := b.start(b.offer(point))
		var after *run
		stopped := NewReconciler(b.deps)
		stopped.Fault = func(p string) {
			if p != point || after != nil {
				return
			}
			b.endLease(runID)
			b.driveToStatus(runID, model.Installed)
			after = b.row(runID)
		}
		for after == nil {
			next, err := stopped.Step(t.Context(), runID)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("Step: %v", err)
			}
			if after != nil && !next.Done {
				t.Errorf("stopped at %s: the worker does not know that it lost: %+v", point, next)
			}
		}
		got := b.row(runID)
		after.Now, got.Now = time.Time{}, time.Time{}
		equal(t, "row after a worker stopped at "+point, got, after)
		equal(t, "events", len(b.events(runID)), 5)
	}
	equal(t, "orders", b.cloud.orders, runs)
}

// The same where another worker is still in the same state, so that the epoch alone tells them apart.
func TestStoppedWorkerInTheSameState(t *testing.T) {
	t.Parallel()
	stopAt := func(b *bench, point, runID string, meanwhile func()) {
		t.Helper()
		stopped := NewReconciler(b.deps)
		once := true
		stopped.Fault = func(p string) {
			if p == point && once {
				once = false
				b.endLease(runID)
				meanwhile()
			}
		}
		if next, err := stopped.Step(t.Context(), runID); err != nil || !next.Done || once {
			t.Errorf("stopped at %s: %+v, %v", point, next, err)
		}
	}

	b := setup(t, model.ClaimLabel)
	b.cloud.delivered = false
	runID := b.start(b.offer("k"))
	stopAt(b, "claiming.looked", runID, func() { b.step(runID) })
	equal(t, "orders", b.cloud.orders, 1)

	b = setup(t, model.ClaimToken)
	b.cloud.prepared = provider.Preparation{Step: "old"}
	runID = b.start(b.machine("box", "k"))
	b.driveToStatus(runID, model.Preparing)
	stopAt(b, "preparing.prepared", runID, func() {
		b.cloud.change(func() { b.cloud.prepared.Step = "new" })
		b.step(runID)
	})
	equal(t, "step", b.row(runID).Step, "new")

	b.cloud.prepared.Ready = true
	b.cloud.status.State = provider.InstallRunning
	b.driveToStatus(runID, model.Installing)
	stopAt(b, "delivering.delivered", runID, func() { b.step(runID) })
	r := b.row(runID)
	equal(t, "generation", r.Generation, 2)
	equal(t, "token", r.TokenHash, tokenHash(b.cloud.installs[len(b.cloud.installs)-1].Token))
}

func tokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// A worker whose lease ran out while it slept does not order any more.
func TestNoOrderWithoutLease(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	r := NewReconciler(b.deps)
	r.Timing.Lease = 200 * time.Millisecond
	runID := b.start(b.offer("k"))
	r.Fault = func(p string) {
		if p == "claiming.attempted" {
			// Another epoch makes the renewals fail; then the lease runs out.
			b.exec("UPDATE bootstraps SET lease_epoch = lease_epoch + 1 WHERE id = ?", runID)
			<-time.After(r.Timing.Lease)
		}
	}
	if next, err := r.Step(t.Context(), runID); err != nil || !next.Done {
		t.Fatalf("Step = %+v, %v", next, err)
	}
	equal(t, "orders", b.cloud.count("order"), 0)
}

// A process that is continued after a stop may get to the order before any of its timers: it looks at the clock itself.
func TestNoOrderAfterTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	row, _, err := acquire(t.Context(), b.db.DB, b.start(b.offer("k")), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	w := &work{run: row, account: &model.ProviderAccount{Version: 1}, manifest: b.cloud.manifest, client: &client{b.cloud}, lease: &lease{until: time.Now()}}
	if _, err := b.rec.claiming(t.Context(), w); !errors.Is(err, errLost) {
		t.Errorf("claiming: %v", err)
	}
	equal(t, "orders", b.cloud.count("order"), 0)
}

// A computer that was suspended goes on with a clock that stood still: what it takes for its lease is over by the database's time, although
// nobody has taken the run yet.
func TestNothingIsDoneUnderALeaseThatTheDatabaseHasEnded(t *testing.T) {
	t.Parallel()
	for point, method := range map[string]string{"claiming.attempted": "order", "delivering.minted": "install", "cleaning.looked": "release"} {
		b := setup(t, model.ClaimToken)
		runID := b.start(b.offer("k"))
		if method == "release" {
			b.driveToStatus(runID, model.Installing)
			b.cancel(runID)
		}
		suspended := NewReconciler(b.deps)
		once := true
		suspended.Fault = func(p string) {
			if p == point && once {
				once = false
				b.exec("UPDATE bootstraps SET lease_until = now() - interval '1 ms' WHERE id = ?", runID)
			}
		}
		for once {
			next, err := suspended.Step(t.Context(), runID)
			if err != nil || !once && !next.Done {
				t.Fatalf("%s: Step = %+v, %v", point, next, err)
			}
		}
		equal(t, method+" calls after "+point, b.cloud.count(method), 0)
	}
}

// A step may take longer than a lease: it is renewed meanwhile.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	r := NewReconciler(b.deps)
	r.Timing.Lease = 6 * time.Second
	runID := b.start(b.machine("box", "k"))
	b.cloud.hook = func(method string) {
		if method != "identify" {
			return
		}
		end, tick := time.After(r.Timing.Lease*4/3), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if next, err := b.rec.Step(t.Context(), runID); err != nil || next.Done || next.After == 0 {
					t.Errorf("a second worker got in: %+v, %v", next, err)
				}
			}
		}
	}
	if next, err := r.Step(t.Context(), runID); err != nil || next.Done {
		t.Fatalf("Step = %+v, %v", next, err)
	}
	equal(t, "status", b.row(runID).Status, model.Preparing)
}

// A token that was minted and not known to be delivered is worthless; so is one that is about to end.
func TestTokenIsMintedAnew(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.next("install", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.machine("box", "k"))
	b.driveTo(runID, "a delivery", func(r *run) bool { return r.DeliveredAt != nil })
	first := b.row(runID)
	equal(t, "generation", first.Generation, 2)
	if ttl := first.TokenExpiresAt.Sub(first.Now); ttl < 14*time.Minute || ttl > 15*time.Minute {
		t.Errorf("the token lives for %s", ttl)
	}
	b.driveToStatus(runID, model.Installed)
	if next := b.step(runID); next.After < 10*time.Minute {
		t.Errorf("the run looks again in %s although nothing is to be done", next.After)
	}
	b.exec("UPDATE bootstraps SET token_expires_at = now() + interval '10 s' WHERE id = ?", runID)
	b.step(runID)
	second := b.row(runID)
	if second.Generation != 3 || string(second.TokenHash) == string(first.TokenHash) || second.Status != model.Installed {
		t.Errorf("a token that ends: generation %d", second.Generation)
	}
	tokens := map[string]bool{}
	for _, p := range b.cloud.installs {
		tokens[p.Token] = true
	}
	equal(t, "tokens", len(tokens), 3)
	b.mustJoin(runID)
}

func TestForgottenInstallIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.next("status", failsWith(provider.NotFound))
	r := b.driveToStatus(b.start(b.machine("box", "k")), model.Installed)
	equal(t, "generation", r.Generation, 2)
}
