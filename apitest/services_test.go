package apitest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/graph"
	"better/compute/host"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/pool"
	"better/compute/provider"
	"better/compute/provider/sim"
	"better/compute/provideraccount"
	"better/compute/resolvers"
	"better/compute/rest"
	"better/compute/secret"
	"better/compute/server"
)

// services are those of a server, in this process: for what needs thousands of calls or a look at the statements.
type services struct {
	db       *postgres.DB
	accounts *provideraccount.Service
	pools    *pool.Service
	runs     *bootstrap.Service
	api      *server.Server
	ctx      context.Context // with an administrator of the fleet as the caller
}

const (
	localToken  = "local-token"
	readerToken = "reader-token" // of user:reader, who has no role
)

// newServices registers the drivers; none of them is ever called.
func newServices(t *testing.T, drivers ...provider.Driver) *services {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &services{db: pgtest.New(t), ctx: authz.WithActor(t.Context(), authz.Actor{Subject: fleetAdmin})}
	decider, err := authz.New(s.db, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- decider.Run(ctx) }()
	t.Cleanup(func() { stop(); <-stopped })
	s.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES (?, 'fleet-admin', 'compute-fleet', 'allow')", fleetAdmin)
	registry, err := provider.NewRegistry(append(drivers, sim.New(sim.Options{Endpoint: "http://127.0.0.1:1"}))...)
	if err != nil {
		t.Fatal(err)
	}
	cursors := cursor.NewSealer(s.db)
	secrets := secret.New(secret.Deps{DB: s.db, Authz: decider})
	s.accounts = provideraccount.New(provideraccount.Deps{DB: s.db, Authz: decider, Registry: registry, Secrets: secrets, Cursors: cursors, Log: log})
	t.Cleanup(s.accounts.Close)
	s.pools = pool.New(pool.Deps{DB: s.db, Authz: decider, Cursors: cursors})
	s.runs, err = bootstrap.New(bootstrap.Deps{
		DB: s.db, Authz: decider, Accounts: s.accounts, Pools: s.pools, Cursors: cursors, Log: log,
		Options: &bootstrap.Options{AgentBinary: func(string) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.api, err = server.New(server.Deps{
		Schema: graph.NewExecutableSchema(graph.Config{Resolvers: &resolvers.Resolver{
			Accounts: s.accounts, Bootstraps: s.runs, Pools: s.pools, Secrets: secrets, Authz: decider,
			Hosts: host.New(host.Deps{DB: s.db, Authz: decider, Cursors: cursors, Log: log}),
		}}),
		Authenticate: server.StaticTokens([]server.StaticToken{{Token: localToken, Subject: fleetAdmin}, {Token: readerToken, Subject: "user:reader"}}), Log: log,
		REST: (&rest.Service{Accounts: s.accounts, Bootstraps: s.runs, Log: log}).Handler(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *services) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := s.db.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
