package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// someOperation is the operation id of a run that nobody knows.
func someOperation() string {
	return operationPrefix + strings.TrimPrefix(id.Derive("op", id.New("x")), "op_")
}

// lose makes a machine at the provider that carries an operation of which nobody knows.
func (b *bench) lose() (machineID string) {
	b.t.Helper()
	operation := someOperation()
	machineID = "m-" + operation[4:20]
	b.cloud.change(func() { b.cloud.machines[operation] = &cloudMachine{id: machineID} })
	return machineID
}

// sweepNow compares the account as if all that was done so far were long over.
func (b *bench) sweepNow() {
	b.t.Helper()
	b.exec("UPDATE bootstraps SET updated_at = updated_at - interval '1 hour'")
	b.exec("UPDATE hosts SET joined_at = joined_at - interval '1 hour', removed_at = removed_at - interval '1 hour'")
	b.sweepAgain()
}

func (b *bench) sweepAgain() {
	b.t.Helper()
	b.exec("UPDATE provider_accounts SET swept_at = now() - interval '1 hour'")
	if err := b.rec.sweepAccounts(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// orphans gives the open ones as "kind machine".
func (b *bench) orphans() []string {
	b.t.Helper()
	open := []string{}
	page, err := b.service.Orphans(b.ctx, OrphansInput{TenantID: new(tenant)})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, o := range page.Nodes() {
		if o.ResolvedAt == nil {
			open = append(open, string(o.Kind)+" "+o.MachineID)
		}
	}
	return open
}

func (b *bench) orphan() *model.Orphan {
	b.t.Helper()
	return b.allOrphans()[0]
}

func TestSweepFindsMachinesThatNobodyOwns(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	claiming, joined, cancelled, removed := b.start(b.offer("k1")), b.start(b.offer("k2")), b.start(b.offer("k3")), b.start(b.offer("k4"))
	b.driveToStatus(claiming, model.Identifying)
	for _, runID := range []string{joined, removed} {
		b.driveToStatus(runID, model.Installed)
		b.exec("UPDATE machine_reservations SET machine_key = 'scripted:' || ? WHERE bootstrap_id = ?", *b.row(runID).MachineID, runID)
		b.joinAs(runID, *b.row(runID).MachineID)
	}
	b.driveToStatus(cancelled, model.Identifying)
	b.cancel(cancelled)
	b.driveToEnd(cancelled)
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{})

	lost := b.lose()
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + lost})
	first := b.orphan()
	if first.OperationID == nil || first.BootstrapID != nil || first.ResolvedAt != nil {
		t.Errorf("the orphan is %+v", first)
	}
	b.sweepNow()
	if again := b.orphan(); again.ID != first.ID || !again.LastSeenAt.After(first.LastSeenAt.Time) || !again.FirstSeenAt.Equal(first.FirstSeenAt.Time) {
		t.Errorf("seen again it is %+v, and was %+v", again, first)
	}
	b.cloud.change(func() { b.cloud.machines[*first.OperationID].released = true })
	b.sweepNow() // the list may have left it out
	b.exec("UPDATE orphans SET last_seen_at = last_seen_at - interval '1 hour'")
	b.sweepNow()
	equal(t, "orphans after somebody removed it", b.orphans(), []string{})

	// A host that was removed leaves a machine that costs money.
	b.exec("UPDATE hosts SET removed_at = now() WHERE bootstrap_id = ?", removed)
	b.exec("DELETE FROM machine_reservations WHERE bootstrap_id = ?", removed)
	b.sweepAgain() // it was removed just now
	equal(t, "orphans right after", b.orphans(), []string{})
	b.sweepNow()
	equal(t, "orphans after a host was removed", b.orphans(), []string{"not-ours " + *b.row(removed).MachineID})
	if o := b.orphan(); deref(o.BootstrapID) != removed || o.Price == nil || *o.Price.Hourly != "0.01" {
		t.Errorf("the orphan is %+v", o)
	}
	// Taken as a named machine it has an owner again.
	b.start(b.machine(*b.row(removed).MachineID, "k5"))
	b.sweepNow()
	equal(t, "orphans after it was taken", b.orphans(), []string{})
}

