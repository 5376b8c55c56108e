package authz

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"better/compute/internal/problem"
	"better/compute/internal/slots"
	"better/compute/model"
)

// However many changes one caller sends, those of another wait for one of them.
func TestChangesOfACallerTakeTurns(t *testing.T) {
	t.Parallel()
	bindings := append(services(5), allow("user:root", "fleet-admin", "compute-fleet"))
	b := setup(t, bindings...)
	lock, err := b.owner.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if err := lockPolicy(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	grant := func(caller, object string) {
		calls.Go(func() {
			if _, err := b.d.GrantRole(as(t.Context(), caller), grantInput(allow("user:friend", "provider-viewer", object))); err != nil {
				t.Errorf("%s: %v", caller, err)
			}
		})
	}
	evil := slots.Key{Level: limitTenant, Name: "evil"}
	for _, s := range services(5) {
		grant(s.Subject, "compute-tenant/evil")
	}
	eventually(t, "all five wait, one of them for the lock", func() bool {
		return b.d.turns.Users(evil) == 5 && b.waitForLocks(t) == 1
	})
	grant("user:root", "compute-tenant/good")
	eventually(t, "another caller is next", func() bool { return b.waitForLocks(t) >= 2 })
	if n := b.waitForLocks(t); n != 2 {
		t.Errorf("%d wait for the lock", n)
	}
	late, cancel := context.WithTimeout(as(t.Context(), "service:evil/1"), time.Millisecond)
	defer cancel()
	_, err = b.d.takeTurn(late, "service:evil/1")
	wantCode(t, err, problem.RateLimited)
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	if n := b.d.turns.Users(evil); n != 0 {
		t.Errorf("%d have the turn that all have had", n)
	}
}

// services are administrators of the tenant "evil".
func services(n int) []model.RoleBinding {
	rows := make([]model.RoleBinding, n)
	for i := range rows {
		rows[i] = allow(fmt.Sprint("service:evil/", i), "tenant-admin", "compute-tenant/evil")
	}
	return rows
}

// waitForLocks is how many connections to the test's database wait for a lock.
func (b *bundle) waitForLocks(t testing.TB) (n int) {
	t.Helper()
	err := b.owner.NewRaw("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(t.Context(), &n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
