package provideraccount

import (
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
	machines := []string{"m0", "m1", "m2", "m3", "m4"}
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
	if !slices.Equal(taken, machines) {
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
	wantTaken := func(want bool) {
		t.Helper()
		taken, err := inv.Taken(t.Context())
		if err != nil || taken["machine-1"] != want {
			t.Errorf("taken is %v, %v", taken, err)
		}
		m, err := inv.Take(t.Context(), "probe", []string{"machine-1"})
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
