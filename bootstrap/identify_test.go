package bootstrap

import (
	"sync"
	"testing"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// stranger gives another tenant an account and a pool, and starts what its owner asks for.
func (b *bench) stranger() (start func(model.BootstrapMachineInput) (string, error), row func(runID string) *run) {
	b.t.Helper()
	const other = "other"
	account, pool := id.New("pacct"), id.New("pool")
	b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'scripted', 'main', 'test')", account, other)
	b.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", pool, other)
	b.grant("user:other", "tenant-admin", "compute-tenant/"+other)
	start = func(in model.BootstrapMachineInput) (string, error) {
		in.TenantID, in.AccountID, in.PoolID = other, account, pool
		p, err := b.service.Start(as(b.t.Context(), "user:other"), in)
		if err != nil {
			return "", err
		}
		return p.Bootstrap.ID, nil
	}
	row = func(runID string) *run {
		r, err := load(b.t.Context(), b.db.DB, other, runID)
		if err != nil || r == nil {
			b.t.Fatalf("load(%s) = %v, %v", runID, r, err)
		}
		return r
	}
	return start, row
}

// Whatever name an account has for a machine, it is one machine.
func TestOneMachineUnderTwoNames(t *testing.T) {
	t.Parallel()
	for name, identity := range map[string]provider.Identity{
		"serial number and system": {Serial: "S1", OSMachineID: "os1"},
		"no serial number":         {OSMachineID: "os1", MACs: []string{"aa:00:00:00:00:01"}},
		"no id of the system":      {Serial: "S1", MACs: []string{"aa:00:00:00:00:01"}},
		"network card alone":       {MACs: []string{"aa:00:00:00:00:01"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTwoNames(t, identity)
		})
	}
}

func TestIdentityKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		m    machine
		want []string
	}{
		{machine{Serial: "S", OSMachineID: "os", MACs: []string{"a"}}, []string{"machine:S/os"}},
		{machine{OSMachineID: "os"}, []string{"machine:/os"}},
		{machine{OSMachineID: "uninitialized", MACs: []string{"b", "a"}}, []string{"machine:/a", "machine:/b"}},
		{machine{Serial: "S"}, []string{}}, // vendors count them up
	} {
		equal(t, "keys", identityKeys(test.m), test.want)
	}
}

// What only the agent can tell of a machine is known once it has joined.
func TestJoinTellsWhichMachineItIs(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.identity = provider.Identity{Serial: "S1"} // as a vendor's API tells it
	first := b.start(b.offer("k1"))
	b.driveToStatus(first, model.Installed)
	b.facts = `{"serial": "S1", "machineId": "os1"}`
	b.mustJoin(first)
	b.cloud.identity.OSMachineID = "os1" // as the machine itself does
	r := b.driveToStatus(b.start(b.machine("other-name", "k2")), model.Failed)
	equal(t, "reason", r.Failure.Reason, model.MachineInUse)

	second := b.start(b.machine("third-name", "k3"))
	b.cloud.identity = provider.Identity{}
	b.driveToStatus(second, model.Installed)
	b.facts = `{"serial": "To be filled by O.E.M.", "machineId": "os2"}`
	b.mustJoin(second)
	b.cloud.identity = provider.Identity{OSMachineID: "os2"}
	r = b.driveToStatus(b.start(b.machine("fourth-name", "k4")), model.Failed)
	equal(t, "reason", r.Failure.Reason, model.MachineInUse)
}

func testTwoNames(t *testing.T, identity provider.Identity) {
	t.Helper()
	b := setup(t, model.ClaimToken)
	b.cloud.identity = identity
	first := b.start(b.machine("ed25519", "k1"))
	b.driveToStatus(first, model.Installed)
	refused := func(in model.BootstrapMachineInput, cleanup model.CleanupStatus) {
		t.Helper()
		r := b.driveTo(b.start(in), "its end", func(r *run) bool { return r.Status == model.Failed && r.LiveAccountID == nil })
		equal(t, "reason, cleanup", []any{r.Failure.Reason, r.Cleanup}, []any{model.MachineInUse, cleanup})
	}
	refused(b.machine("ecdsa", "k2"), model.CleanupNone)
	ordered := b.start(b.offer("k3"))
	b.driveToStatus(ordered, model.Failed)
	for range 5 {
		b.step(ordered) // the other run may still end without a host
	}
	equal(t, "cleanup", b.row(ordered).Cleanup, model.CleanupReleasing)
	b.mustJoin(first)
	b.driveTo(ordered, "its end", func(r *run) bool { return r.Cleanup == model.CleanupKept })
	refused(b.machine("rsa", "k4"), model.CleanupNone)
	refused(b.offer("k5"), model.CleanupKept)
	equal(t, "installs, uninstalls, releases", []int{len(b.cloud.installs), b.cloud.count("uninstall"), b.cloud.count("release")}, []int{1, 0, 0})

	equal(t, "reservations", b.reservations(first), 2)
	b.exec("DELETE FROM machine_reservations WHERE host_id = ?", *b.row(first).HostID) // as removing the host does
	again := b.start(b.machine("ecdsa", "k6"))
	b.driveToStatus(again, model.Installed)
	b.cancel(again)
	b.driveToEnd(again)
	equal(t, "reservations", b.reservations(again), 0)
}

