package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/authz"
	"better/compute/graph"
	"better/compute/internal/leaktest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The tokens of the fixture.
const (
	tokenAlice = "alice-token"
	tokenBob   = "bob-token"
	tokenShort = "short-token" // of a credential that ends soon

	tokenService = "token-of-" // and the name of a service of the tenant "alice-1"

	tokenNoProvider = "unknowable-token" // of a credential that nobody can check now
)

// world is a server on a free port over the real schema, with resolvers that do what their arguments say.
type world struct {
	*Server
	url           string
	subscriptions *streams
	slow          *atomic.Int64 // calls of Pool that wait for their context
	mutations     *atomic.Int64 // that were executed
	held, live    *stage        // what is read of our own, and of a provider
	log           *logBuffer
	written       chan error // what writing the large answer came to
	close         func()     // ends Serve and gives its error to served
	served        chan error
	lifeShort     time.Duration
	notReady      error
	revoked       chan struct{} // closed once alice's credential is taken back
}

// stage holds those who come until they are let go, and knows how many there were at a time.
type stage struct {
	mu        sync.Mutex
	now, most int
	let       chan struct{}
}

func newStage() *stage { return &stage{let: make(chan struct{})} }

func (s *stage) enter(ctx context.Context) error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	select {
	case <-s.let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stage) counts() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.most
}

// streams counts the subscriptions that are running.
type streams struct {
	mu   sync.Mutex
	open int
	ends chan struct{}
}

// setupMetered is a setup in which no points come back, however long the test takes.
func setupMetered(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := setup(t, change)
	w.quota.meter.now = func() time.Time { return time.Time{} }
	return w
}

