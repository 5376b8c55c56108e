package bootstrap

import (
	"testing"
	"time"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// Whatever an order's answer is, and whether or not it had its effect, one machine is ordered at most, and the run ends with it, with
// a clear failure, or with a question to a person.
func TestOrderAnswers(t *testing.T) {
	t.Parallel()
	unknown := []provider.Class{provider.UnknownOutcome, provider.Timeout, provider.InvalidResponse}
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimUniqueName, model.ClaimLocal, model.ClaimLabel, model.ClaimNone} {
		for _, class := range unknown {
			for _, after := range []bool{false, true} {
				name := string(mode) + "/" + string(class) + map[bool]string{true: "/after"}[after]
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b := setup(t, mode)
					if mode == model.ClaimNone {
						b.cloud.script["find"] = []fault{failsWith(provider.NotFound), failsWith(provider.NotFound), failsWith(provider.NotFound)}
					}
					b.cloud.next("order", fault{err: provider.Errorf(class, "scripted"), after: after})
					runID := b.start(b.offer("k"))
					sure := mode != model.ClaimLabel && mode != model.ClaimNone || mode == model.ClaimLabel && after
					r := b.driveTo(runID, "an answer", func(r *run) bool { return r.Status != model.Claiming || r.uncertain() })
					if r.uncertain() == sure {
						t.Fatalf("the run is %s, waits for %q", r.Status, deref(r.WaitReason))
					}
					want := 1
					if !sure && !after {
						want = 0
					}
					equal(t, "orders", b.cloud.orders, want)
				})
			}
		}
	}
}

func TestClearRefusalIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []provider.Class{provider.Unavailable, provider.RateLimited, provider.Conflict} {
		b := setup(t, model.ClaimNone)
		b.cloud.next("order", failsWith(class), failsWith(class))
		runID := b.start(b.offer("k"))
		b.driveTo(runID, "the first refusal", func(r *run) bool { return r.WaitReason != nil })
		if r := b.row(runID); r.OrderAttemptAt != nil {
			t.Errorf("%s: the refused order counts as sent", class)
		}
		b.driveToStatus(runID, model.Identifying)
		equal(t, "orders", b.cloud.orders, 1)
	}
}

// A refusal of a second attempt proves nothing about the first.
func TestRefusalAfterUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimUniqueName)
	b.cloud.next("order", failsAfter(provider.UnknownOutcome), failsWith(provider.Quota))
	b.cloud.next("find", fault{}, failsWith(provider.NotFound)) // a list that lags
	runID := b.start(b.offer("k"))
	r := b.driveToEnd(runID)
	equal(t, "reason", r.Failure.Reason, model.QuotaExceeded)
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "orders", b.cloud.orders, 1)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

func TestLabelIsLookedForAsLongAsListsLag(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.offer("k"))
	b.step(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	b.step(runID)
	if r := b.row(runID); r.uncertain() || r.Step != "looking for the order" {
		t.Fatalf("while lists may lag the run waits for %q, step %q", deref(r.WaitReason), r.Step)
	}
	b.driveTo(runID, "uncertainty", (*run).uncertain)
	// A look that fails leaves the question open.
	b.cloud.next("find", failsWith(provider.Unavailable))
	b.step(runID)
	if r := b.row(runID); !r.uncertain() {
		t.Fatalf("after a failed look the run waits for %q", deref(r.WaitReason))
	}
	// The deadline does not make a loss of it.
	b.exec("UPDATE bootstraps SET deadline_at = now() - interval '1 s' WHERE id = ?", runID)
	b.step(runID)
	if r := b.row(runID); !r.uncertain() || r.Status != model.Claiming {
		t.Fatalf("past the deadline the run is %s", r.Status)
	}
	// Should it show up after all, nobody has to say anything.
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
	b.driveToStatus(runID, model.Identifying)
	equal(t, "orders", b.cloud.orders, 1)
}

func uncertainRun(t *testing.T, after bool) (*bench, string) {
	t.Helper()
	b := setup(t, model.ClaimLabel)
	b.cloud.next("order", fault{err: provider.Errorf(provider.UnknownOutcome, "scripted"), after: after})
	runID := b.start(b.offer("k"))
	b.step(runID)
	if after {
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	}
	b.driveTo(runID, "uncertainty", (*run).uncertain)
	b.exec("UPDATE bootstraps SET deadline_at = now() - interval '1 s' WHERE id = ?", runID)
	return b, runID
}

