package provideraccount

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/pool"
)

func (b *bundle) delete(ctx context.Context, a *model.ProviderAccount) error {
	_, err := b.Delete(ctx, model.DeleteProviderAccountInput{TenantID: a.TenantID, AccountID: a.ID})
	return err
}

// insertBootstrap does what a start does with the account: it locks it, then writes the run.
func insertBootstrap(ctx context.Context, s *Service, db *postgres.DB, a *model.ProviderAccount, poolID string) (runID string, err error) {
	runID = id.New("boot")
	err = db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := s.LockForUse(ctx, tx, a.TenantID, a.ID); err != nil {
			return err
		}
		_, err := tx.NewRaw(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id)
			VALUES (?, ?, ?, ?, 'user:x', 'machine-1', 'identifying', ?)`, runID, a.TenantID, a.ID, poolID, runID).Exec(ctx)
		return err
	})
	return runID, err
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, foreign := b.create(t, "main"), b.createIn(t, "t2", "main")
	in := model.DeleteProviderAccountInput{TenantID: "t1", AccountID: a.ID}
	_, err := b.Delete(t.Context(), model.DeleteProviderAccountInput{})
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Delete(as(t.Context(), "user:nobody"), model.DeleteProviderAccountInput{})
	wantIssues(t, err, "tenantId", "accountId")
	_, err = b.Delete(as(t.Context(), "user:viewer"), in)
	wantCode(t, err, problem.Forbidden)
	for _, accountID := range []string{foreign.ID, id.New("pacct")} {
		_, err = b.Delete(admin(t), model.DeleteProviderAccountInput{TenantID: "t1", AccountID: accountID})
		wantCode(t, err, problem.NotFound)
	}
	deleted, err := b.Delete(as(t.Context(), "user:manager"), in)
	if diff := cmp.Diff(&model.DeleteProviderAccountPayload{Deleted: true, DeletedID: a.ID}, deleted); diff != "" || err != nil {
		t.Error(err, diff)
	}
	_, err = b.Delete(admin(t), in)
	wantCode(t, err, problem.NotFound)
	_, err = b.Get(admin(t), GetInput{"t1", a.ID})
	wantCode(t, err, problem.NotFound)
	b.create(t, "main") // the name is free again
}

// The id of an account can come again, with the same idempotency key: the rights on the old one must not.
func TestDeleteTakesTheBindingsOnTheAccountWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone, stays := b.create(t, "gone"), b.create(t, "stays")
	for _, a := range []*model.ProviderAccount{gone, stays} {
		_, err := b.db.NewRaw("INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:guest', 'provider-viewer', ?, 'allow')",
			"compute-provider-account/"+a.ID).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.delete(admin(t), gone); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := b.db.NewRaw("SELECT object FROM role_bindings WHERE subject = 'user:guest'").Scan(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"compute-provider-account/" + stays.ID}, left); diff != "" {
		t.Errorf("bindings that are left (-want +got):\n%s", diff)
	}
}

func TestDeleteBlockers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pools := pool.New(pool.Deps{DB: b.db, Authz: b.authz})
	a := b.create(t, "main")
	created, err := pools.Create(admin(t), model.CreatePoolInput{
		TenantID: "t1", Name: "hosts", Class: model.ClassVPSHost, Agent: model.AgentBCD, AccountID: &a.ID,
	})
	if err != nil {
		t.Fatal(err)
	}
	poolID := created.Pool.ID
	instance, err := pool.CreateInstance(t.Context(), b.db.DB, "t1", poolID, "instance-1")
	if err != nil {
		t.Fatal(err)
	}
	runID, err := insertBootstrap(t.Context(), b.Service, b.db, a, poolID)
	if err != nil {
		t.Fatal(err)
	}
	wantBlockers := func(want ...blocker) {
		t.Helper()
		p := wantCode(t, b.delete(admin(t), a), problem.InvalidState)
		if diff := cmp.Diff(want, p.Details["blockers"]); diff != "" {
			t.Error(diff)
		}
	}
	run := blocker{"bootstrap", runID, "machine-1"}
	wantBlockers(run, blocker{"instance", instance.ID, "instance-1"}, blocker{"pool", poolID, "hosts"})

	if err := pool.DeleteInstance(t.Context(), b.db.DB, "t1", instance.ID); err != nil {
		t.Fatal(err)
	}
	wantBlockers(run, blocker{"pool", poolID, "hosts"})

	for _, cleanup := range []string{"pending", "releasing", "blocked"} {
		b.exec(t, `UPDATE bootstraps SET status = 'failed', failure = '{}', cleanup = ? WHERE id = ?`, cleanup, runID)
		wantBlockers(run, blocker{"pool", poolID, "hosts"})
	}
	b.exec(t, `UPDATE bootstraps SET cleanup = 'released' WHERE id = ?`, runID)
	wantBlockers(blocker{"pool", poolID, "hosts"})

	if _, err := pools.Archive(admin(t), model.ArchivePoolInput{TenantID: "t1", PoolID: poolID}); err != nil {
		t.Fatal(err)
	}
	if err := b.delete(admin(t), a); err != nil {
		t.Errorf("with an archived pool, a deleted instance and a finished run: %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM bootstraps WHERE account_id = ?`, a.ID); n != 1 {
		t.Error("the finished run has lost its account's id")
	}
}