func setup(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	config := Config{Introspection: true, GraphiQL: true, AllowedOrigins: []string{"https://console.example.com"}}
	for _, c := range change {
		c(&config)
	}
	w := &world{held: newStage(), live: newStage(), subscriptions: &streams{ends: make(chan struct{}, 1000)}, slow: &atomic.Int64{}, mutations: &atomic.Int64{}, log: &logBuffer{}, served: make(chan error, 1), written: make(chan error, 1), lifeShort: 2 * time.Second, revoked: make(chan struct{})}
	srv, err := New(Deps{
		Schema:       graph.NewExecutableSchema(graph.Config{Resolvers: root{streams: w.subscriptions, slow: w.slow, mutations: w.mutations, held: w.held, live: w.live}}),
		Authenticate: w.authenticate,
		REST: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/compute/panic" {
				panic("secret-in-panic")
			}
			if r.URL.Path == "/api/compute/large" {
				_, err := rw.Write(make([]byte, 64<<20)) // more than the system holds for a connection
				w.written <- err
				return
			}
			if r.URL.Path == "/api/compute/huge" {
				_, _ = io.WriteString(rw, huge())
				return
			}
			if r.URL.Path == "/api/compute/held" {
				_ = w.held.enter(r.Context())
			}
			if r.URL.Path == "/api/compute/live" {
				_ = w.live.enter(r.Context())
			}
			actor, _ := authz.ActorFrom(r.Context())
			data, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(rw, "%s %s %d", actor.Subject, r.URL.Path, len(data))
		}),
		CallCost: func(path string) (int, bool) { return 1, path == "/api/compute/live" },
		Belongs:  belongs,
		AfterEnd: func(ctx context.Context, actor authz.Actor, fn func()) {
			if actor.Subject != "user:alice" {
				return
			}
			go func() {
				select {
				case <-ctx.Done():
				case <-w.revoked:
					fn()
				}
			}()
		},
		Ready:  func(context.Context) error { return w.notReady },
		Log:    slog.New(slog.NewJSONHandler(w.log, nil)),
		Config: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Server = srv
	ts := httptest.NewUnstartedServer(nil)
	w.url = "http://" + ts.Listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	w.close = sync.OnceFunc(cancel)
	go func() { w.served <- srv.Serve(ctx, ts.Listener); close(w.served) }()
	t.Cleanup(func() {
		w.close()
		for err := range w.served {
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return w
}

// belongs gives both callers a right in the tenant "shared", and alice alone in those that begin with "alice".
func belongs(ctx context.Context, tenant string) bool {
	actor, _ := authz.ActorFrom(ctx)
	return tenant == "shared" || (actor.Subject == "user:alice" && strings.HasPrefix(tenant, "alice"))
}

func (w *world) authenticate(ctx context.Context, token string) (authz.Actor, error) {
	switch token {
	case tokenNoProvider:
		return authz.Actor{}, problem.New(problem.Unavailable, "The identity provider does not answer.")
	case tokenShort:
		return authz.Actor{Subject: "user:short", Expires: time.Now().Add(w.lifeShort)}, nil
	}
	if service, ok := strings.CutPrefix(token, tokenService); ok {
		return authz.Actor{Subject: "service:alice-1/" + service}, nil
	}
	return StaticTokens([]StaticToken{{Token: tokenAlice, Subject: "user:alice"}, {Token: tokenBob, Subject: "user:bob"}})(ctx, token)
}

// logBuffer keeps the log for tests that look into it.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// root resolves a few fields of the real schema; any other is a nil call, which the tests do not make except to see a panic.
type root struct {
	graph.ResolverRoot
	streams   *streams
	slow      *atomic.Int64
	mutations *atomic.Int64

	held, live *stage
}

func (r root) Query() graph.QueryResolver               { return query{slow: r.slow, held: r.held, live: r.live} }
func (r root) Bootstrap() graph.BootstrapResolver       { return bootstrap{held: r.held} }
func (r root) Mutation() graph.MutationResolver         { return mutation{executed: r.mutations} }
func (r root) Subscription() graph.SubscriptionResolver { return subscription{r.streams} }

type query struct {
	graph.QueryResolver
	slow       *atomic.Int64
	held, live *stage
}

type bootstrap struct {
	graph.BootstrapResolver
	held *stage
}

func (b bootstrap) Account(ctx context.Context, of []*model.Bootstrap) ([]*model.ProviderAccount, error) {
	accounts := make([]*model.ProviderAccount, len(of))
	if of[0].TenantID == "held" {
		return accounts, b.held.enter(ctx)
	}
	return accounts, nil
}

func (query) Viewer(ctx context.Context) (*model.Viewer, error) {
	actor, _ := authz.ActorFrom(ctx)
	return &model.Viewer{Subject: actor.Subject, Groups: []string{}}, nil
}

// Pool fails in the way that the tenant's name says, and takes its time when it is called so.
func (q query) Pool(ctx context.Context, tenantID, poolID string) (*model.Pool, error) {
	if poolID == "held" {
		return nil, q.held.enter(ctx)
	}
	if poolID == "huge" {
		return &model.Pool{ID: poolID, Name: huge()}, nil
	}
	switch tenantID {
	case "panic":
		panic("secret-in-panic")
	case "broken":
		return nil, errors.New("secret-in-error")
	case "slow":
		q.slow.Add(1)
		<-ctx.Done()
		return nil, fmt.Errorf("reading: %w", ctx.Err())
	case "taken":
		return nil, fmt.Errorf("wrapped: %w", problem.New(problem.Conflict, "The name is taken.").With("name", "x"))
	}
	return nil, nil
}

// Node gives a pool of the tenant that the id names.
func (query) Node(_ context.Context, id string) (model.Node, error) {
	return &model.Pool{ID: id, TenantID: strings.TrimPrefix(id, "pool_")}, nil
}

func (q query) Offers(ctx context.Context, _, accountID string, _ *model.OfferQuery) ([]*model.Offer, error) {
	if accountID == "held" {
		return nil, q.live.enter(ctx)
	}
	return []*model.Offer{}, nil
}

type mutation struct {
	graph.MutationResolver
	executed *atomic.Int64
}

func (m mutation) ArchivePool(context.Context, model.ArchivePoolInput) (*model.ArchivePoolPayload, error) {
	m.executed.Add(1)
	return nil, problem.New(problem.Forbidden, "No.")
}

type subscription struct{ streams *streams }

// BootstrapStatusChanged sends as many changes as after says; without after it sends one and waits for its context.
func (s subscription) BootstrapStatusChanged(ctx context.Context, tenantID string, _, bootstrapID, after *string) (<-chan *model.BootstrapStatusChange, error) {
	if tenantID == "denied" {
		return nil, problem.New(problem.Forbidden, "No.")
	}
	s.streams.mu.Lock()
	s.streams.open++
	s.streams.mu.Unlock()
	out := make(chan *model.BootstrapStatusChange)
	cursor := ""
	if tenantID == "large" {
		cursor = strings.Repeat("x", 100_000)
	}
	if bootstrapID != nil && *bootstrapID == "huge" {
		cursor = huge()
	}
	go s.emit(ctx, tenantID, cursor, after, out)
	return out, nil
}

func (s subscription) emit(ctx context.Context, tenantID, cursor string, after *string, out chan<- *model.BootstrapStatusChange) {
	defer func() {
		close(out)
		s.streams.mu.Lock()
		s.streams.open--
		s.streams.mu.Unlock()
		select {
		case s.streams.ends <- struct{}{}:
		default: // nobody waits for so many
		}
	}()
	count := 1
	if after != nil {
		count, _ = strconv.Atoi(*after)
	}
	for i := range count {
		change := &model.BootstrapStatusChange{Cursor: cmp.Or(cursor, strconv.Itoa(i))}
		change.Bootstrap = &model.Bootstrap{ID: "b", TenantID: tenantID}
		select {
		case out <- change:
		case <-ctx.Done():
			return
		}
	}
	if tenantID == "lagging" {
		graphql.AddError(ctx, problem.New(problem.RateLimited, "The subscriber does not keep up."))
		return
	}
	if after == nil {
		<-ctx.Done()
	}
}

// huge is more than the system holds for a connection of which nothing is read.
func huge() string { return strings.Repeat("x", hugeBytes) }

const hugeBytes = 16 << 20

// watch is a subscription document; a count of -1 streams until it is stopped.
func watch(tenant string, count int) string {
	after := ""
	if count >= 0 {
		after = fmt.Sprintf(`, after: "%d"`, count)
	}
	return fmt.Sprintf(`subscription { bootstrapStatusChanged(tenantId: "%s"%s) { cursor } }`, tenant, after)
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