// A retry has the machine by both names.
func TestRetryKeepsBothNamesOfTheMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.identity = provider.Identity{Serial: "S1", OSMachineID: "os1"}
	b.rec.Timing.KeepFailed = graceUnproved
	b.cloud.status = provider.InstallStatus{State: provider.InstallFailed}
	old := b.start(b.offer("k1"))
	b.driveToStatus(old, model.Failed)
	p, err := b.service.Retry(b.ctx, model.RetryBootstrapInput{TenantID: tenant, BootstrapID: old, IdempotencyKey: "k2"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "reservations", []int{b.reservations(old), b.reservations(p.Bootstrap.ID)}, []int{0, 2})
	other := b.driveToStatus(b.start(b.machine("other-name", "k3")), model.Failed)
	equal(t, "reason", other.Failure.Reason, model.MachineInUse)
}

// Naming a machine, which anybody can, keeps its owner from it for a minute at most.
func TestReservationOfAMachineThatWasNotReachedYields(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	start, row := b.stranger()
	b.cloud.change(func() { b.cloud.delivered = false })
	ordered := b.start(b.offer("k1"))
	b.driveTo(ordered, "an order", func(r *run) bool { return r.OrderRef != nil })
	bought := b.cloud.machines[b.row(ordered).OperationID].id
	theirs, err := start(b.machine(bought, "k"))
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.next("identify", failsWith(provider.SSHUnreachable))
	b.step(theirs)
	_, err = b.service.Start(b.ctx, b.machine(bought, "k"))
	wantCode(t, err, problem.Conflict)

	// An order that brings it needs no start that could be refused.
	b.cloud.change(func() { b.cloud.delivered = true })
	b.driveToStatus(ordered, model.Preparing)
	b.step(theirs)
	equal(t, "the stranger's reason", row(theirs).Failure.Reason, model.MachineInUse)

	theirs, err = start(b.machine("box", "k2"))
	if err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE bootstraps SET state_since = now() - interval '1 hour' WHERE id = ?", theirs)
	ours := b.start(b.machine("box", "k3"))
	b.driveToStatus(ours, model.Preparing)
	_, err = start(b.machine("box", "k5"))
	wantCode(t, err, problem.Conflict)
	b.step(theirs)
	equal(t, "the stranger's reason", row(theirs).Failure.Reason, model.MachineInUse)
}

// One run after the other, each given up before its time to reach the machine is over, keeps nobody from it.
func TestReservationsInTurnYield(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	start, _ := b.stranger()
	b.cloud.next("identify", failsWith(provider.NotFound))
	first, err := start(b.machine("box", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.service.Start(b.ctx, b.machine("box", "k"))
	wantCode(t, err, problem.Conflict)
	b.step(first)
	if _, err := start(b.machine("box", "k2")); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(b.start(b.machine("box", "k")), model.Preparing)
}

// Of two that reach the machine at once one has it.
func TestProofsRace(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	start, row := b.stranger()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		theirs, err := start(b.machine("box-"+key, key))
		if err != nil {
			t.Fatal(err)
		}
		b.exec("UPDATE bootstraps SET state_since = now() - interval '1 hour' WHERE id = ?", theirs)
		ours := b.start(b.machine("box-"+key, key))
		var wg sync.WaitGroup
		for _, runID := range []string{theirs, ours} {
			wg.Go(func() {
				if _, err := b.rec.Step(t.Context(), runID); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := []model.BootstrapStatus{row(theirs).Status, b.row(ours).Status}
		if got[0] == got[1] {
			t.Errorf("both runs are %s", got[0])
		}
	}
}
