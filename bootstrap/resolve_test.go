package bootstrap

import (
	"testing"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

func (b *bench) resolve(runID, machineID string) error {
	_, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, MachineID: &machineID})
	return err
}

// A machine that is a host, or another run's, is not what an order of unknown outcome brought: what that brought would be forgotten.
func TestNoOrderBroughtAMachineThatSomebodyHas(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	b.cloud.change(func() { b.cloud.boxes = []string{"host", "running"} })
	host := b.start(b.machine("host", "k2"))
	b.driveToStatus(host, model.Installed)
	b.mustJoin(host)
	b.start(b.machine("running", "k3"))
	refused := func() {
		t.Helper()
		for _, machineID := range []string{"host", "running"} {
			wantCode(t, b.resolve(runID, machineID), problem.Conflict)
		}
		if r := b.row(runID); !r.uncertain() || r.MachineID != nil {
			t.Fatalf("the run has machine %s and waits for %s", deref(r.MachineID), deref(r.WaitReason))
		}
	}
	refused()
	b.cancel(runID)
	b.driveToEnd(runID)
	refused()
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
	b.driveTo(runID, "the release", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// Of two orders of unknown outcome, one brought the machine that is named for both.
func TestOneMachineIsNotNamedForTwoOrders(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	b.cloud.next("order", failsAfter(provider.UnknownOutcome), failsAfter(provider.UnknownOutcome))
	first, second := b.start(b.offer("k1")), b.start(b.offer("k2"))
	for _, runID := range []string{first, second} {
		b.step(runID)
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
		b.driveTo(runID, "uncertainty", (*run).uncertain)
	}
	b.cloud.change(func() { b.cloud.boxes = []string{"found", "other"} })
	if err := b.resolve(first, "found"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.resolve(second, "found"), problem.Conflict)
	if err := b.resolve(second, "other"); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(first, model.Preparing)
}

// A person who is mistaken about the machine is asked again, even when only the machine itself tells whose it is, and the mistake keeps nobody
// from it.
func TestMachineOfAnotherNameIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	b.cloud.identity.OSMachineID = "one-and-the-same"
	b.cloud.change(func() { b.cloud.boxes = []string{"host", "alias", "free"} })
	host := b.start(b.machine("host", "k2"))
	b.driveToStatus(host, model.Installed)
	b.mustJoin(host)
	if err := b.resolve(runID, "alias"); err != nil {
		t.Fatal(err)
	}
	r := b.driveToEnd(runID)
	equal(t, "reason", r.Failure.Reason, model.MachineInUse)
	if r.Cleanup != model.CleanupBlocked || !r.uncertain() {
		t.Fatalf("cleanup is %s, waits for %s", r.Cleanup, deref(r.WaitReason))
	}
	if err := b.resolve(runID, "free"); err != nil {
		t.Fatal(err)
	}
	b.exec("DELETE FROM machine_reservations WHERE host_id IS NOT NULL")
	b.driveTo(b.start(b.machine("alias", "k3")), "the machine of the mistake", func(r *run) bool { return r.Status == model.Preparing })
}

// A machine that was named and is not there any more is not known to be what the order brought.
func TestNamedMachineThatIsGoneIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	b.cloud.change(func() { b.cloud.boxes = []string{"box"} })
	if err := b.resolve(runID, "box"); err != nil {
		t.Fatal(err)
	}
	b.cloud.next("identify", failsWith(provider.NotFound))
	b.cloud.change(func() { b.cloud.boxes = nil })
	r := b.driveToEnd(runID)
	if r.Cleanup != model.CleanupBlocked || !r.uncertain() {
		t.Fatalf("cleanup is %s, waits for %s", r.Cleanup, deref(r.WaitReason))
	}
}

// What nobody here ordered, and a person calls this run's, is given back as what it ordered.
func TestMachineOfAPersonsWordIsGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID, m := b.start(b.offer("k")), &cloudMachine{id: "m-k"}
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID] = m })
	b.driveTo(runID, "uncertainty", (*run).uncertain)
	if err := b.resolve(runID, m.id); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(runID, model.Preparing)
	b.cancel(runID)
	equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// A person's word that nothing was ordered ends a cleanup, but not while the provider shows that something was.
func TestNothingOrderedWhileItIsShown(t *testing.T) {
	t.Parallel()
	for name, scripted := range map[string]fault{"shown": {}, "after an error": failsWith(provider.Unavailable)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, runID := uncertainRun(t, true)
			b.cancel(runID)
			b.driveToEnd(runID)
			b.cloud.next("find", scripted)
			b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
			if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: new(true)}); err != nil {
				t.Fatal(err)
			}
			b.driveTo(runID, "the release", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
			equal(t, "leaked", b.cloud.leaked(nil), 0)
		})
	}
	b, runID := uncertainRun(t, false)
	b.cancel(runID)
	b.driveToEnd(runID)
	b.cloud.next("find", failsWith(provider.Auth))
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, NothingOrdered: new(true)}); err != nil {
		t.Fatal(err)
	}
	b.driveTo(runID, "the end of a cleanup whose account is closed", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
}
