package providertest

import (
	"testing"

	"better/compute/provider"
)

// ready prepares the machine until it can be installed.
func ready(t *testing.T, b provider.Bootstrapper, machineID string) {
	t.Helper()
	await(t, "a machine that is ready", func() bool {
		p, err := b.Prepare(limit(t), machineID)
		if err != nil {
			t.Fatalf("prepare: %v", err)
		}
		if !p.Ready && p.Wait <= 0 {
			t.Fatalf("preparation %+v does not say how long to wait", p)
		}
		return p.Ready
	})
}

func ended(t *testing.T, b provider.Bootstrapper, machineID, installRef string) *provider.InstallStatus {
	t.Helper()
	var status *provider.InstallStatus
	await(t, "the end of the install", func() bool {
		var err error
		if status, err = b.InstallStatus(limit(t), machineID, installRef); err != nil {
			t.Fatalf("install status: %v", err)
		}
		return status.State != provider.InstallRunning
	})
	return status
}

// testBootstrap takes the account's own machine through every step.
func testBootstrap(t *testing.T, a *Account) {
	b := bootstrapper(t, a)
	if a.MachineID == "" {
		t.Skip("the account has no machine of its own")
	}
	for id := range machines(t, a) {
		key, err := b.MachineKey(id)
		again, _ := b.MachineKey(id)
		if err != nil || key == "" || key != again {
			t.Errorf("keys of %s: %q, %q, %v", id, key, again, err)
		}
		if other, _ := b.MachineKey(a.MachineID); id != a.MachineID && other == key {
			t.Errorf("machines %s and %s have one key", id, a.MachineID)
		}
	}
	testUnknownMachine(t, a, b)
	identity, err := b.Identify(limit(t), a.MachineID)
	if err != nil {
		t.Fatalf("identify: %v", err)
	}
	if identity.Serial == "" && identity.OSMachineID == "" && identity.SSHHostKey == "" {
		t.Errorf("identity %+v tells this machine from no other", identity)
	}
	ready(t, b, a.MachineID)
	if a.Payload == nil {
		return
	}
	// The second delivery comes while the first may still run, and must win.
	for generation := 1; generation <= 2; generation++ {
		ref := install(t, b, a.MachineID, a.Payload(generation))
		if generation == 2 {
			if status := ended(t, b, a.MachineID, ref); status.State != provider.InstallSucceeded {
				t.Errorf("install: %+v", status)
			}
		}
	}
	for range 2 {
		if err := b.Uninstall(limit(t), a.MachineID); err != nil {
			t.Errorf("uninstall: %v", err)
		}
	}
	if machines(t, a)[a.MachineID] == nil {
		t.Error("the uninstall released the machine")
	}
}

// install delivers, again where the provider is still busy with the delivery before.
func install(t *testing.T, b provider.Bootstrapper, machineID string, payload provider.Payload) (ref string) {
	t.Helper()
	await(t, "a machine that nothing else is done with", func() bool {
		var err error
		ref, err = b.Install(limit(t), machineID, payload)
		if err != nil && provider.ClassOf(err) != provider.Conflict {
			t.Fatalf("install %d: %v", payload.Generation, err)
		}
		return err == nil
	})
	return ref
}

// testLocked meets a machine that is busy: that passes, and nothing is lost by it.
func testLocked(t *testing.T, a *Account) {
	if b, ok := a.Client.(provider.Bootstrapper); ok && a.MachineID != "" && a.Payload != nil {
		_, err := b.Install(limit(t), a.MachineID, a.Payload(1))
		failed(t, a, "install", err, provider.Conflict)
		ready(t, b, a.MachineID)
		install(t, b, a.MachineID, a.Payload(1))
		return
	}
	o := orderer(t, a)
	id := operation(t, "a")
	_, err := o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID})
	failed(t, a, "order", err, provider.Conflict)
	if n := a.Sold(id); n != 0 {
		t.Errorf("%d machines were sold", n)
	}
}

func testUnknownMachine(t *testing.T, a *Account, b provider.Bootstrapper) {
	t.Helper()
	for _, id := range []string{"no-such-machine", "..", ".", "_", "_ZZ", "m:1", "0"} {
		_, err := b.Identify(limit(t), id)
		failed(t, a, "identify "+id, err, provider.NotFound)
		_, err = b.Prepare(limit(t), id)
		failed(t, a, "prepare "+id, err, provider.NotFound)
	}
}

func testInstallFails(t *testing.T, a *Account) {
	b := bootstrapper(t, a)
	ready(t, b, a.MachineID)
	ref, err := b.Install(limit(t), a.MachineID, a.Payload(1))
	if err != nil {
		failed(t, a, "install", err, provider.InstallError)
		return
	}
	status := ended(t, b, a.MachineID, ref)
	if status.State != provider.InstallFailed || status.ExitCode == 0 || len(status.Log) == 0 {
		t.Errorf("install %+v", status)
	}
}
