package provideraccount

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"better/compute/internal/id"
	"better/compute/model"
	"better/compute/pool"
	"better/compute/provider"
)

func TestInventoryOnlyForLocalClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cloud = newCloud("sim")
	b.cloud.manifest.Capabilities.ClaimMode = model.ClaimLocal
	b.Service = newService(t, b.db, b.cloud)
	a := b.create(t, "main")
	if _, err := b.Open(t.Context(), a); err != nil || b.cloud.opened[0].Inventory == nil {
		t.Errorf("a driver whose claims are local got no inventory: %v", err)
	}
	if _, err := b.Open(t.Context(), createOther(t, b)); err != nil {
		t.Error(err)
	}
}

func TestInventoryTakesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	inv := &inventory{db: b.db, accountID: a.ID}
	ids := []string{"m0", "m1", "m2", "m3", "m4"}
	machines := keyed(ids...)
	got := make([]string, 16)
	run(len(got), func(i int) {
		for range 3 { // a repeat is harmless
			m, err := inv.Take(t.Context(), fmt.Sprintf("op-%d", i), machines)
			if err != nil && provider.ClassOf(err) != provider.OutOfStock {
				t.Errorf("take: %v", err)
			}
			if got[i] != "" && got[i] != m {
				t.Errorf("operation %d got %q and then %q", i, got[i], m)
			}
			got[i] = m
		}
	})
	taken := slices.DeleteFunc(slices.Clone(got), func(m string) bool { return m == "" })
	slices.Sort(taken)
	if !slices.Equal(taken, ids) {
		t.Errorf("16 operations took %v", taken)
	}
	winner := slices.IndexFunc(got, func(m string) bool { return m == "m2" })
	operation := fmt.Sprintf("op-%d", winner)
	if m, err := inv.Claimed(t.Context(), operation); m != "m2" || err != nil {
		t.Errorf("claimed %q, %v", m, err)
	}
	for range 2 {
		if err := inv.Drop(t.Context(), operation); err != nil {
			t.Error(err)
		}
	}
	if m, err := inv.Claimed(t.Context(), operation); m != "" || err != nil {
		t.Errorf("claimed %q after the drop, %v", m, err)
	}
	if m, err := inv.Take(t.Context(), "new", machines); m != "m2" || err != nil {
		t.Errorf("the dropped one is not to be had: %q, %v", m, err)
	}
	elsewhere := &inventory{db: b.db, accountID: b.create(t, "second").ID}
	if m, err := elsewhere.Take(t.Context(), "second", machines); m != "m0" || err != nil {
		t.Errorf("the book of another account: %q, %v", m, err)
	}
	gone := &inventory{db: b.db, accountID: id.New("pacct")}
	if _, err := gone.Take(t.Context(), "x", machines); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("an account that is gone: %v", err)
	}
}

// TestInventoryFollowsRunsAndHosts takes a machine for a run and follows it to a host that is removed at last.
func TestInventoryFollowsRunsAndHosts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	created, err := pool.New(pool.Deps{DB: b.db, Authz: b.authz}).Create(admin(t), model.CreatePoolInput{
		TenantID: "t1", Name: "hosts", Class: model.ClassVPSHost, Agent: model.AgentBCD,
	})
	if err != nil {
		t.Fatal(err)
	}
	inv := &inventory{db: b.db, accountID: a.ID}
	b.cloud.machines = func(context.Context, provider.Account) ([]*model.Machine, error) {
		return []*model.Machine{{ID: "machine-1", Kind: model.VPS}}, nil
	}
	wantTaken := func(want bool) {
		t.Helper()
		taken, err := inv.Taken(t.Context(), nil)
		if err != nil || taken["machine-1"] != want {
			t.Errorf("taken is %v, %v", taken, err)
		}
		listed, err := b.Machines(as(t.Context(), "user:viewer"), GetInput{"t1", a.ID})
		if err != nil || listed[0].InUse != want {
			t.Errorf("listed as %v, %v", listed, err)
		}
		m, err := inv.Take(t.Context(), "probe", keyed("machine-1"))
		if (err == nil) == want {
			t.Errorf("taking it gives %q, %v", m, err)
		}
		if err := inv.Drop(t.Context(), "probe"); err != nil {
			t.Error(err)
		}
	}
	wantTaken(false)
	runID, err := insertBootstrap(t.Context(), b.Service, b.db, a, created.Pool.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantTaken(true) // named by a run, without a claim
	b.exec(t, `INSERT INTO inventory_claims (account_id, machine_id, operation_id) VALUES (?, 'machine-1', ?)`, a.ID, runID)
	wantTaken(true)
	b.exec(t, `INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES ('host_1', 't1', ?, ?, ?, 'machine-1')`,
		created.Pool.ID, runID, a.ID)
	b.exec(t, `UPDATE bootstraps SET status = 'joined', host_id = 'host_1', joined_at = now() WHERE id = ?`, runID)
	wantTaken(true)
	b.exec(t, `UPDATE hosts SET removed_at = now()`)
	wantTaken(false)
}

