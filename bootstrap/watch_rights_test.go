package bootstrap

import (
	"fmt"
	"testing"

	"better/compute/authz"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// The stream does not hear of the change, whose triggers are off: only what it reads tells it. The event is written together with the change.
func TestWatchShowsNothingFromAfterTheRightWent(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	if _, err := pgtest.Owner(t, w.db).NewRaw("ALTER TABLE role_bindings DISABLE TRIGGER USER").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := as(t.Context(), "user:guest")
	const tell = `WITH moved AS (UPDATE policy_version SET version = version + 1), given AS (%s), told AS (
			INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
			SELECT tenant_id, type, bootstrap_id, account_id, jsonb_build_object('data', jsonb_build_object('from', 'claiming', 'to', ?0::text))
			FROM events WHERE bootstrap_id = ?1 LIMIT 1)
		SELECT pg_notify('events', '')`
	give := fmt.Sprintf(tell, "INSERT INTO role_bindings VALUES ('user:guest', 'provider-viewer', ?2, 'allow') ON CONFLICT DO NOTHING")
	take := fmt.Sprintf(tell, "DELETE FROM role_bindings WHERE subject = 'user:guest'")
	for _, in := range []WatchInput{{TenantID: tenant}, {TenantID: tenant, AccountID: &w.account}, {TenantID: tenant, BootstrapID: &runID}} {
		for range 5 {
			w.exec(give, model.Claiming, runID, "compute-tenant/"+tenant)
			for held := false; !held; { // until the next poll
				held, _ = w.deps.Authz.Holds(ctx, model.ProvidersRead, authz.Tenant(tenant))
			}
			streams := make([]*Stream, 4)
			for i := range streams {
				streams[i] = w.watch(ctx, in)
				if in.BootstrapID != nil {
					w.next(streams[i]) // the present state
				}
			}
			w.exec(give, model.Identifying, runID, "compute-tenant/"+tenant)
			for _, s := range streams {
				for w.next(s).To != model.Identifying {
				}
			}
			w.exec(take, model.Preparing, runID)
			for _, s := range streams {
				for c := range s.Changes {
					t.Errorf("after the right went: %+v", c)
				}
				wantCode(t, s.Err(), problem.Forbidden)
			}
		}
	}
}