// A machine that was ordered, and is a host by another name by now, is shown, as it may be a copy, and not given back; one that is to be given back
// becomes no host by any name.
func TestOrphanByAnotherName(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.identity.OSMachineID, b.cloud.boxes = "one-and-the-same", []string{"alias", "other-alias"}
	ordered := b.start(b.offer("k1"))
	b.driveToStatus(ordered, model.Installed)
	b.joinAs(ordered, *b.row(ordered).MachineID)
	b.exec("UPDATE hosts SET removed_at = now() - interval '1 day'")
	b.exec("DELETE FROM machine_reservations")
	b.sweepNow()
	shown := b.orphan()
	refused := func() {
		t.Helper()
		_, err := b.service.ReleaseMachine(b.ctx, release(shown))
		wantCode(t, err, problem.InvalidState)
	}

	alias := b.start(b.machine("alias", "k2"))
	b.driveToStatus(alias, model.Installed)
	refused()
	b.joinAs(alias, "alias")
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + shown.MachineID})
	refused()

	b.exec("UPDATE hosts SET removed_at = now() - interval '1 day'")
	b.exec("DELETE FROM machine_reservations")
	b.sweepNow()
	if _, err := b.service.ReleaseMachine(b.ctx, release(b.orphan())); err != nil {
		t.Fatal(err)
	}
	late := b.start(b.machine("other-alias", "k3"))
	equal(t, "reason", b.driveToEnd(late).Failure.Reason, model.MachineInUse)
	b.giveBack()
	equal(t, "released", b.cloud.released, 1)
}

// Some providers know a machine by its serial number alone. A host of the tenant that says the same one keeps it.
func TestNoMachineOfAHostIsGivenBackByItsSerialNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.facts = `{"serial": "S1", "machineId": "os1"}`
	b.cloud.boxes = []string{"alias"}
	b.cloud.identity = provider.Identity{Serial: "S1"}
	b.rec.Timing.KeepFailed = time.Hour
	removed, kept := b.start(b.offer("k1")), b.start(b.offer("k2"))
	b.driveToStatus(removed, model.Installed)
	b.joinAs(removed, *b.row(removed).MachineID)
	b.exec("UPDATE hosts SET removed_at = now() - interval '1 day'")
	b.exec("DELETE FROM machine_reservations")
	b.cloud.next("status", failsWith(provider.InstallError))
	b.driveToStatus(kept, model.Failed)

	b.cloud.change(func() { b.cloud.identity.OSMachineID = "os1" })
	host := b.start(b.machine("alias", "k3"))
	b.driveToStatus(host, model.Installed)
	b.joinAs(host, "alias")
	b.exec("UPDATE bootstraps SET state_since = now() - interval '2 hours' WHERE id = ?", kept)
	equal(t, "cleanup", b.driveToEnd(kept).Cleanup, model.CleanupKept)
	b.sweepNow()
	for _, o := range b.allOrphans() {
		_, err := b.service.ReleaseMachine(b.ctx, release(o))
		wantCode(t, err, problem.InvalidState)
	}
	equal(t, "released", b.cloud.released, 0)
}

func (b *bench) allOrphans() []*model.Orphan {
	b.t.Helper()
	page, err := b.service.Orphans(b.ctx, OrphansInput{TenantID: new(tenant)})
	if err != nil || len(page.Nodes()) == 0 {
		b.t.Fatalf("Orphans = %v, %v", page, err)
	}
	return page.Nodes()
}

// joinAs is join with the machine's id in the host.
func (b *bench) joinAs(runID, machineID string) {
	b.t.Helper()
	b.mustJoin(runID)
	b.exec("UPDATE hosts SET machine_id = ? WHERE bootstrap_id = ?", machineID, runID)
}

func TestSweepFindsHostsWithoutAMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.boxes = []string{"box"}
	ordered, named := b.start(b.offer("k1")), b.start(b.machine("box", "k2"))
	for _, runID := range []string{ordered, named} {
		b.driveToStatus(runID, model.Installed)
		b.joinAs(runID, *b.row(runID).MachineID)
	}
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{})
	machine := b.cloud.machines[b.row(ordered).OperationID]
	b.cloud.change(func() { machine.hidden = true })
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-there " + machine.id})
	o := b.orphan()
	if deref(o.HostID) != *b.row(ordered).HostID || deref(o.BootstrapID) != ordered {
		t.Errorf("the orphan is %+v", o)
	}
	_, err := b.service.ReleaseMachine(b.ctx, release(o))
	wantCode(t, err, problem.InvalidState)
	b.cloud.change(func() { machine.hidden = false })
	b.sweepNow()
	equal(t, "orphans when it is there again", b.orphans(), []string{})
}

// While runs are being driven, failed and cleaned up, whatever the sweep sees of them has an owner.
func TestSweepTakesNoLiveRunsMachineForAnOrphan(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.work()
	done := make(chan struct{})
	var wg sync.WaitGroup
	sweeps := 0
	wg.Go(func() {
		for ; ; sweeps++ {
			select {
			case <-done:
				return
			default:
				b.sweepAgain()
			}
		}
	})
	for i := range 20 {
		runID := b.start(b.offer(fmt.Sprint("k", i)))
		b.await(runID, "installed", installed)
		if i%2 == 0 {
			b.mustJoin(runID)
			continue
		}
		b.cancel(runID)
		b.await(runID, "its end", func(r *run) bool { return r.Status == model.Failed && r.LiveAccountID == nil })
	}
	close(done)
	wg.Wait()
	var found int
	if err := b.db.NewRaw("SELECT count(*) FROM orphans WHERE kind = 'not-ours'").Scan(t.Context(), &found); err != nil || found != 0 {
		t.Errorf("%d machines of live runs were taken for orphans (%v)", found, err)
	}
	t.Logf("orphan-sweep sweeps=%d runs=20 false=%d", sweeps, found)
}

// An account is swept by one replica, at its time, and one that does not answer keeps no other back.
func TestSweepsAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for range 9 {
		b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'scripted', ?, 'test')",
			id.New("pacct"), tenant, strings.ToLower(id.New("n")))
	}
	b.cloud.next("machines", failsWith(provider.Unavailable))
	b.exec("UPDATE provider_accounts SET swept_at = now() - interval '1 hour'")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := NewReconciler(b.deps).sweepAccounts(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	equal(t, "lists read", []int{b.cloud.count("machines"), b.cloud.count("claims")}, []int{10, 9})
}

