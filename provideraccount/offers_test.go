package provideraccount

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/internal/slots"
	"better/compute/model"
	"better/compute/provider"
)

func offersOf(a *model.ProviderAccount) OffersInput {
	return OffersInput{TenantID: a.TenantID, AccountID: a.ID}
}

func TestOffersAreFilteredAndSorted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	priced := func(id, hourly string, kind model.MachineKind) *model.Offer {
		return &model.Offer{ID: id, Kind: kind, Price: &model.Price{Hourly: &hourly, Currency: "EUR"}}
	}
	b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) {
		return []*model.Offer{priced("c", "2", model.VPS), priced("b", "10", model.VPS), priced("a", "1", model.Metal), priced("d", "2.0", model.VPS)}, nil
	}
	in := offersOf(a)
	in.Query = &model.OfferQuery{Kind: new(model.VPS)}
	offers, err := b.Offers(as(t.Context(), "user:viewer"), in)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, o := range offers {
		got = append(got, o.ID)
	}
	if diff := cmp.Diff([]string{"c", "d", "b"}, got); diff != "" {
		t.Error(diff)
	}
	in.Query.MinGpus = new(1)
	if offers, err := b.Offers(as(t.Context(), "user:viewer"), in); err != nil || offers == nil || len(offers) != 0 {
		t.Errorf("none that fits: %v, %v", offers, err)
	}
}

func TestOffersChecks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	bad := OffersInput{TenantID: "!", AccountID: "!", Query: &model.OfferQuery{
		Kind: new(model.MachineKind("x")), Region: new("X"), GpuModel: new("A_100"), MinGpus: new(65), MinVcpu: new(1025), MinMemoryGiB: new(16385),
	}}
	_, err := b.Offers(t.Context(), bad)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Offers(as(t.Context(), "user:nobody"), bad)
	wantIssues(t, err, "tenantId", "accountId", "query.kind", "query.region", "query.gpuModel", "query.minGpus", "query.minVcpu", "query.minMemoryGiB")
	in := offersOf(a)
	in.Query = &model.OfferQuery{Region: new(""), GpuModel: new(strings.Repeat("a", 33)), MinGpus: new(-1), MinVcpu: new(-1), MinMemoryGiB: new(-1)}
	_, err = b.Offers(as(t.Context(), "user:nobody"), in)
	wantIssues(t, err, "query.region", "query.gpuModel", "query.minGpus", "query.minVcpu", "query.minMemoryGiB")
	in.Query = &model.OfferQuery{Region: new(strings.Repeat("a", 63)), GpuModel: new(strings.Repeat("a", 32)), MinGpus: new(64), MinVcpu: new(1024), MinMemoryGiB: new(16384)}
	_, err = b.Offers(as(t.Context(), "user:nobody"), in)
	wantCode(t, err, problem.Forbidden)
	if _, err = b.Offers(admin(t), in); err != nil {
		t.Error(err)
	}
	_, err = b.Offers(admin(t), OffersInput{TenantID: "t1", AccountID: id.New("pacct")})
	wantCode(t, err, problem.NotFound)
	_, err = b.Offers(admin(t), OffersInput{TenantID: "t2", AccountID: a.ID})
	wantCode(t, err, problem.NotFound)
	if _, _, calls := b.cloud.counts(); calls != 1 {
		t.Errorf("the provider was called %d times, want once", calls)
	}
}

func TestOffersUnsupported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cloud = newCloud("sim")
	b.cloud.manifest.Capabilities = model.ProviderCapabilities{}
	b.Service = newService(t, b.db, b.cloud)
	a := b.create(t, "main")
	_, err := b.Offers(admin(t), offersOf(a))
	p := wantCode(t, err, problem.Unsupported)
	if diff := cmp.Diff([]string{"offers"}, p.Details["missing"]); diff != "" {
		t.Error(diff)
	}
	_, err = b.Machines(admin(t), GetInput{"t1", a.ID})
	p = wantCode(t, err, problem.Unsupported)
	if diff := cmp.Diff([]string{"machines"}, p.Details["missing"]); diff != "" {
		t.Error(diff)
	}
}

func TestDriverThatIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.exec(t, `UPDATE provider_accounts SET provider = 'gone'`)
	_, err := b.Offers(admin(t), offersOf(a))
	wantCode(t, err, problem.InvalidConfig)
	_, err = b.Update(admin(t), update(a, `{}`))
	wantCode(t, err, problem.InvalidConfig)
	if _, err := b.Get(admin(t), GetInput{"t1", a.ID}); err != nil {
		t.Error(err)
	}
	if err := b.delete(admin(t), a); err != nil {
		t.Error(err)
	}
}