func TestResolveClaim(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	machineID := "found-it"

	b, runID := uncertainRun(t, true)
	in := model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID}
	_, err := b.service.ResolveClaim(b.ctx, in)
	wantCode(t, err, problem.InvalidInput)
	_, err = b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: &no})
	wantCode(t, err, problem.InvalidInput)
	_, err = b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: &yes, MachineID: &machineID})
	wantCode(t, err, problem.InvalidInput)
	in.MachineID = &machineID
	_, err = b.service.ResolveClaim(b.ctx, in) // the account has no machines at all
	wantCode(t, err, problem.InvalidInput)
	b.cloud.change(func() { b.cloud.boxes = []string{machineID} })
	job := *b.row(runID).JobID
	p, err := b.service.ResolveClaim(b.ctx, in)
	if err != nil || deref(p.Bootstrap.MachineID) != machineID || p.Bootstrap.WaitReason != nil {
		t.Fatalf("ResolveClaim = %+v, %v", p, err)
	}
	if *b.row(runID).JobID == job {
		t.Error("nobody was woken")
	}
	_, err = b.service.ResolveClaim(b.ctx, in)
	wantCode(t, err, problem.InvalidState)
	b.driveToStatus(runID, model.Installed)
	equal(t, "orders", b.cloud.orders, 1)

	b, runID = uncertainRun(t, false)
	in = model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: &yes}
	if _, err := b.service.ResolveClaim(b.ctx, in); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(runID, model.Installed)
	equal(t, "orders", b.cloud.orders, 1)
}

// A cancelled run whose order is unknown still has a way to its end: the person's word.
func TestCancelWhileUncertain(t *testing.T) {
	t.Parallel()
	yes := true
	b, runID := uncertainRun(t, false)
	b.cancel(runID)
	r := b.driveToEnd(runID)
	if r.Cleanup != model.CleanupBlocked || !r.uncertain() || r.LiveAccountID == nil {
		t.Fatalf("cleanup is %s, waits for %s", r.Cleanup, deref(r.WaitReason))
	}
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: &yes}); err != nil {
		t.Fatal(err)
	}
	r = b.driveTo(runID, "its end", func(r *run) bool { return r.LiveAccountID == nil })
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)

	// Found later by its label, it is given back without anybody.
	b, runID = uncertainRun(t, true)
	b.cancel(runID)
	b.driveToEnd(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
	r = b.driveTo(runID, "its end", func(r *run) bool { return r.LiveAccountID == nil })
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

func (b *bench) cancel(runID string) {
	b.t.Helper()
	if _, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID}); err != nil {
		b.t.Fatalf("Cancel: %v", err)
	}
}

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	for _, state := range model.BootstrapStatuses() {
		for _, named := range []bool{false, true} {
			if state.Final() || named && state == model.Claiming {
				continue
			}
			t.Run(string(state)+map[bool]string{true: "/named"}[named], func(t *testing.T) {
				t.Parallel()
				b := setup(t, model.ClaimToken)
				in := b.offer("k")
				if named {
					in = b.machine("box", "k")
				}
				runID := b.start(in)
				b.driveToStatus(runID, state)
				b.cancel(runID)
				b.cancel(runID)
				if state == model.Installing || state == model.Installed {
					wantCode(t, b.join(runID), problem.InvalidState)
				}
				r := b.driveToEnd(runID)
				equal(t, "reason", r.Failure.Reason, model.Cancelled)
				equal(t, "leaked", b.cloud.leaked(nil), 0)
				equal(t, "released", b.cloud.released, b.cloud.orders)
				if named {
					equal(t, "released", b.cloud.count("release"), 0)
				}
				equal(t, "reservations", b.reservations(runID), 0)
				b.cancel(runID)
				equal(t, "reason", b.row(runID).Failure.Reason, model.Cancelled)
			})
		}
	}
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	b.mustJoin(runID)
	_, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID})
	wantCode(t, err, problem.InvalidState)
}

// Giving back goes on, whatever the provider says, until it is done.
func TestReleaseRetriesWithoutEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Preparing)
	for range 10 {
		b.cloud.next("release", failsWith(provider.Unavailable), failsWith(provider.RateLimited), failsAfter(provider.UnknownOutcome))
	}
	b.cloud.next("release", failsWith(provider.Fatal))
	b.cancel(runID)
	r := b.driveTo(runID, "its end", func(r *run) bool { return r.Status == model.Failed && r.LiveAccountID == nil })
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)

	timing := Timing{}.withDefaults()
	rec := &Reconciler{Deps: Deps{Timing: timing}}
	w := &work{run: new(run)}
	for attempt, want := range map[int]time.Duration{0: time.Minute, 1: 2 * time.Minute, 8: 256 * time.Minute, 9: 8 * time.Hour, 90: 8 * time.Hour} {
		w.Attempt = attempt
		if d := rec.cleanupRetry(w, provider.Errorf(provider.Unavailable, "")).pause.d; d < want/2 || d >= want {
			t.Errorf("the wait at attempt %d is %s, want less than %s and half of it at least", attempt, d, want)
		}
	}
}

