package bootstrap

import (
	"testing"

	"better/compute/internal/problem"
	"better/compute/model"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	b, uncertain := uncertainRun(t, false)
	named, ready := b.start(b.machine("box", "k2")), b.start(b.offer("k3"))
	b.driveToStatus(ready, model.Identifying)
	var runs []*model.Bootstrap
	for _, runID := range []string{named, uncertain, ready} {
		r, err := b.service.Get(b.ctx, tenant, runID)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	claims, err := b.service.Claims(b.ctx, runs)
	if err != nil || len(claims) != 3 {
		t.Fatalf("Claims = %v, %v", claims, err)
	}
	if claims[0] != nil {
		t.Errorf("a named machine has the claim %+v", claims[0])
	}
	c := claims[1]
	if c.OperationID != b.row(uncertain).OperationID || c.OfferID != "small" || *c.Price.Hourly != "0.01" || c.IntendedAt == nil || c.AttemptedAt == nil ||
		c.OrderRef != nil || c.LastError == "" {
		t.Errorf("the uncertain claim is %+v", c)
	}
	if c := claims[2]; deref(c.OrderRef) == "" || c.LastError != "" {
		t.Errorf("the claim of a run that has its machine is %+v", c)
	}
}

// Only machines that nobody has are shown, only to whom may read the account, and only while somebody has to say.
func TestCandidates(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	b.cloud.change(func() { b.cloud.boxes = []string{"taken", "free", "host"} })
	b.start(b.machine("taken", "k2"))
	host := b.start(b.machine("host", "k3"))
	b.driveToStatus(host, model.Installed)
	b.mustJoin(host)
	candidates := func(runID string) []string {
		t.Helper()
		run, err := b.service.Get(b.ctx, tenant, runID)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := b.service.Claims(b.ctx, []*model.Bootstrap{run})
		if err != nil {
			t.Fatal(err)
		}
		machines, err := b.service.Candidates(b.ctx, claims[0])
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, m := range machines {
			ids = append(ids, m.ID)
		}
		return ids
	}
	equal(t, "candidates", candidates(runID), []string{"free"})

	// What another order brought is that order's, though nobody has reserved it yet.
	ordered := b.start(b.offer("k5"))
	b.step(ordered)
	theirs := b.cloud.machines[b.row(ordered).OperationID]
	equal(t, "candidates beside another order", candidates(runID), []string{"free"})
	_, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, MachineID: &theirs.id})
	wantCode(t, err, problem.InvalidInput)
	_, err = b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, MachineID: new("elsewhere")})
	wantCode(t, err, problem.InvalidInput)
	ours := b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { ours.hidden = false })
	equal(t, "candidates with the order's own", candidates(runID), []string{"free", ours.id})
	b.cloud.change(func() { ours.hidden = true })
	run, err := b.service.Get(b.ctx, tenant, runID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.service.Candidates(as(t.Context(), "user:stranger"), &model.BootstrapClaim{Run: run})
	wantCode(t, err, problem.Forbidden)

	calls := b.cloud.count("machines")
	certain := b.start(b.offer("k4"))
	equal(t, "candidates of a run that nobody has to resolve", candidates(certain), []string{})
	equal(t, "calls for it", b.cloud.count("machines"), calls)
}

// What a provider told slowly is not told to a caller whose right was taken away meanwhile.
func TestARightThatGoesDuringACall(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	run, err := b.service.Get(b.ctx, tenant, runID)
	if err != nil {
		t.Fatal(err)
	}
	leaver := as(t.Context(), "user:leaver")
	leaveAt := func(method string) {
		b.grant("user:leaver", "tenant-admin", "compute-tenant/"+tenant)
		b.cloud.hook = func(called string) {
			if called == method {
				b.exec("DELETE FROM role_bindings WHERE subject = 'user:leaver'")
			}
		}
	}
	leaveAt("claims")
	machines, err := b.service.Candidates(leaver, &model.BootstrapClaim{Run: run})
	if wantCode(t, err, problem.Forbidden); machines != nil {
		t.Error("it is told the machines all the same")
	}
	leaveAt("offers")
	plan, err := b.service.Plan(leaver, b.planOffer("small"))
	if wantCode(t, err, problem.Forbidden); plan != nil {
		t.Error("it is told the plan all the same")
	}
}