// keyed are machines whose keys are like their ids.
func keyed(ids ...string) (machines []provider.KeyedMachine) {
	for _, m := range ids {
		machines = append(machines, provider.KeyedMachine{MachineID: m, Key: "ssh:" + m})
	}
	return machines
}

// A machine that somebody has through another account is not given out, whoever that is and by whatever name the other account knows it.
func TestInventoryLeavesWhatIsReserved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, other := b.create(t, "main"), b.createIn(t, "t2", "other")
	created, err := pool.New(pool.Deps{DB: b.db, Authz: b.authz}).Create(admin(t), model.CreatePoolInput{
		TenantID: "t1", Name: "hosts", Class: model.ClassVPSHost, Agent: model.AgentBCD,
	})
	if err != nil {
		t.Fatal(err)
	}
	runID, err := insertBootstrap(t.Context(), b.Service, b.db, other, created.Pool.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `INSERT INTO machine_reservations (machine_key, bootstrap_id) VALUES ('ssh:m0', ?)`, runID)
	inv := &inventory{db: b.db, accountID: a.ID}
	taken, err := inv.Taken(t.Context(), keyed("m0", "m1"))
	if err != nil || !taken["m0"] || taken["m1"] {
		t.Errorf("taken is %v, %v", taken, err)
	}
	if m, err := inv.Take(t.Context(), "op-1", keyed("m0", "m1")); m != "m1" || err != nil {
		t.Errorf("taken: %q, %v", m, err)
	}
	if m, err := inv.Take(t.Context(), "op-2", keyed("m0", "m1")); provider.ClassOf(err) != provider.OutOfStock {
		t.Errorf("taken though it is reserved: %q, %v", m, err)
	}
	b.exec(t, `DELETE FROM machine_reservations`)
	if m, err := inv.Take(t.Context(), "op-2", keyed("m0", "m1")); m != "m0" || err != nil {
		t.Errorf("taken when it is free again: %q, %v", m, err)
	}
}

// A machine that failed is not given out again before another one, and comes back to its place once it did not.
func TestInventoryTakesWhatFailedLast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	created, err := pool.New(pool.Deps{DB: b.db, Authz: b.authz}).Create(admin(t), model.CreatePoolInput{
		TenantID: "t1", Name: "hosts", Class: model.ClassVPSHost, Agent: model.AgentBCD,
	})
	if err != nil {
		t.Fatal(err)
	}
	inv := &inventory{db: b.db, accountID: a.ID}
	n := 0
	ended := func(machineID, status, reason string) {
		t.Helper()
		runID, err := insertBootstrap(t.Context(), b.Service, b.db, a, created.Pool.ID)
		if err != nil {
			t.Fatal(err)
		}
		n++
		b.exec(t, `UPDATE bootstraps SET machine_id = ?0, status = ?1, failure = CASE WHEN ?2 <> '' THEN jsonb_build_object('reason', ?2) END,
			host_id = 'host_' || id, joined_at = now(), created_at = now() + ?3 * interval '1 second' WHERE id = ?4`, machineID, status, reason, n, runID)
	}
	wantTaken := func(want string) {
		t.Helper()
		if m, err := inv.Take(t.Context(), "probe", keyed("m0", "m1", "m2")); m != want || err != nil {
			t.Errorf("taken: %q, %v; want %q", m, err, want)
		}
		if err := inv.Drop(t.Context(), "probe"); err != nil {
			t.Error(err)
		}
	}
	wantTaken("m0")
	ended("m0", "failed", "CANCELLED")
	wantTaken("m0")
	ended("m0", "failed", "SSH_UNREACHABLE")
	wantTaken("m1")
	ended("m1", "failed", "MACHINE_IN_USE")
	wantTaken("m2")
	ended("m2", "failed", "SSH_UNREACHABLE")
	wantTaken("m0") // it was the first to fail
	ended("m0", "failed", "SSH_UNREACHABLE")
	wantTaken("m1")
	ended("m2", "joined", "")
	wantTaken("m2")
}
