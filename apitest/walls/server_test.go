package walls

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/apitoken"
	"better/compute/audit"
	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/graph"
	"better/compute/host"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
	"better/compute/pool"
	"better/compute/provider"
	"better/compute/provider/sim"
	"better/compute/provider/sim/cloud"
	"better/compute/provideraccount"
	"better/compute/resolvers"
	"better/compute/rest"
	"better/compute/secret"
	"better/compute/server"
)

// edge is a server in this process, on the database of a world.
type edge struct {
	handler http.Handler
	url     string // of the same, for streams
	client  *http.Client
	schema  *ast.Schema
}

// many is a limit that nothing here meets: what is under test is not the limits.
const many = 1 << 30

func newEdge(t *testing.T, w *world) *edge {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	decider, err := authz.New(w.db, log)
	must(t, err)
	decider.Denials = authz.DenialLimits{PerSecond: many, AtMost: many}
	w.db.ScopeBy(decider.Scope)
	inBackground(t, decider.Run)
	hub := event.NewHub(w.db, log)
	inBackground(t, hub.Run)

	registry, err := provider.NewRegistry(sim.New(sim.Options{Endpoint: startCloud(t)}))
	must(t, err)
	cursors := cursor.NewSealer(w.db)
	secrets := secret.New(secret.Deps{DB: w.db, Authz: decider, Key: newKey(t)})
	accounts := provideraccount.New(provideraccount.Deps{DB: w.db, Authz: decider, Registry: registry, Secrets: secrets, Cursors: cursors, Log: log})
	t.Cleanup(accounts.Close)
	pools := pool.New(pool.Deps{DB: w.db, Authz: decider, Cursors: cursors})
	runs, err := bootstrap.New(bootstrap.Deps{
		DB: w.db, Authz: decider, Accounts: accounts, Pools: pools, Cursors: cursors, Log: log,
		Options: &bootstrap.Options{AgentBinary: func(string) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }},
	})
	must(t, err)
	schema := graph.NewExecutableSchema(graph.Config{Resolvers: &resolvers.Resolver{
		Accounts: accounts, Bootstraps: runs, Pools: pools, Secrets: secrets, Authz: decider,
		Hosts:   host.New(host.Deps{DB: w.db, Authz: decider, Cursors: cursors, MarkJoined: bootstrap.MarkJoined, MarkContested: bootstrap.MarkContested, Log: log}),
		Tokens:  apitoken.New(apitoken.Deps{DB: w.db, Authz: decider, Cursors: cursors, Log: log}),
		Audit:   audit.New(audit.Deps{DB: w.db, Authz: decider, Cursors: cursors}),
		Watcher: &bootstrap.Watcher{Runs: runs, Hub: hub},
	}})
	var tokens []server.StaticToken
	for token, subject := range w.static() {
		tokens = append(tokens, server.StaticToken{Token: token, Subject: subject, Groups: groupsOf(subject)})
	}
	api, err := server.New(server.Deps{
		Schema: schema, Authenticate: server.StaticTokens(tokens), Log: log,
		REST: (&rest.Service{Accounts: accounts, Bootstraps: runs, Log: log}).Handler(),
		Belongs: func(ctx context.Context, tenantID string) bool {
			scope, err := decider.Scope(ctx)
			return err == nil && scope.Contains(tenantID)
		},
		Config: server.Config{Introspection: true, Suggestions: true, Limits: server.Limits{
			BodyBytes: many, DocumentBytes: many, Tokens: many, Depth: many, Cost: many, RootFields: many, Aliases: many, PointsPerSecond: many, PointsAtMost: many,
			TenantPointsPerSecond: many, TenantPointsAtMost: many, StreamsPerSubject: many, OperationsPerSubject: many, OperationsPerTenant: many, OperationTime: time.Minute, LiveOperationTime: time.Minute,
		}},
	})
	must(t, err)
	e := &edge{handler: api.Handler(), schema: schema.Schema()}
	listening := httptest.NewServer(e.handler)
	t.Cleanup(listening.Close)
	e.url, e.client = listening.URL, listening.Client()
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inBackground(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func startCloud(t *testing.T) string {
	t.Helper()
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir()})
	must(t, err)
	s := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL
}

func newKey(t *testing.T) *secret.Key {
	t.Helper()
	bytes := make([]byte, 32)
	_, _ = rand.Read(bytes) // never fails
	path := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(path, bytes, 0o600))
	key, err := secret.LoadKey(path)
	must(t, err)
	return key
}
