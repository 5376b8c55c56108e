package bootstrap

import (
	"fmt"
	"testing"

	"better/compute/model"
	"better/compute/provider"
)

// Once the provider has refused the account's credentials it hears nothing of the account's runs, whichever replica drives them, until
// somebody acts; those that have ordered wait for it, and fail when the time of their state is up.
func TestRunsMakeNoCallWithRefusedCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	replicas := []*Reconciler{b.rec, NewReconciler(b.deps)}
	var ids []string
	for i, status := range []model.BootstrapStatus{model.Identifying, model.Preparing, model.Installing, model.Identifying, model.Preparing, model.Installing} {
		runID := b.start(b.offer(fmt.Sprint("k", i)))
		b.driveToStatus(runID, status)
		b.cloud.identity.Serial += "x" // each machine is another one
		ids = append(ids, runID)
	}
	cleaning := b.start(b.offer("cleaning"))
	b.driveToStatus(cleaning, model.Identifying)
	b.cancel(cleaning)
	b.driveToStatus(cleaning, model.Failed)
	b.cloud.next("prepare", failsWith(provider.Auth))
	b.step(ids[1])

	calls := len(b.cloud.calls)
	stepAll := func() {
		t.Helper()
		for i, runID := range append(ids, cleaning) {
			for range 3 {
				if _, err := replicas[i%2].Step(t.Context(), runID); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := b.rec.sweepAccounts(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.exec("UPDATE provider_accounts SET swept_at = now() - interval '1 hour'")
	stepAll()
	equal(t, "calls meanwhile", b.cloud.calls[calls:], []string{})
	for _, runID := range ids {
		if r := b.row(runID); r.Status == model.Failed || deref(r.WaitReason) != waitsForCredentials || r.Attempt != 0 {
			t.Errorf("the run is %s, waits for %q, attempt %d", r.Status, deref(r.WaitReason), r.Attempt)
		}
	}
	b.exec("UPDATE bootstraps SET deadline_at = now() WHERE id = ?", ids[0])
	b.step(ids[0])
	equal(t, "reason", b.row(ids[0]).Failure.Reason, model.CredentialsRejected)
	equal(t, "calls at the deadline", b.cloud.calls[calls:], []string{})

	if _, err := b.deps.Accounts.Check(b.ctx, model.CheckProviderAccountInput{TenantID: tenant, AccountID: b.account}); err != nil {
		t.Fatal(err)
	}
	for _, runID := range ids[1:] {
		b.driveToStatus(runID, model.Installed)
	}
	b.driveToEnd(ids[0])
	b.driveToEnd(cleaning)
	equal(t, "orders, released", []int{b.cloud.orders, b.cloud.released}, []int{7, 2})
}