// Providers that hang hold back neither sweeps nor releases of other tenants.
func TestNoTenantWaitsForAnothersProvider(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.exec("DELETE FROM provider_accounts")
	hang, reached := make(chan struct{}), make(chan struct{}, 100)
	var hangs atomic.Int32
	b.cloud.hook = func(string) {
		reached <- struct{}{}
		if hangs.Add(-1) >= 0 {
			<-hang
		}
	}
	account := func(tenantID string) (accountID string) {
		accountID = id.New("pacct")
		b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by, swept_at) VALUES (?, ?, 'scripted', ?, 'test', ?)",
			accountID, tenantID, strings.ToLower(accountID), time.Now().Add(-time.Hour))
		return accountID
	}
	orphanOf := func(tenantID string) (orphanID string) {
		orphanID = id.New("orph")
		b.exec(`INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id, operation_id, release_asked_at, release_asked_by, release_at)
			VALUES (?, ?, ?, 'not-ours', ?, ?, now(), 'user:x', now())`, orphanID, tenantID, account(tenantID), "m-"+orphanID, someOperation())
		return orphanID
	}
	for what, do := range map[string]func(context.Context) error{"sweeps": b.rec.sweepAccounts, "releases": b.rec.releaseOrphans} {
		hangs.Store(piecesPerTenant)
		for range 3 * piecesPerTenant {
			orphanOf("hanging")
		}
		done := make(chan error, 1)
		go func() { done <- do(t.Context()) }()
		for range piecesPerTenant {
			<-reached
		}
		// The places of the one tenant are taken; that is when another one's comes due.
		other := orphanOf("other")
		query := "SELECT release_at IS NULL FROM orphans WHERE id = ?"
		if what == "sweeps" {
			query = "SELECT swept_at > now() - interval '1 minute' FROM provider_accounts WHERE id = (SELECT account_id FROM orphans WHERE id = ?)"
		}
		waitFor(t, what+" of another tenant", func() (ok bool) {
			if err := b.db.NewRaw(query, other).Scan(everyTenant(t.Context()), &ok); err != nil {
				t.Fatal(err)
			}
			return ok
		})
		for range piecesPerTenant {
			hang <- struct{}{}
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		b.exec("DELETE FROM provider_accounts")
		for len(reached) > 0 {
			<-reached
		}
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func release(o *model.Orphan) model.ReleaseMachineInput {
	return model.ReleaseMachineInput{TenantID: o.TenantID, OrphanID: o.ID, MachineID: o.MachineID}
}

func TestReleaseChecks(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.lose()
	b.sweepNow()
	in := release(b.orphan())
	_, err := b.service.ReleaseMachine(t.Context(), in)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.service.ReleaseMachine(b.ctx, model.ReleaseMachineInput{})
	if issues := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue); len(issues) != 3 {
		t.Errorf("issues = %v", issues)
	}
	b.grant("user:reader", "provider-viewer", "compute-tenant/"+tenant)
	_, err = b.service.ReleaseMachine(as(t.Context(), "user:reader"), in)
	wantCode(t, err, problem.Forbidden)
	absent := in
	absent.OrphanID = id.New("orph")
	_, err = b.service.ReleaseMachine(b.ctx, absent)
	wantCode(t, err, problem.NotFound)
	slip := in
	slip.MachineID = "m-other"
	_, err = b.service.ReleaseMachine(b.ctx, slip)
	wantCode(t, err, problem.InvalidInput)

	// Somebody has made it his own since the sweep.
	owner := b.start(b.machine(in.MachineID, "k"))
	_, err = b.service.ReleaseMachine(b.ctx, in)
	wantCode(t, err, problem.InvalidState)
	b.cancel(owner)
	b.driveToEnd(owner)
	b.exec("UPDATE orphans SET resolved_at = now()")
	_, err = b.service.ReleaseMachine(b.ctx, in)
	wantCode(t, err, problem.InvalidState)
	equal(t, "releases", b.cloud.count("release"), 0)
}

func TestReleaseOfAnOrphan(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	machineID := b.lose()
	b.sweepNow()
	in := release(b.orphan())
	for range 2 {
		p, err := b.service.ReleaseMachine(b.ctx, in)
		if err != nil || p.Orphan.ID != in.OrphanID || p.Orphan.ResolvedAt != nil {
			t.Fatalf("ReleaseMachine = %+v, %v", p, err)
		}
	}
	// From here on nobody can take the machine, and the sweep leaves it alone.
	_, err := b.service.Start(b.ctx, b.machine(machineID, "k"))
	wantCode(t, err, problem.Conflict)
	b.exec("UPDATE orphans SET last_seen_at = now() - interval '1 day'")
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + machineID})

	releases := func() {
		t.Helper()
		b.exec("UPDATE orphans SET release_at = now() WHERE release_at IS NOT NULL")
		if err := b.rec.releaseOrphans(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.cloud.next("release", failsWith(provider.Unavailable), fault{}, fault{})
	b.cloud.next("find", fault{})
	b.rec.Timing.Cleanup, b.rec.Timing.CleanupMax = time.Hour, time.Hour
	if b.orphan().Release().Attempts != 0 {
		t.Errorf("before the first attempt it is %+v", b.orphan().Release())
	}
	releases()
	equal(t, "orphans while the provider is away", b.orphans(), []string{"not-ours " + machineID})
	if r := b.orphan().Release(); r.Attempts != 1 || r.LastError == "" || r.NextTryAt == nil || !r.NextTryAt.After(r.RequestedAt.Time) || r.DroppedAt != nil {
		t.Errorf("after a failure it is %+v", r)
	}
	releases()
	equal(t, "orphans", b.orphans(), []string{})
	if r := b.orphan().Release(); r.LastError != "" || r.NextTryAt != nil || r.DroppedAt != nil {
		t.Errorf("at its end it is %+v", r)
	}
	equal(t, "released, leaked, reservations", []int{b.cloud.released, b.cloud.leaked(nil), b.orphanReservations()}, []int{1, 0, 0})
	var outcomes []string
	if err := b.db.NewRaw("SELECT outcome FROM audit_log WHERE action = 'releaseMachine' ORDER BY id").Scan(t.Context(), &outcomes); err != nil {
		t.Fatal(err)
	}
	equal(t, "audit", outcomes, []string{"allowed", "replayed"})
}

func (b *bench) orphanReservations() (n int) {
	b.t.Helper()
	if err := b.db.NewRaw("SELECT count(*) FROM machine_reservations WHERE orphan_id IS NOT NULL").Scan(b.t.Context(), &n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// The provider has the last word about what a machine is, and about whether it is gone.
func TestReleaseThatTheProviderDoubts(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	machineID := b.lose()
	b.sweepNow()
	in := release(b.orphan())
	if _, err := b.service.ReleaseMachine(b.ctx, in); err != nil {
		t.Fatal(err)
	}
	b.rec.Timing.Cleanup, b.rec.Timing.CleanupMax = time.Hour, time.Hour
	b.cloud.next("release", failsWith(provider.NotFound)) // of a machine that it still shows
	if err := b.rec.releaseOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "orphans", b.orphans(), []string{"not-ours " + machineID})
	b.cloud.next("release", failsWith(provider.IdentityChanged))
	b.exec("UPDATE orphans SET release_at = now()")
	if err := b.rec.releaseOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "orphans, reservations", []int{len(b.orphans()), b.orphanReservations()}, []int{1, 0})
	if r := b.orphan().Release(); r == nil || r.DroppedAt == nil || r.NextTryAt != nil || r.LastError == "" {
		t.Errorf("the dropped release is %+v", r)
	}
	p, err := b.service.ReleaseMachine(b.ctx, in)
	if err != nil {
		t.Fatalf("it cannot be said again: %v", err)
	}
	if r := p.Orphan.Release(); r.DroppedAt != nil || r.NextTryAt == nil || r.LastError != "" || r.Attempts != 0 || r.RequestedBy != owner {
		t.Errorf("the release that was asked for anew is %+v", r)
	}
}

// A machine that costs money is not lost from sight with its account, unless somebody says so, and never silently.
func TestOrphansHoldTheirAccount(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	machineID := b.lose()
	b.sweepNow()
	in := model.DeleteProviderAccountInput{TenantID: tenant, AccountID: b.account}
	refused := func(what string) {
		t.Helper()
		_, err := b.deps.Accounts.Delete(b.ctx, in)
		blockers := fmt.Sprint(wantCode(t, err, problem.InvalidState).Details["blockers"])
		equal(t, what, blockers, fmt.Sprintf("[{orphan %s %s}]", b.orphan().ID, machineID))
	}
	refused("blockers")
	if _, err := b.service.ReleaseMachine(b.ctx, release(b.orphan())); err != nil {
		t.Fatal(err)
	}
	refused("blockers of a release to be done")
	in.ForgetOrphans = new(true)
	if _, err := b.deps.Accounts.Delete(b.ctx, in); err != nil {
		t.Fatal(err)
	}
	equal(t, "orphans, reservations", []int{len(b.orphans()), b.orphanReservations()}, []int{0, 0})
	if err := b.rec.releaseOrphans(t.Context()); err != nil {
		t.Error(err)
	}
	var forgotten string
	err := b.db.NewRaw("SELECT details ->> 'forgottenMachines' FROM audit_log WHERE action = 'deleteProviderAccount' AND outcome = 'allowed'").Scan(b.ctx, &forgotten)
	if err != nil || !strings.Contains(forgotten, machineID) {
		t.Errorf("the audit log says %q (%v)", forgotten, err)
	}
}

func TestOrphansThatAreOverHoldNoAccount(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.lose()
	b.sweepNow()
	b.exec("UPDATE orphans SET resolved_at = now()")
	b.exec("INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id) VALUES ('orph_1', ?, ?, 'not-there', 'm')", tenant, b.account)
	if _, err := b.deps.Accounts.Delete(b.ctx, model.DeleteProviderAccountInput{TenantID: tenant, AccountID: b.account}); err != nil {
		t.Error(err)
	}
}

func TestOrphansPage(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for range 7 {
		b.lose()
	}
	b.sweepNow()
	in, seen := OrphansInput{TenantID: new(tenant), First: new(3), AccountID: &b.account}, map[string]bool{}
	for {
		page, err := b.service.Orphans(b.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Nodes() {
			seen[o.ID] = true
		}
		if !page.PageInfo.HasNextPage {
			break
		}
		in.After = page.PageInfo.EndCursor
	}
	equal(t, "orphans", len(seen), 7)
	in.AccountID = nil
	_, err := b.service.Orphans(b.ctx, in) // a cursor of another list
	wantCode(t, err, problem.InvalidInput)

	second := b.secondAccount()
	b.grant("user:single", "provider-viewer", "compute-provider-account/"+second)
	page, err := b.service.Orphans(as(t.Context(), "user:single"), OrphansInput{TenantID: new(tenant)})
	if err != nil || len(page.Nodes()) != 0 {
		t.Errorf("a caller with another account sees %v, %v", page, err)
	}
	_, err = b.service.Orphans(as(t.Context(), "user:single"), OrphansInput{TenantID: new(tenant), AccountID: &b.account})
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Orphans(as(t.Context(), "user:stranger"), OrphansInput{TenantID: new(tenant)})
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Orphans(t.Context(), OrphansInput{TenantID: new(tenant)})
	wantCode(t, err, problem.Unauthenticated)
}

// giveBack does what is due of releases.
func (b *bench) giveBack() {
	b.t.Helper()
	b.exec("UPDATE orphans SET release_at = now() WHERE release_at IS NOT NULL")
	if err := b.rec.releaseOrphans(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// The second machine of an operation is nobody's, however well its run does with the first.
func TestSweepFindsDoubleOrders(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	first, order := *b.row(runID).MachineID, b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { order.second = "m-second" })
	b.sweepNow()
	equal(t, "orphans while the run is live", b.orphans(), []string{"not-ours m-second"})
	b.joinAs(runID, first)
	b.sweepNow()
	equal(t, "orphans of a run that joined", b.orphans(), []string{"not-ours m-second"})
	if o := b.orphan(); deref(o.BootstrapID) != runID {
		t.Errorf("the orphan is %+v", o)
	}

	if _, err := b.service.ReleaseMachine(b.ctx, release(b.orphan())); err != nil {
		t.Fatal(err)
	}
	b.giveBack()
	equal(t, "orphans", b.orphans(), []string{})
	if order.second != "" || order.released {
		t.Error("the host's machine was given back, or the second was not")
	}
	b.exec("INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id, operation_id) VALUES ('orph_01jz0000000000000000000000', ?, ?, 'not-ours', ?, ?)",
		tenant, b.account, first, b.row(runID).OperationID)
	_, err := b.service.ReleaseMachine(b.ctx, model.ReleaseMachineInput{TenantID: tenant, OrphanID: "orph_01jz0000000000000000000000", MachineID: first})
	wantCode(t, err, problem.InvalidState)
}

// A person who names a wrong machine does not hide the right one.
func TestSweepFindsWhatAWrongWordLeft(t *testing.T) {
	t.Parallel()
	b, runID := uncertainRun(t, true)
	b.cloud.change(func() { b.cloud.boxes = []string{"another"} })
	wrong := "another"
	if _, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: runID, MachineID: &wrong}); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(runID, model.Installed)
	b.joinAs(runID, wrong)
	order := b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { order.hidden = false })
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + order.id})
}

