package provideraccount

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// A create by a caller whose rights are in memory is three statements, and leaves what any other leaves.
func TestCreateAtOnceLeavesTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "stepwise", Config: model.JSON(`{"project" : "p", "n": 1.50}`)}
	ctx := authz.WithRequestID(authz.WithActor(t.Context(), authz.Actor{Subject: "user:manager"}), "r")
	stepwise, err := b.Create(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	fromMemory(t, b.authz)
	count := pgtest.CountQueries(b.db)
	var atOnce *model.CreateProviderAccountPayload
	eventually(t, "a create at once", func() bool {
		in.Name += "-"
		before := count()
		if atOnce, err = b.Create(ctx, in); err != nil {
			t.Fatal(err)
		}
		return count()-before == 3
	})
	leaves := func(a *model.ProviderAccount) (row map[string]any) {
		t.Helper()
		err := b.db.NewRaw(`SELECT l.actor, l.action, l.outcome, l.request_id, l.tenant_id, l.details - 'name' AS details, a.config, a.version, a.created_by, a.provider, a.last_check
			FROM audit_log l JOIN provider_accounts a ON l.object = 'compute-provider-account/' || a.id WHERE a.id = ? AND l.details->>'name' = a.name`, a.ID).Scan(t.Context(), &row)
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	if diff := cmp.Diff(leaves(stepwise.ProviderAccount), leaves(atOnce.ProviderAccount)); diff != "" {
		t.Error(diff)
	}
	got, err := b.Get(ctx, GetInput{"t1", atOnce.ProviderAccount.ID})
	if diff := cmp.Diff(atOnce.ProviderAccount, got); diff != "" || err != nil {
		t.Error("get differs from create", err, diff)
	}
}

func TestCreateAtOnceMeetsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fromMemory(t, b.authz)
	ctx := as(t.Context(), "user:manager")
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: new("k")}
	first, err := b.Create(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Create(ctx, in)
	if err != nil || !again.Replayed {
		t.Fatalf("a repeat gives %v, %v", again, err)
	}
	if diff := cmp.Diff(first.ProviderAccount, again.ProviderAccount); diff != "" {
		t.Error("the repeat differs", diff)
	}
	in.IdempotencyKey = nil
	_, err = b.Create(ctx, in)
	wantCode(t, err, problem.Conflict)
	if n := b.count(t, "SELECT count(*) FROM audit_log WHERE action = ? AND outcome = 'allowed'", createAction); n != 1 {
		t.Errorf("%d creates are in the audit log, want one", n)
	}
	b.exec(t, "DELETE FROM role_bindings WHERE subject = 'user:manager'")
	eventually(t, "the right is gone", func() bool {
		in.Name += "-"
		_, err := b.Create(ctx, in)
		return problem.Is(err, problem.Forbidden)
	})
}

// fromMemory lets the decider decide from memory, as it does in a server.
func fromMemory(t *testing.T, d *authz.Decider) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
}

// eventually polls: the proof of what is in memory may be late under load.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
