package bootstrap

import (
	"log/slog"
	"strings"
	"testing"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provideraccount"
	"better/compute/secret"
	"better/compute/secret/vault/vaulttest"
)

// withVault has the account refer to a field of a vault's.
func (b *bench) withVault() *vaulttest.Server {
	b.t.Helper()
	v := vaulttest.New(b.t)
	v.Put(tenant+"/cloud", "project-1")
	registry, err := provider.NewRegistry(b.cloud)
	if err != nil {
		b.t.Fatal(err)
	}
	accounts := provideraccount.New(provideraccount.Deps{
		DB: b.db, Authz: b.deps.Authz, Registry: registry, Log: slog.New(slog.DiscardHandler),
		Secrets: secret.New(secret.Deps{DB: b.db, Authz: b.deps.Authz, Vault: v.Client(b.t)}),
	})
	b.t.Cleanup(accounts.Close)
	b.deps.Accounts = accounts
	if b.service, err = New(b.deps); err != nil {
		b.t.Fatal(err)
	}
	b.rec = NewReconciler(b.deps)
	b.exec(`UPDATE provider_accounts SET config = '{"apiToken": "vault://cloud#token"}' WHERE id = ?`, b.account)
	return v
}

// A value that is changed in the vault may be another project's token, though nothing of the account is written here.
func TestChangedVaultValueLeavesAnUnseenOrderInDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	v := b.withVault()
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	runID := b.start(b.offer("k"))
	b.step(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	v.Put(tenant+"/cloud", "project-2")
	b.driveTo(runID, "uncertainty", (*run).uncertain)
	equal(t, "orders", b.cloud.orders, 1)

	// The way back is open: the order shows up with the former value.
	v.Put(tenant+"/cloud", "project-1")
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = false })
	b.driveToStatus(runID, model.Identifying)
	equal(t, "orders", b.cloud.orders, 1)
}

// While the vault is away nobody knows which project the account is: no call goes out, what is due waits, and a person's word counts.
func TestVaultAway(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	v := b.withVault()
	lost := b.lose()
	b.sweepNow()
	in := release(b.orphan())
	if _, err := b.service.ReleaseMachine(b.ctx, in); err != nil {
		t.Fatal(err)
	}
	b.cloud.next("order", failsAfter(provider.UnknownOutcome))
	ordered, waiting := b.start(b.offer("ordered")), b.start(b.offer("waiting"))
	b.step(ordered)

	v.SetAway(true)
	calls := len(b.cloud.calls)
	for range 3 {
		b.step(ordered)
		b.step(waiting)
	}
	for _, runID := range []string{ordered, waiting} {
		if r := b.row(runID); r.Status != model.Claiming || r.uncertain() || !strings.Contains(r.LastError, "vault://cloud#token") {
			t.Errorf("the run is %s, uncertain %v, after %q", r.Status, r.uncertain(), r.LastError)
		}
	}
	_, err := b.service.ReleaseMachine(b.ctx, in)
	wantCode(t, err, problem.ProviderError)
	b.sweepNow()
	equal(t, "orphans", b.orphans(), []string{"not-ours " + lost})
	b.giveBack()
	if r := b.orphan().Release(); r.Attempts == 0 || !strings.Contains(r.LastError, "vault://cloud#token") {
		t.Errorf("the release is %+v", r)
	}
	if _, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: waiting}); err != nil {
		t.Fatal(err)
	}
	b.driveToStatus(waiting, model.Failed)
	equal(t, "calls", len(b.cloud.calls), calls)

	v.SetAway(false)
	b.driveToStatus(ordered, model.Identifying)
	equal(t, "orders", b.cloud.orders, 1)
}