// A machine whose mark came off, or never was on, is known by the run that ordered it alone.
func TestSweepFindsOrderedMachinesWithoutAMark(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	b.cloud.boxes = []string{"box"}
	named, runID := b.start(b.machine("box", "k1")), b.start(b.offer("k2"))
	for _, id := range []string{named, runID} {
		b.driveToStatus(id, model.Installed)
		b.joinAs(id, *b.row(id).MachineID)
	}
	order := b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { order.unmarked = true })
	b.sweepNow()
	equal(t, "orphans while it is a host", b.orphans(), []string{})
	b.exec("UPDATE hosts SET removed_at = now()")
	b.exec("DELETE FROM machine_reservations")
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + order.id})
	if o := b.orphan(); deref(o.BootstrapID) != runID || deref(o.OperationID) != b.row(runID).OperationID || o.Price == nil {
		t.Errorf("the orphan is %+v", o)
	}

	// The driver touches nothing that does not carry the operation. Once it does again, the word can be given anew.
	for i, left := range []int{1, 0} {
		if _, err := b.service.ReleaseMachine(b.ctx, release(b.orphan())); err != nil {
			t.Fatal(err)
		}
		b.giveBack()
		equal(t, "machines given back, orphans", []int{b.cloud.released, len(b.orphans())}, []int{i, left})
		b.cloud.change(func() { order.unmarked = false })
	}
	// A provider that goes on listing what it has taken back says nothing new.
	b.cloud.change(func() { order.unmarked, order.released = true, false })
	b.sweepNow()
	equal(t, "orphans after it was given back", b.orphans(), []string{})
}