// Who may delete the account need not hear which pools there are, nor of runs where they may not read it.
func TestDeleteHidesWhatTheCallerMayNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pools := pool.New(pool.Deps{DB: b.db, Authz: b.authz})
	a := b.create(t, "main")
	var ids []string
	for i := range 3 {
		created, err := pools.Create(admin(t), model.CreatePoolInput{
			TenantID: "t1", Name: fmt.Sprintf("p-%d", i), Class: model.ClassVPSHost, Agent: model.AgentBCD, AccountID: &a.ID,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pool.CreateInstance(t.Context(), b.db.DB, "t1", created.Pool.ID, fmt.Sprintf("i-%d", i)); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, created.Pool.ID)
	}
	bind := func(role, object, effect string) {
		b.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:keeper', ?, ?, ?)", role, object, effect)
	}
	bind("provider-manager", "compute-provider-account/"+a.ID, "allow")
	bind("provider-viewer", "compute-pool/"+ids[1], "allow")
	p := wantCode(t, b.delete(as(t.Context(), "user:keeper"), a), problem.InvalidState)
	told, _ := p.Details["blockers"].([]blocker)
	if len(told) != 2 || told[0].Name != "i-1" || told[1] != (blocker{"pool", ids[1], "p-1"}) || p.Details["hidden"] != 4 {
		t.Errorf("%v", p.Details)
	}
	bind("provider-viewer", "compute-tenant/t1", "allow")
	bind("provider-viewer", "compute-pool/"+ids[2], "deny")
	p = wantCode(t, b.delete(as(t.Context(), "user:keeper"), a), problem.InvalidState)
	if told, _ := p.Details["blockers"].([]blocker); len(told) != 4 || p.Details["hidden"] != 2 {
		t.Errorf("%v", p.Details)
	}
	if p := wantCode(t, b.delete(admin(t), a), problem.InvalidState); p.Details["hidden"] != nil {
		t.Errorf("%v", p.Details)
	}
	if _, err := insertBootstrap(t.Context(), b.Service, b.db, a, ids[0]); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "INSERT INTO roles (name, permissions, created_by, updated_by) VALUES ('blind', '{compute:providers:manage}', '', '')")
	b.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:blind', 'blind', ?, 'allow')", "compute-provider-account/"+a.ID)
	p = wantCode(t, b.delete(as(t.Context(), "user:blind"), a), problem.InvalidState)
	if told, _ := p.Details["blockers"].([]blocker); len(told) != 0 || p.Details["hidden"] != 7 {
		t.Errorf("%v", p.Details)
	}
}

