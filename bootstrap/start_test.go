package bootstrap

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestStartShape(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	long := strings.Repeat("x", 129)
	for name, test := range map[string]struct {
		change func(*model.BootstrapMachineInput)
		path   string
	}{
		"tenant":         {func(in *model.BootstrapMachineInput) { in.TenantID = "a b" }, "tenantId"},
		"account":        {func(in *model.BootstrapMachineInput) { in.AccountID = "pacct_x" }, "accountId"},
		"pool":           {func(in *model.BootstrapMachineInput) { in.PoolID = b.account }, "poolId"},
		"no target":      {func(in *model.BootstrapMachineInput) { in.OfferID = nil }, "machineId"},
		"two targets":    {func(in *model.BootstrapMachineInput) { m := "m"; in.MachineID = &m }, "machineId"},
		"offer":          {func(in *model.BootstrapMachineInput) { in.OfferID = &long }, "offerId"},
		"empty key":      {func(in *model.BootstrapMachineInput) { in.IdempotencyKey = "" }, "idempotencyKey"},
		"key with slash": {func(in *model.BootstrapMachineInput) { in.IdempotencyKey = "a/b" }, "idempotencyKey"},
		"key with end":   {func(in *model.BootstrapMachineInput) { in.IdempotencyKey = "a\n" }, "idempotencyKey"},
	} {
		t.Run(name, func(t *testing.T) {
			in := b.offer("k")
			test.change(&in)
			_, err := b.service.Start(b.ctx, in)
			issues := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue)
			if len(issues) != 1 || issues[0].Path != test.path {
				t.Errorf("issues = %v, want one at %s", issues, test.path)
			}
		})
	}
}

func TestStartOrderOfChecks(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	in := b.offer("k")

	_, err := b.service.Start(t.Context(), in)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.service.Start(as(t.Context(), "user:stranger"), in)
	wantCode(t, err, problem.Forbidden)

	bare := *b.service
	bare.Options = nil
	in.AccountID = id.New("pacct")
	_, err = bare.Start(b.ctx, in)
	wantCode(t, err, problem.InvalidConfig)
	_, err = b.service.Start(b.ctx, in)
	wantCode(t, err, problem.NotFound)

	in = b.offer("k")
	in.PoolID = id.New("pool")
	_, err = b.service.Start(b.ctx, in)
	wantCode(t, err, problem.NotFound)
	for set, code := range map[string]problem.Code{
		"class = 'vps'":                      problem.InvalidInput,
		"agent = 'none'":                     problem.InvalidInput,
		"class = 'vps', archived_at = now()": problem.InvalidState,
	} {
		pool := id.New("pool")
		b.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, ?, 'metal-host', 'bcd')", pool, tenant, strings.ToLower(pool))
		b.exec("UPDATE pools SET "+set+" WHERE id = ?", pool)
		in := b.machine("box", "k")
		in.PoolID = pool
		_, err = b.service.Start(b.ctx, in)
		wantCode(t, err, code)
	}
	var n int
	if err := b.db.NewRaw("SELECT (SELECT count(*) FROM bootstraps) + (SELECT count(*) FROM events) + (SELECT count(*) FROM river_job)"+
		" + (SELECT count(*) FROM machine_reservations)").Scan(t.Context(), &n); err != nil || n != 0 {
		t.Errorf("refused starts left %d rows (%v)", n, err)
	}
}

func TestStartUnsupported(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	if err := supports(b.cloud.manifest, true); err != nil {
		t.Errorf("supports = %v", err)
	}
	m := b.cloud.manifest
	m.Capabilities.Order = false
	equal(t, "order missing", wantCode(t, supports(m, true), problem.Unsupported).Details["missing"], []string{"order"})
	if err := supports(m, false); err != nil {
		t.Errorf("a named machine needs no ordering: %v", err)
	}
	m.Capabilities.Bootstrap = false
	equal(t, "both missing", wantCode(t, supports(m, true), problem.Unsupported).Details["missing"], []string{"bootstrap", "order"})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	first := b.start(b.offer("k"))
	b.driveToStatus(first, model.Preparing)
	p, err := b.service.Start(b.ctx, b.offer("k"))
	if err != nil || !p.Replayed || p.Bootstrap.ID != first || p.Bootstrap.Status != model.Preparing {
		t.Fatalf("a replay gives %+v, %v", p, err)
	}

	other := b.offer("k")
	offer := "large"
	other.OfferID = &offer
	_, err = b.service.Start(b.ctx, other)
	wantCode(t, err, problem.Conflict)
	_, err = b.service.Start(b.ctx, b.machine(*b.row(first).MachineID, "k"))
	wantCode(t, err, problem.Conflict)
	other = b.offer("k")
	other.PoolID = id.New("pool")
	_, err = b.service.Start(b.ctx, other)
	wantCode(t, err, problem.Conflict)

	b.grant("user:second", "provider-manager", "compute-tenant/"+tenant)
	p, err = b.service.Start(as(t.Context(), "user:second"), b.offer("k"))
	if err != nil || p.Replayed || p.Bootstrap.ID == first {
		t.Fatalf("another caller's key gives %+v, %v", p, err)
	}
}

func TestConcurrentEqualStarts(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for name, in := range map[string]model.BootstrapMachineInput{"offer": b.offer("same"), "machine": b.machine("box", "same-box")} {
		const n = 64
		ids, errs := make([]string, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				p, err := b.service.Start(b.ctx, in)
				if errs[i] = err; err == nil {
					ids[i] = p.Bootstrap.ID
				}
			})
		}
		wg.Wait()
		for i := range n {
			if errs[i] != nil || ids[i] != ids[0] {
				t.Fatalf("%s: start %d gives %s, %v", name, i, ids[i], errs[i])
			}
		}
		equal(t, "events", len(b.events(ids[0])), 1)
	}
	var jobs int
	if err := b.db.NewRaw("SELECT count(*) FROM river_job").Scan(t.Context(), &jobs); err != nil || jobs != 2 {
		t.Errorf("%d jobs for two runs (%v)", jobs, err)
	}
}

func TestMachineInUse(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.machine("box", "k1"))
	_, err := b.service.Start(b.ctx, b.machine("box", "k2"))
	wantCode(t, err, problem.Conflict)

	const stranger = "other"
	account, pool := id.New("pacct"), id.New("pool")
	b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'scripted', 'main', 'test')", account, stranger)
	b.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", pool, stranger)
	b.grant("user:other", "tenant-admin", "compute-tenant/"+stranger)
	foreign := b.machine("box", "k1")
	foreign.TenantID, foreign.AccountID, foreign.PoolID = stranger, account, pool
	_, err = b.service.Start(as(t.Context(), "user:other"), foreign)
	if e := wantCode(t, err, problem.Conflict); strings.Contains(fmt.Sprint(e, e.Details), tenant) || strings.Contains(fmt.Sprint(e, e.Details), runID) {
		t.Errorf("the conflict tells of another tenant: %v %v", e, e.Details)
	}

	b.driveToStatus(runID, model.Installed)
	b.mustJoin(runID)
	_, err = b.service.Start(b.ctx, b.machine("box", "k3"))
	wantCode(t, err, problem.Conflict)
}

// Of two runs for one machine one wins, whoever comes through whatever.
func TestMachineRace(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for round := range 20 {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = b.service.Start(b.ctx, b.machine(fmt.Sprint("box-", round), fmt.Sprint(round, ".", i)))
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			wantCode(t, err, problem.Conflict)
		}
		equal(t, "winners", won, 1)
	}
}
