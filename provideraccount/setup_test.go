package provideraccount

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

const canary = "canary-5f1d"

// cloud is a driver whose answers a test scripts.
type cloud struct {
	manifest provider.Manifest

	mu     sync.Mutex
	opened []provider.Account
	closed int
	calls  int

	offers   func(ctx context.Context, a provider.Account) ([]*model.Offer, error)
	machines func(ctx context.Context, a provider.Account) ([]*model.Machine, error)
	check    func(ctx context.Context, a provider.Account) error
}

func newCloud(name string) *cloud {
	return &cloud{
		manifest: provider.Manifest{
			Name: name, DisplayName: name,
			ConfigSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{
				"apiToken":{"type":"string"}, "project":{"type":"string","maxLength":20}, "n":{"type":"number"}, "list":{"type":"array"}}}`),
			Capabilities: model.ProviderCapabilities{Offers: true, Machines: true, ClaimMode: model.ClaimToken},
		},
		offers:   func(context.Context, provider.Account) ([]*model.Offer, error) { return nil, nil },
		machines: func(context.Context, provider.Account) ([]*model.Machine, error) { return nil, nil },
		check:    func(context.Context, provider.Account) error { return nil },
	}
}

func (c *cloud) Manifest() provider.Manifest { return c.manifest }

func (c *cloud) Open(_ context.Context, a provider.Account) (provider.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ID != "" { // without an account a config is only tried
		c.opened = append(c.opened, a)
	}
	return &cloudClient{c, a}, nil
}

func (c *cloud) counts() (opened, closed, calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.opened), c.closed, c.calls
}

func (c *cloud) called() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
}

type cloudClient struct {
	c *cloud
	a provider.Account
}

func (c *cloudClient) Check(ctx context.Context) error {
	c.c.called()
	return c.c.check(ctx, c.a)
}

func (c *cloudClient) Offers(ctx context.Context) ([]*model.Offer, error) {
	c.c.called()
	return c.c.offers(ctx, c.a)
}

func (c *cloudClient) Machines(ctx context.Context) ([]*model.Machine, error) {
	c.c.called()
	return c.c.machines(ctx, c.a)
}

func (c *cloudClient) Close() error {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	if c.a.ID != "" {
		c.c.closed++
	}
	return nil
}

type bundle struct {
	*Service
	db    *postgres.DB
	cloud *cloud
}

// setup gives a service with the providers sim and other, and these callers: user:admin (tenant-admin of t1 and t2), user:manager and
// user:viewer (of t1), user:nobody.
func setup(t testing.TB) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{db: db, cloud: newCloud("sim")}
	b.Service = newService(t, db, b.cloud)
	b.bind(t,
		binding("user:admin", "tenant-admin", "compute-tenant/t1", model.Allow),
		binding("user:admin", "tenant-admin", "compute-tenant/t2", model.Allow),
		binding("user:manager", "provider-manager", "compute-tenant/t1", model.Allow),
		binding("user:viewer", "provider-viewer", "compute-tenant/t1", model.Allow),
	)
	return b
}

func newService(t testing.TB, db *postgres.DB, c *cloud) *Service {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	decider, err := authz.New(db, log)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := provider.NewRegistry(c, newCloud("other"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := secret.New(secret.Deps{DB: db, Authz: decider, EnvAllow: []string{"A"}, LookupEnv: func(string) (string, bool) {
		return canary, true
	}})
	s := New(Deps{DB: db, Authz: decider, Registry: registry, Secrets: secrets, Cursors: cursor.NewSealer(db), Log: log})
	t.Cleanup(s.Close)
	return s
}

// replica is another server process's service on the same database.
func (b *bundle) replica(t testing.TB) *bundle {
	t.Helper()
	c := newCloud("sim")
	return &bundle{Service: newService(t, b.db, c), db: b.db, cloud: c}
}

func binding(subject, role, object string, effect model.BindingEffect) model.RoleBinding {
	return model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: effect}
}

func (b *bundle) bind(t testing.TB, bindings ...model.RoleBinding) {
	t.Helper()
	if _, err := b.db.NewInsert().Model(&bindings).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := b.db.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) count(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := b.db.NewRaw(query, args...).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func as(ctx context.Context, subject string) context.Context {
	return authz.WithActor(ctx, authz.Actor{Subject: subject})
}

func admin(t testing.TB) context.Context {
	t.Helper()
	return as(t.Context(), "user:admin")
}

// create stores an account of t1.
func (b *bundle) create(t testing.TB, name string) *model.ProviderAccount {
	t.Helper()
	return b.createIn(t, "t1", name)
}

func (b *bundle) createIn(t testing.TB, tenantID, name string) *model.ProviderAccount {
	t.Helper()
	payload, err := b.Create(admin(t), model.CreateProviderAccountInput{TenantID: tenantID, Provider: "sim", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return payload.ProviderAccount
}

func wantCode(t testing.TB, err error, code problem.Code) *problem.Error {
	t.Helper()
	if !problem.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
	return problem.From(err)
}

// wantIssues also wants every issue to be there at once.
func wantIssues(t testing.TB, err error, paths ...string) {
	t.Helper()
	p := wantCode(t, err, problem.InvalidInput)
	got := []string{}
	for _, i := range p.Details["issues"].([]problem.Issue) {
		got = append(got, i.Path)
	}
	slices.Sort(got)
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		t.Errorf("issues at %q, want %q", got, paths)
	}
}
