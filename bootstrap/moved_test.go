package bootstrap

import (
	"testing"

	"better/compute/internal/slots"
	"better/compute/model"
	"better/compute/provider"
)

// An operation id means something only in the project where it was sent. Once the account may be another project, an order that cannot be
// seen is in doubt: it is not sent again.
func TestChangedAccountLeavesAnUnseenOrderInDoubt(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimUniqueName} {
		b, runID := movedRun(t, mode)
		b.driveTo(runID, "uncertainty", (*run).uncertain)
		equal(t, "orders", b.cloud.orders, 1)

		// The way back is open: the order shows up with the former project.
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
		b.driveToStatus(runID, model.Identifying)
		equal(t, "orders", b.cloud.orders, 1)
	}
}

func TestChangedAccountIsNoProofThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	b, runID := movedRun(t, model.ClaimToken)
	if _, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID}); err != nil {
		t.Fatal(err)
	}
	b.driveTo(runID, "a blocked cleanup", func(r *run) bool { return r.Cleanup == model.CleanupBlocked && r.uncertain() })
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
	b.driveTo(runID, "the release", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// A secret that is written anew may be another project's token, though the account's version stays.
func TestChangedSecretLeavesAnUnseenOrderInDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	secret := func() {
		b.exec(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES (?, 'cloud', 'k', '')
			ON CONFLICT (tenant_id, name) DO UPDATE SET updated_at = clock_timestamp()`, tenant)
	}
	secret()
	b.exec(`UPDATE provider_accounts SET config = '{"apiToken": "secret://cloud"}' WHERE id = ?`, b.account)
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.offer("k"))
	b.step(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	secret()
	b.driveTo(runID, "uncertainty", (*run).uncertain)
	equal(t, "orders", b.cloud.orders, 1)
}

// What the server itself keeps of a claim stays true whatever the account's config says.
func TestChangedAccountKeepsLocalClaims(t *testing.T) {
	t.Parallel()
	b, runID := movedRun(t, model.ClaimLocal)
	b.step(runID)
	if r := b.row(runID); r.uncertain() {
		t.Error("the claim is in doubt")
	}
}

// movedRun is a run whose order had its effect without an answer, and whose account was changed before anybody looked.
func movedRun(t *testing.T, mode model.ClaimMode) (*bench, string) {
	t.Helper()
	b := setup(t, mode)
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.offer("k"))
	b.step(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
	return b, runID
}

// An order that the provider has acknowledged is somewhere, whatever its lists show.
func TestAcknowledgedOrderIsNeverGivenUpUnseen(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimUniqueName, model.ClaimLabel} {
		b := setup(t, mode)
		b.cloud.change(func() { b.cloud.delivered = false })
		runID := b.start(b.offer("k"))
		b.driveTo(runID, "an answer", func(r *run) bool { return r.OrderRef != nil })
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
		if _, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID}); err != nil {
			t.Fatal(err)
		}
		b.exec("UPDATE bootstraps SET order_attempt_at = now() - interval '1 day' WHERE id = ?", runID)
		b.driveTo(runID, "a question to a person", func(r *run) bool { return r.Cleanup == model.CleanupBlocked && r.uncertain() })
		b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden, b.cloud.delivered = false, true })
		b.driveTo(runID, "the release", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
		equal(t, "leaked", b.cloud.leaked(nil), 0)
	}
}

// A person may be mistaken about the machine. The provider refuses to give back what does not carry the operation, and the question
// stays open instead of blocking the account for good.
func TestWronglyNamedMachineIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, false)
	resolve := func(in model.ResolveClaimInput) {
		t.Helper()
		in.TenantID, in.BootstrapID = tenant, runID
		if _, err := b.service.ResolveClaim(b.ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	wrong, nothing := "somebody-elses", true
	b.cloud.change(func() { b.cloud.boxes = []string{wrong} })
	resolve(model.ResolveClaimInput{MachineID: &wrong})
	if _, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID}); err != nil {
		t.Fatal(err)
	}
	b.cloud.next("release", failsWith(provider.IdentityChanged))
	b.driveTo(runID, "the question", func(r *run) bool { return r.Cleanup == model.CleanupBlocked && r.uncertain() })
	resolve(model.ResolveClaimInput{NothingOrdered: &nothing})
	r := b.driveToEnd(runID)
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "machine", r.MachineID, (*string)(nil))
	equal(t, "released machines", b.cloud.released, 0)
}

func TestTenantWithManyStepsLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	var free func()
	for range defaultWorkers / 4 {
		release, err := b.rec.steps.Try(slots.Key{Level: perTenant, Name: tenant})
		if err != nil {
			t.Fatal("the tenant has fewer steps than it may")
		}
		defer release()
		free = release
	}
	if next := b.step(runID); next.Done || next.After <= 0 || b.cloud.orders != 0 {
		t.Errorf("with all of its steps under way the tenant takes another: %+v", next)
	}
	if _, err := b.rec.steps.Try(slots.Key{Level: perTenant, Name: "other"}); err != nil {
		t.Error("another tenant has no step left")
	}
	free()
	b.driveToStatus(runID, model.Identifying)
}

// An account that was updated may know another machine by the name. That one, which may be a host, is left alone.
func TestMachineThatIsAnotherByNow(t *testing.T) {
	t.Parallel()
	for _, state := range []model.BootstrapStatus{model.Preparing, model.Installing, model.Installed, model.Failed} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			runID := b.start(b.machine("box", "k"))
			if state == model.Failed {
				b.driveToStatus(runID, model.Installed)
				b.cancel(runID)
			}
			b.driveToStatus(runID, state)
			b.cloud.change(func() { b.cloud.place = "elsewhere/" })
			b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
			calls := len(b.cloud.calls)
			r := b.driveToEnd(runID)
			if state != model.Failed {
				equal(t, "reason", r.Failure.Reason, model.IdentityMismatch)
			}
			equal(t, "cleanup", r.Cleanup, model.CleanupKept)
			equal(t, "calls", b.cloud.calls[calls:], []string{})
		})
	}
}