func TestUninstallIsBestEffort(t *testing.T) {
	t.Parallel()
	for class, attempts := range map[provider.Class]int{
		provider.SSHUnreachable: uninstallAttempts, provider.SecretUnresolved: uninstallAttempts,
		provider.Auth:     1, // after which the account is not asked any more
		provider.NotFound: 1, provider.Fatal: 1,
	} {
		b := setup(t, model.ClaimToken)
		runID := b.start(b.machine("box", "k"))
		b.driveToStatus(runID, model.Installed)
		for range 20 {
			b.cloud.next("uninstall", failsWith(class))
		}
		b.cancel(runID)
		equal(t, "cleanup after "+string(class), b.driveToEnd(runID).Cleanup, model.CleanupKept)
		equal(t, "attempts after "+string(class), b.cloud.count("uninstall"), attempts)
	}
}

// Two deployments that share a project, or one whose database was made anew, are told the same key by the same caller.
func TestTwoDeploymentsAtOneProject(t *testing.T) {
	t.Parallel()
	a := setup(t, model.ClaimToken)
	b := setupWith(t, a.cloud, "{}")
	b.cloud = a.cloud
	first, second := a.start(a.offer("k")), b.start(b.offer("k"))
	equal(t, "the runs' ids", first, second)
	a.mustJoinFrom(first)
	r := b.driveToStatus(second, model.Installed)
	if r.OperationID == a.row(first).OperationID || *r.MachineID == *a.row(first).MachineID {
		t.Errorf("both have operation %s, machine %s", r.OperationID, *r.MachineID)
	}
	b.cancel(second)
	b.driveToEnd(second)
	equal(t, "orders, released", []int{a.cloud.orders, a.cloud.released}, []int{2, 1})
	if a.cloud.machines[a.row(first).OperationID].released {
		t.Error("the other deployment's machine was given back")
	}
}

func (b *bench) mustJoinFrom(runID string) {
	b.t.Helper()
	b.driveToStatus(runID, model.Installed)
	b.mustJoin(runID)
}

// What carries the run's operation id although it never ordered is another's: it is neither taken nor given back, unless a person says so.
func TestClaimThatTheRunDidNotOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	found := func(key string) (runID string, m *cloudMachine) {
		runID, m = b.start(b.offer(key)), &cloudMachine{id: "m-" + key}
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID] = m })
		for range 3 {
			b.step(runID)
		}
		r := b.row(runID)
		equal(t, "status, reason", []any{r.Status, deref(r.WaitReason), r.MachineID == nil}, []any{model.Claiming, model.ClaimUncertain, true})
		return runID, m
	}
	cancelled, _ := found("k1")
	b.cancel(cancelled)
	b.driveToEnd(cancelled)
	nothing, _ := found("k2")
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: nothing, NothingOrdered: new(true)}); err != nil {
		t.Fatal(err)
	}
	b.step(nothing)
	equal(t, "reason", deref(b.row(nothing).WaitReason), model.ClaimUncertain)
	b.exec("UPDATE bootstraps SET deadline_at = now() WHERE id = ?", nothing)
	b.driveToEnd(nothing)
	equal(t, "calls to order, release", []int{b.cloud.count("order"), b.cloud.count("release")}, []int{0, 0})

	ours, m := found("k3")
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: ours, MachineID: &m.id}); err != nil {
		t.Fatal(err)
	}
	b.mustJoinFrom(ours)
}

// A machine is looked at before it is taken on a person's word, also where the run came to wait for that only after it was read.
func TestResolveClaimLooksAtTheMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimNone)
	runID, machine := b.start(b.offer("k")), "anything"
	in := model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, MachineID: &machine}
	r := b.row(runID)
	b.exec("UPDATE bootstraps SET wait_reason = ? WHERE id = ?", model.ClaimUncertain, runID)
	wantCode(t, b.service.mayBeOf(b.ctx, r, machine), problem.InvalidState)
	_, err := b.service.ResolveClaim(b.ctx, in)
	wantCode(t, err, problem.InvalidInput)
}
