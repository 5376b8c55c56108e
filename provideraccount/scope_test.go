package provideraccount

import (
	"testing"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// As in a server, where a caller's connections see only tenants in which the caller has a right.
func TestWithinTheCallersScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.ScopeBy(b.authz.Scope)
	all := postgres.WithScope(t.Context(), postgres.AllTenants())
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "mine", IdempotencyKey: new("k")}
	created, err := b.Create(as(t.Context(), "user:manager"), in)
	if err != nil {
		t.Fatal(err)
	}
	account := created.ProviderAccount
	if _, err := b.db.NewRaw("DELETE FROM role_bindings WHERE subject = 'user:manager'").Exec(all); err != nil {
		t.Fatal(err)
	}

	again, err := b.Create(as(t.Context(), "user:manager"), in)
	if err != nil || !again.Replayed || again.ProviderAccount.ID != account.ID {
		t.Errorf("a repeat by who has no right any more: %v, %v", again, err)
	}
	other := in
	other.Name = "other"
	if _, err := b.Create(as(t.Context(), "user:manager"), other); !problem.Is(err, problem.Conflict) {
		t.Errorf("a repeat with another name: %v", err)
	}
	if _, err := b.Get(as(t.Context(), "user:manager"), GetInput{TenantID: "t1", AccountID: account.ID}); !problem.Is(err, problem.Forbidden) {
		t.Errorf("a read: %v", err)
	}

	// Who may do no more than this one item deletes it, and all bindings on it go with it.
	item := binding("user:item", "provider-manager", "compute-provider-account/"+account.ID, model.Allow)
	if _, err := b.db.NewInsert().Model(&item).Exec(all); err != nil {
		t.Fatal(err)
	}
	_, err = b.Delete(as(t.Context(), "user:item"), model.DeleteProviderAccountInput{TenantID: "t1", AccountID: account.ID})
	if err != nil {
		t.Fatal(err)
	}
	var left int
	err = b.db.NewRaw("SELECT count(*) FROM role_bindings WHERE object = ?", item.Object).Scan(all, &left)
	if err != nil || left != 0 {
		t.Errorf("%d bindings on it are left: %v", left, err)
	}
}