// What a failed run has given back may be listed for ever, where machines go back into a stock.
func TestSweepLeavesWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Identifying)
	b.cancel(runID)
	b.driveToEnd(runID)
	order := b.cloud.machines[b.row(runID).OperationID]
	b.cloud.change(func() { order.unmarked, order.released = true, false })
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{})
	// It was not given back: it is left to somebody.
	b.exec("UPDATE bootstraps SET cleanup = 'kept'")
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + order.id})
}

// An account that became another project can say nothing about the machines of the one that it was.
func TestOrphanOutlivesItsAccountsProject(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		b := setup(t, model.ClaimToken)
		machineID := b.lose()
		b.sweepNow()
		in := release(b.orphan())
		order := b.cloud.machines[*b.orphan().OperationID]
		if asked {
			if _, err := b.service.ReleaseMachine(b.ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		b.exec("UPDATE provider_accounts SET version = version + 1")
		b.cloud.change(func() { order.hidden = true }) // it is in the former project
		b.giveBack()
		b.exec("UPDATE orphans SET last_seen_at = last_seen_at - interval '1 day'")
		b.sweepNow()
		equal(t, "orphans", b.orphans(), []string{"not-ours " + machineID})
		equal(t, "releases", b.cloud.count("release"), 0)
		if !asked {
			_, err := b.service.ReleaseMachine(b.ctx, in)
			wantCode(t, err, problem.InvalidState)
		}

		// Back in that project, it is seen and given back.
		b.exec("UPDATE provider_accounts SET version = version + 1")
		b.cloud.change(func() { order.hidden = false })
		b.sweepNow()
		if _, err := b.service.ReleaseMachine(b.ctx, in); err != nil {
			t.Fatal(err)
		}
		b.giveBack()
		equal(t, "orphans, leaked", []int{len(b.orphans()), b.cloud.leaked(nil)}, []int{0, 0})
	}
}

// Two accounts of one project show its machines; the one that a run went through tells of them, unless it is another project by now.
func TestSweepTellsOfWhatAnotherAccountLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	b.joinAs(runID, *b.row(runID).MachineID)
	b.exec("UPDATE hosts SET removed_at = now() WHERE bootstrap_id = ?", runID)
	b.exec("DELETE FROM machine_reservations WHERE bootstrap_id = ?", runID)
	second := b.secondAccount()
	through := func() (accounts []string) {
		t.Helper()
		b.exec("DELETE FROM orphans")
		b.sweepNow()
		if err := b.db.NewRaw("SELECT account_id FROM orphans").Scan(t.Context(), &accounts); err != nil {
			t.Fatal(err)
		}
		return accounts
	}
	equal(t, "told through", through(), []string{b.account})
	b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
	if accounts := through(); !slices.Contains(accounts, second) {
		t.Errorf("once the account of the run was changed, it is told through %v, not through %s", accounts, second)
	}
}