func TestDeleteListsTwentyBlockers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pools := pool.New(pool.Deps{DB: b.db, Authz: b.authz})
	a := b.create(t, "main")
	for i := range 25 {
		_, err := pools.Create(admin(t), model.CreatePoolInput{
			TenantID: "t1", Name: fmt.Sprintf("p-%d", i), Class: model.ClassVPS, Agent: model.AgentNone, AccountID: &a.ID,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p := wantCode(t, b.delete(admin(t), a), problem.InvalidState)
	if n := len(p.Details["blockers"].([]blocker)); n != 20 {
		t.Errorf("%d blockers", n)
	}
}

// TestDeleteAgainstUse races a delete with each kind of thing that can come to use the account, and wants one of the two to be told
// no: the account is gone with nothing on it, or it is there with all of it.
func TestDeleteAgainstUse(t *testing.T) {
	t.Parallel()
	rounds := 700 // times three kinds
	if testing.Short() {
		rounds = 50
	}
	b := setup(t)
	pools := pool.New(pool.Deps{DB: b.db, Authz: b.authz})
	bare, err := pools.Create(admin(t), model.CreatePoolInput{TenantID: "t1", Name: "bare", Class: model.ClassVPSHost, Agent: model.AgentBCD})
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]func(a *model.ProviderAccount, i int) error{
		"createPool": func(a *model.ProviderAccount, i int) error {
			_, err := pools.Create(admin(t), model.CreatePoolInput{
				TenantID: "t1", Name: fmt.Sprintf("pool-%d", i), Class: model.ClassVPS, Agent: model.AgentNone, AccountID: &a.ID,
			})
			return err
		},
		"instance": func(a *model.ProviderAccount, i int) error {
			// Straight at the table, as a controller that forgot every lock would do it: the key is what holds.
			_, err := b.db.NewRaw(`INSERT INTO instances (id, tenant_id, pool_id, account_id, name) VALUES (?, 't1', ?, ?, 'x')`,
				id.New("inst"), bare.Pool.ID, a.ID).Exec(t.Context())
			if _, broken := postgres.ForeignKeyViolation(err); broken {
				return notFound()
			}
			return err
		},
		"bootstrap": func(a *model.ProviderAccount, i int) error {
			_, err := insertBootstrap(t.Context(), b.Service, b.db, a, bare.Pool.ID)
			return err
		},
	}
	for kind, use := range uses {
		t.Run(kind, func(t *testing.T) {
			var deleted, used atomic.Int64
			for i := range rounds {
				a := b.create(t, fmt.Sprintf("%s-%d", "a", i)+"-"+id.New("x")[2:20])
				var deleteErr, useErr error
				deleteFirst := rand.IntN(2)
				run(2, func(side int) {
					if side == deleteFirst {
						deleteErr = b.delete(admin(t), a)
					} else {
						useErr = use(a, i)
					}
				})
				switch {
				case deleteErr == nil && problem.Is(useErr, problem.NotFound):
					deleted.Add(1)
				case problem.Is(deleteErr, problem.InvalidState) && useErr == nil:
					used.Add(1)
					if n := len(problem.From(deleteErr).Details["blockers"].([]blocker)); n != 1 {
						t.Fatalf("round %d: %d blockers are named", i, n)
					}
				default:
					t.Fatalf("round %d: delete says %v, the other %v", i, deleteErr, useErr)
				}
			}
			t.Logf("%d deleted, %d used", deleted.Load(), used.Load())
		})
	}
	orphans := b.count(t, `SELECT count(*) FROM (
		SELECT account_id FROM pools WHERE account_id IS NOT NULL UNION ALL
		SELECT account_id FROM instances WHERE account_id IS NOT NULL UNION ALL
		SELECT live_account_id FROM bootstraps WHERE live_account_id IS NOT NULL) u
		WHERE NOT EXISTS (SELECT FROM provider_accounts a WHERE a.id = u.account_id)`)
	if orphans != 0 {
		t.Errorf("%d rows are left without their account", orphans)
	}
}

// TestUpdateDoesNotWaitForUse holds a start's lock open and updates meanwhile.
func TestUpdateDoesNotWaitForUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	err := b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		if err := b.LockForUse(ctx, tx, "t1", a.ID); err != nil {
			return err
		}
		_, err := b.Update(admin(t), update(a, `{}`))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	err = b.LockForUse(t.Context(), b.db.DB, "t2", a.ID)
	wantCode(t, err, problem.NotFound)
	_, err = b.Account(t.Context(), b.db.DB, "t2", a.ID)
	wantCode(t, err, problem.NotFound)
}
