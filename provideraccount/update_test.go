package provideraccount

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

var t0 = time.Unix(0, 0)

func update(a *model.ProviderAccount, config string) model.UpdateProviderAccountInput {
	return model.UpdateProviderAccountInput{TenantID: a.TenantID, AccountID: a.ID, Config: model.JSON(config)}
}

func TestUpdateReplacesTheConfig(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	for i, c := range [][2]string{{`{"project":"x","n":1.0}`, `{"n": 1.0, "project": "x"}`}, {`{"apiToken":"env://A"}`, `{"apiToken": "env://A"}`}, {``, `{}`}} {
		updated, err := b.Update(as(t.Context(), "user:manager"), update(a, c[0]))
		if err != nil {
			t.Fatal(err)
		}
		got := updated.ProviderAccount
		if got.Version != int64(i+2) || string(got.Config) != c[1] || got.Name != a.Name || got.Provider != a.Provider ||
			!got.CreatedAt.Equal(a.CreatedAt.Time) || !got.UpdatedAt.After(a.UpdatedAt.Time) {
			t.Errorf("%s: got %+v", c[0], got)
		}
		read, err := b.Get(admin(t), GetInput{"t1", a.ID})
		if diff := cmp.Diff(got, read); diff != "" || err != nil {
			t.Error("get differs from update", err, diff)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, foreign := b.create(t, "main"), b.createIn(t, "t2", "main")
	bad := model.UpdateProviderAccountInput{TenantID: "!", AccountID: "!", IfVersion: new(0), Config: model.JSON(`[]`)}
	_, err := b.Update(t.Context(), bad)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Update(as(t.Context(), "user:nobody"), bad)
	wantIssues(t, err, "tenantId", "accountId", "ifVersion")
	_, err = b.Update(as(t.Context(), "user:viewer"), update(a, `[]`))
	wantCode(t, err, problem.Forbidden)
	for _, accountID := range []string{id.New("pacct"), foreign.ID} {
		_, err = b.Update(admin(t), model.UpdateProviderAccountInput{TenantID: "t1", AccountID: accountID, Config: model.JSON(`[]`)})
		wantCode(t, err, problem.NotFound)
	}
	_, err = b.Update(admin(t), update(a, `{"apiToken":"`+canary+`","x":1}`))
	wantIssues(t, err, "/apiToken", "/x")
	in := update(a, `{}`)
	in.IfVersion = new(2)
	_, err = b.Update(admin(t), in)
	wantCode(t, err, problem.Conflict)
	if got, err := b.Get(admin(t), GetInput{"t1", a.ID}); err != nil || got.Version != 1 {
		t.Errorf("a refused update counts: %+v, %v", got, err)
	}
	in.IfVersion = new(1)
	if _, err := b.Update(admin(t), in); err != nil {
		t.Error(err)
	}
}

// Who may manage one account does not get at another's secret by naming it.
func TestUpdateWithAnothersSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.bind(t, binding("user:one", "provider-manager", "compute-provider-account/"+a.ID, model.Allow))
	one := as(t.Context(), "user:one")
	for _, reference := range []string{"secret://others", "env://A"} {
		_, err := b.Update(one, update(a, `{"apiToken":"`+reference+`"}`))
		wantCode(t, err, problem.Forbidden)
		for _, caller := range []context.Context{admin(t), one} { // whom it was given by, and then keeps
			if _, err := b.Update(caller, update(a, `{"apiToken":"`+reference+`","project":"x"}`)); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Update(one, update(a, `{"project":"x"}`)); err != nil {
			t.Error(err)
		}
		_, err = b.Update(one, update(a, `{"apiToken":"`+reference+`"}`))
		wantCode(t, err, problem.Forbidden)
	}
}

func TestEqualUpdatesAtOnceEachCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	services := []*bundle{b, b.replica(t)}
	a := b.create(t, "main")
	const n = 64
	versions := make([]int64, n)
	run(n, func(i int) {
		updated, err := services[i%2].Update(admin(t), update(a, `{"project":"x"}`))
		if err != nil {
			t.Errorf("update: %v", err)
			return
		}
		versions[i] = updated.ProviderAccount.Version
	})
	seen := map[int64]bool{}
	for _, v := range versions {
		seen[v] = true
	}
	got, err := b.Get(admin(t), GetInput{"t1", a.ID})
	if err != nil || got.Version != n+1 || len(seen) != n {
		t.Errorf("version %d after %d updates, %d different answers, %v", got.Version, n, len(seen), err)
	}
}

func TestIfVersionLetsOneThrough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	errs := make([]error, 16)
	run(len(errs), func(i int) {
		in := update(a, `{"project":"x"}`)
		in.IfVersion = new(1)
		_, errs[i] = b.Update(admin(t), in)
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantCode(t, err, problem.Conflict)
		}
	}
	if won != 1 {
		t.Errorf("%d updates passed", won)
	}
}

// TestNextCallUsesTheNewConfig asks the provider through two replicas after each update.
func TestNextCallUsesTheNewConfig(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.replica(t)
	a := b.create(t, "main")
	for _, r := range []*bundle{b, other} {
		r.cloud.offers = func(_ context.Context, a provider.Account) ([]*model.Offer, error) {
			return []*model.Offer{{ID: "x", Kind: model.VPS, Name: string(a.Config)}}, nil
		}
	}
	for _, config := range []string{`{"project": "1"}`, `{"project": "2"}`, `{"project": "3"}`} {
		if _, err := b.Update(admin(t), update(a, config)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, r := range []*bundle{b, other} {
				offers, err := r.Offers(admin(t), OffersInput{TenantID: "t1", AccountID: a.ID})
				if err != nil || offers[0].Name != config {
					t.Fatalf("after the update to %s: %v, %v", config, offers, err)
				}
			}
		}
	}
	for _, r := range []*bundle{b, other} {
		if opened, closed, _ := r.cloud.counts(); opened != 3 || closed != 2 {
			t.Errorf("%d clients were opened and %d closed, want one for each version", opened, closed)
		}
	}
}

// TestSameIDBornAgain has an account deleted and made again under its key, so that id and version are as before.
func TestSameIDBornAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.replica(t)
	b.cloud.offers = func(_ context.Context, a provider.Account) ([]*model.Offer, error) {
		return []*model.Offer{{ID: "x", Kind: model.VPS, Name: string(a.Config)}}, nil
	}
	for _, config := range []string{`{"project": "1"}`, `{"project": "2"}`} {
		created, err := b.Create(admin(t), model.CreateProviderAccountInput{
			TenantID: "t1", Provider: "sim", Name: "main", Config: model.JSON(config), IdempotencyKey: new("k"),
		})
		if err != nil {
			t.Fatal(err)
		}
		a := created.ProviderAccount
		offers, err := b.Offers(admin(t), OffersInput{TenantID: "t1", AccountID: a.ID})
		if err != nil || offers[0].Name != config {
			t.Fatalf("%s: %v, %v", config, offers, err)
		}
		if _, err := other.Delete(admin(t), model.DeleteProviderAccountInput{TenantID: "t1", AccountID: a.ID}); err != nil {
			t.Fatal(err)
		}
	}
}