func TestMachines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.cloud.machines = func(context.Context, provider.Account) ([]*model.Machine, error) {
		return []*model.Machine{{ID: "b", Kind: model.VPS}, {ID: "a", Kind: model.Metal}}, nil
	}
	machines, err := b.Machines(as(t.Context(), "user:viewer"), GetInput{"t1", a.ID})
	if err != nil || len(machines) != 2 || machines[0].ID != "a" {
		t.Errorf("got %v, %v", machines, err)
	}
	b.cloud.machines = func(context.Context, provider.Account) ([]*model.Machine, error) {
		return []*model.Machine{{ID: "<b>", Kind: model.VPS}}, nil
	}
	_, err = b.Machines(admin(t), GetInput{"t1", a.ID})
	if p := wantCode(t, err, problem.ProviderError); p.Details["reason"] != "invalid_response" {
		t.Error(p.Details)
	}
}

func TestProviderErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	for reason, failure := range map[string]error{
		"rate_limited": provider.Errorf(provider.RateLimited, "Slow down."),
		"unavailable":  errors.New("dial tcp: " + canary),
		"timeout":      context.DeadlineExceeded,
	} {
		b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) { return nil, failure }
		_, err := b.Offers(admin(t), offersOf(a))
		p := wantCode(t, err, problem.ProviderError)
		if p.Details["reason"] != reason || p.Details["provider"] != "sim" || strings.Contains(p.Message, canary) {
			t.Errorf("%s: %v %v", reason, p.Message, p.Details)
		}
	}
}

func TestSecretsAreResolvedAtTheCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.cloud.offers = func(ctx context.Context, a provider.Account) ([]*model.Offer, error) {
		token, err := a.Secret(ctx, "env://A")
		if err != nil || token != canary {
			t.Errorf("got %q, %v", token, err)
		}
		_, err = a.Secret(ctx, "secret://none")
		return nil, err
	}
	_, err := b.Offers(admin(t), offersOf(a))
	if p := wantCode(t, err, problem.ProviderError); p.Details["reason"] != "secret_unresolved" || p.Details["retryable"] != false {
		t.Error(p.Details)
	}
}

// TestRefusedCredentialsStopCalls lets the provider refuse once; it must not be asked again before somebody does something.
func TestRefusedCredentialsStopCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, innocent := b.create(t, "main"), b.create(t, "innocent")
	refusing := true
	refuse := func() error {
		if refusing {
			return provider.Errorf(provider.Auth, "The token is not valid.")
		}
		return nil
	}
	b.cloud.offers = func(_ context.Context, asked provider.Account) ([]*model.Offer, error) {
		if asked.ID == innocent.ID {
			return nil, nil
		}
		return nil, refuse()
	}
	b.cloud.check = func(context.Context, provider.Account) error { return refuse() }
	wantCredentials := func(calls int) {
		t.Helper()
		_, err := b.Offers(admin(t), offersOf(a))
		if p := wantCode(t, err, problem.ProviderError); p.Details["reason"] != "credentials" {
			t.Error(p.Details)
		}
		if _, _, got := b.cloud.counts(); got != calls {
			t.Errorf("%d calls, want %d", got, calls)
		}
	}
	wantCredentials(1)
	wantCredentials(1)
	if _, err := b.Machines(admin(t), GetInput{"t1", a.ID}); err == nil {
		t.Error("another method is let through")
	}
	client, err := b.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Machines(t.Context()); provider.ClassOf(err) != provider.Auth {
		t.Errorf("a client that another service opened: %v", err)
	}
	if _, err := b.Offers(admin(t), offersOf(innocent)); err != nil {
		t.Errorf("another account: %v", err)
	}
	wantCredentials(2) // only the innocent one's

	check := func() *model.ProviderAccountCheck {
		t.Helper()
		checked, err := b.Check(admin(t), model.CheckProviderAccountInput{TenantID: "t1", AccountID: a.ID})
		if err != nil {
			t.Fatal(err)
		}
		return checked.Check
	}
	if c := check(); c.OK || *c.Reason != "credentials" {
		t.Errorf("a check while it refuses: %+v", c)
	}
	wantCredentials(3)
	refusing = false
	if c := check(); !c.OK || c.Reason != nil || c.Message != "" {
		t.Errorf("a check when it does not: %+v", c)
	}
	if _, err := b.Offers(admin(t), offersOf(a)); err != nil {
		t.Errorf("after a check that passed: %v", err)
	}

	refusing = true
	_, _ = b.Offers(admin(t), offersOf(a))
	refusing = false
	if _, err := b.Update(admin(t), update(a, `{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Offers(admin(t), offersOf(a)); err != nil {
		t.Errorf("after an update: %v", err)
	}
}

// TestCallsAreLimited holds the calls open and counts how many get through.
func TestCallsAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deadline = time.Minute
	accounts := []*model.ProviderAccount{}
	b.bind(t,
		binding("user:admin", "tenant-admin", "compute-tenant/t3", model.Allow),
		binding("user:admin", "tenant-admin", "compute-tenant/t4", model.Allow),
	)
	for name, tenant := range []string{"t1", "t1", "t3", "t3", "t4", "t4"} {
		accounts = append(accounts, b.createIn(t, tenant, strconv.Itoa(name)))
	}
	let, arrived := make(chan struct{}), make(chan string, 100)
	var inside, most atomic.Int64
	b.cloud.offers = func(_ context.Context, a provider.Account) ([]*model.Offer, error) {
		n := inside.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		arrived <- a.ID
		<-let
		inside.Add(-1)
		return nil, nil
	}
	done := make(chan error, 100)
	ask := func(a *model.ProviderAccount, n int) {
		for range n {
			go func() {
				_, err := b.Offers(admin(t), offersOf(a))
				done <- err
			}()
		}
	}
	ask(accounts[0], 10)
	for range callsPerAccount {
		if got := <-arrived; got != accounts[0].ID {
			t.Fatal("another account")
		}
	}
	ask(accounts[1], 10)
	if got := <-arrived; got != accounts[1].ID {
		t.Fatal("another account")
	}
	for _, a := range accounts[2:] { // the two accounts above have all the places of their tenant
		ask(a, 10)
	}
	for range callsPerProvider - callsPerTenant {
		if got := <-arrived; got == accounts[0].ID || got == accounts[1].ID {
			t.Error("a tenant has more places than there are for one")
		}
	}
	other := createOther(t, b)
	if _, err := b.Offers(admin(t), offersOf(other)); err != nil {
		t.Errorf("a provider that hangs holds up another: %v", err)
	}
	close(let)
	for range 10 * len(accounts) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != callsPerProvider {
		t.Errorf("%d calls at once", most.Load())
	}
	for _, key := range []slots.Key{{Level: perAccount, Name: accounts[0].ID}, {Level: perTenant, Name: "t1"}, {Level: perProvider, Name: accounts[0].Provider}, {Level: perReplica}} {
		if n := b.calls.Users(key); n != 0 {
			t.Errorf("%d slots of %v are not given back", n, key)
		}
	}
}

func createOther(t *testing.T, b *bundle) *model.ProviderAccount {
	t.Helper()
	created, err := b.Create(admin(t), model.CreateProviderAccountInput{TenantID: "t2", Provider: "other", Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	return created.ProviderAccount
}

func TestCallsThatWaitTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deadline = time.Minute
	a := b.create(t, "main")
	let, entered, done := make(chan struct{}), make(chan struct{}), make(chan error)
	b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) {
		entered <- struct{}{}
		<-let
		return nil, nil
	}
	for range callsPerAccount {
		go func() {
			_, err := b.Offers(admin(t), offersOf(a))
			done <- err
		}()
		<-entered
	}
	b.deadline = time.Millisecond
	_, err := b.Offers(admin(t), offersOf(a))
	if p := wantCode(t, err, problem.RateLimited); p.Details["retryAfterSeconds"] != 1 {
		t.Errorf("details %v do not say when to come again", p.Details)
	}
	close(let)
	for range callsPerAccount {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// What a provider told slowly is not told to a caller whose right was taken away meanwhile.
func TestARightThatGoesDuringACall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.bind(t, binding("user:leaver", "provider-viewer", "compute-tenant/t1", model.Allow))
	leave := func() {
		_, err := b.db.NewRaw("DELETE FROM role_bindings WHERE subject = 'user:leaver'").Exec(postgres.WithScope(context.Background(), postgres.AllTenants()))
		if err != nil {
			t.Error(err)
		}
	}
	b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) { leave(); return nil, nil }
	offers, err := b.Offers(as(t.Context(), "user:leaver"), offersOf(a))
	if wantCode(t, err, problem.Forbidden); offers != nil {
		t.Error("it is told all the same")
	}
}

func TestCallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deadline = 5 * time.Second
	a := b.create(t, "main")
	b.cloud.offers = func(ctx context.Context, _ provider.Account) ([]*model.Offer, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, err := b.Offers(admin(t), offersOf(a))
	if p := wantCode(t, err, problem.ProviderError); p.Details["reason"] != "timeout" {
		t.Error(p.Details)
	}
}
