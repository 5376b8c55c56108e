package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"better/compute/apitoken"
	"better/compute/audit"
	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/console"
	"better/compute/graph"
	"better/compute/host"
	"better/compute/identity"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/embedded"
	"better/compute/model"
	"better/compute/pool"
	"better/compute/provider"
	"better/compute/provideraccount"
	"better/compute/resolvers"
	"better/compute/rest"
	"better/compute/secret"
	"better/compute/server"
)

// app is a whole server, wired and not yet started.
type app struct {
	config     config
	log        *slog.Logger
	secretDeps secret.Deps // without what the database has to be open for
	ca         *pki.CA     // nil where no agent is installed
	providers  *provider.Registry
	database   *embedded.Server // nil where the configuration names a database
	db         *postgres.DB
	decider    *authz.Decider
	hub        *event.Hub
	secrets    *secret.Service
	tokens     *apitoken.Service
	identity   *identity.Authenticator
	accounts   *provideraccount.Service
	pools      *pool.Service
	worker     *bootstrap.Worker // nil in a deployment that is not set up for bootstraps
	api        *server.Server
	agents     *http.Server // nil likewise

	apiListener   net.Listener
	agentListener net.Listener
	ready         readiness
}

// newApp opens what the server needs and wires it. What it opened is closed by close, also after an error.
func newApp(ctx context.Context, c config, log *slog.Logger) (*app, error) {
	a := &app{config: c, log: log}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *app) open(ctx context.Context) error {
	if err := os.MkdirAll(a.config.StateDir, 0o755); err != nil {
		return fmt.Errorf("stateDir: %w", err)
	}
	if err := a.loadKeys(); err != nil {
		return err
	}
	if err := a.registerDrivers(); err != nil {
		return err
	}
	if err := a.listen(ctx); err != nil {
		return err
	}
	if err := a.openDatabase(ctx); err != nil {
		return err
	}
	return a.wire()
}

// loadKeys reads the key files before anything is started, and says all that is wrong with them.
func (a *app) loadKeys() error {
	var err error
	var problems configError
	a.secretDeps, problems = a.config.Secrets.load()
	if b := a.config.Bootstrap; b != nil {
		a.ca, err = pki.Load(a.config.pkiDir())
		switch {
		case err != nil:
			problems = append(problems, "pki.dir: "+err.Error()+" (compute-api pki init makes one)")
		case a.ca.TrustDomain() != b.TrustDomain:
			problems = append(problems, fmt.Sprintf("bootstrap.trustDomain: is %q, and the authority in pki.dir is that of %q", b.TrustDomain, a.ca.TrustDomain()))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	if a.ca != nil {
		a.ca.Log = a.log
	}
	return nil
}

func (a *app) listen(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if a.apiListener, err = lc.Listen(ctx, "tcp", a.config.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if a.config.Bootstrap == nil {
		return nil
	}
	if a.agentListener, err = lc.Listen(ctx, "tcp", a.config.Agent.Listen); err != nil {
		return fmt.Errorf("agent.listen: %w", err)
	}
	if a.config.Bootstrap.AgentURL == "" {
		own := *a.config.Bootstrap
		own.AgentURL = "https://" + a.agentListener.Addr().String()
		a.config.Bootstrap = &own
	}
	return nil
}

func (a *app) openDatabase(ctx context.Context) (err error) {
	a.database, a.db, err = openDatabase(ctx, a.config, a.log)
	return err
}

// openDatabase opens the database of a configuration for a server; it starts an embedded one where none is named.
func openDatabase(ctx context.Context, c config, log *slog.Logger) (*embedded.Server, *postgres.DB, error) {
	options := postgres.Options{URL: c.Database.URL, MigrationsURL: c.Database.MigrationsURL, MaxConns: c.Database.MaxConns}
	if c.Database.URL != "" {
		db, err := openWith(ctx, options)
		return nil, db, err
	}
	own, err := embedded.Start(ctx, embedded.Options{StateDir: c.StateDir, Log: log})
	if err != nil {
		return nil, nil, err
	}
	options.URL, options.MigrationsURL = own.LoginURL(), own.URL()
	db, err := openWith(ctx, options)
	if err != nil {
		return nil, nil, errors.Join(err, own.Stop(context.WithoutCancel(ctx)))
	}
	return own, db, nil
}

func openWith(ctx context.Context, o postgres.Options) (*postgres.DB, error) {
	db, err := postgres.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return db, nil
}

func (a *app) wire() error {
	var err error
	if a.decider, err = authz.New(a.db, a.log); err != nil {
		return err
	}
	a.decider.Denials = a.config.Limits.denials(a.decider.Denials)
	a.db.ScopeBy(a.decider.Scope)
	a.hub = event.NewHub(a.db, a.log)
	cursors := cursor.NewSealer(a.db)
	a.secretDeps.DB, a.secretDeps.Authz = a.db, a.decider
	a.secrets = secret.New(a.secretDeps)
	a.accounts = provideraccount.New(provideraccount.Deps{
		DB: a.db, Authz: a.decider, Registry: a.providers, Secrets: a.secrets, Cursors: cursors, Log: a.log, Fault: faultPoint(),
	})
	a.pools = pool.New(pool.Deps{DB: a.db, Authz: a.decider, Cursors: cursors})
	a.tokens = apitoken.New(apitoken.Deps{DB: a.db, Authz: a.decider, Cursors: cursors, Log: a.log})
	metrics := prometheus.NewRegistry()
	meters, err := newMeters(metrics)
	if err != nil {
		return err
	}
	options := a.bootstrapOptions()
	deps := bootstrap.Deps{
		DB: a.db, Authz: a.decider, Log: a.log, Options: options, Accounts: a.accounts, Pools: a.pools,
		Cursors: cursors, Timing: a.config.timing(), OrdersPerHour: a.config.ordersPerHour(), Meter: meters,
	}
	rig(&deps)
	runs, err := bootstrap.New(deps)
	if err != nil {
		return err
	}
	metrics.MustRegister(newStanding(a.figures(runs), a.log))
	hosts := host.New(host.Deps{
		DB: a.db, Authz: a.decider, Cursors: cursors, CA: a.ca, MarkJoined: bootstrap.MarkJoined, MarkContested: bootstrap.MarkContested,
		MarkClockOff: bootstrap.MarkClockOff,
		Joined:       runs.CountJoin, Refused: meters.refused, Log: a.log, Heartbeat: a.config.Agent.Heartbeat,
	})
	if options != nil {
		reconciler := bootstrap.NewReconciler(deps)
		if a.worker, err = bootstrap.NewWorker(reconciler, a.config.Bootstrap.Workers); err != nil {
			return err
		}
		a.agents = host.NewServer(hosts, a.ca, agentBinaries(a.config.Bootstrap.AgentBinaries), a.log)
	}
	return a.wireServer(metrics, runs, hosts, audit.New(audit.Deps{DB: a.db, Authz: a.decider, Cursors: cursors}))
}

func (a *app) figures(runs *bootstrap.Service) func(context.Context) (*figures, error) {
	return func(ctx context.Context) (*figures, error) {
		standing, err := runs.Figures(ctx)
		if err != nil {
			return nil, err
		}
		unsealed, err := audit.Unsealed(ctx, a.db)
		return &figures{standing, unsealed}, err
	}
}

func (a *app) wireServer(metrics *prometheus.Registry, runs *bootstrap.Service, hosts *host.Service, log *audit.Service) (err error) {
	watcher := &bootstrap.Watcher{Runs: runs, Hub: a.hub}
	schema := graph.NewExecutableSchema(graph.Config{Resolvers: &resolvers.Resolver{
		Accounts: a.accounts, Bootstraps: runs, Hosts: hosts, Pools: a.pools, Secrets: a.secrets, Authz: a.decider,
		Tokens: a.tokens, Audit: log, Version: version,
		Watcher: watcher,
	}})
	shim := &rest.Service{
		Accounts: a.accounts, Bootstraps: runs, Log: a.log, BodyBytes: a.config.Limits.BodyBytes,
		Time: a.config.Limits.OperationTime, LiveTime: a.config.Limits.LiveOperationTime,
	}
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.identity, err = a.callers(metrics); err != nil {
		return err
	}
	pages, err := a.console()
	if err != nil {
		return err
	}
	a.api, err = server.New(server.Deps{
		Schema: schema, Authenticate: a.identity.Authenticate, REST: shim.Handler(), CallCost: rest.Cost, Console: pages,
		Ready: a.isReady, Metrics: metrics, Log: a.log, Config: a.config.serverConfig(), Belongs: a.belongs,
		AfterEnd: a.decider.AfterEnd,
	})
	if err == nil {
		watcher.Replay = a.api.ChargeReplay
	}
	return err
}

// console is nil in a binary that was built without it.
func (a *app) console() (http.Handler, error) {
	var options console.Options
	if o := a.config.Auth.OIDC; o != nil {
		options = console.Options{Issuer: o.Issuer, ClientID: o.ConsoleClientID}
	}
	return console.New(options)
}

// belongs says whether the caller has any right in the tenant. While that cannot be read, what it asks for counts for itself alone.
func (a *app) belongs(ctx context.Context, tenantID string) bool {
	scope, err := a.decider.Scope(ctx)
	return err == nil && scope.Contains(tenantID)
}

// registerDrivers makes a driver of each entry, and says all that is wrong with them.
func (a *app) registerDrivers() (err error) {
	var problems configError
	all := make([]provider.Driver, len(a.config.Providers))
	for i, entry := range a.config.Providers {
		if all[i], err = drivers()[entry.Name](entry); err != nil {
			problems = append(problems, fmt.Sprintf("providers[%d].%v", i, err))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	a.providers, err = provider.NewRegistry(all...)
	return err
}

// bootstrapOptions is nil without a bootstrap section: every bootstrap is then refused with INVALID_CONFIG.
func (a *app) bootstrapOptions() *bootstrap.Options {
	b := a.config.Bootstrap
	if b == nil {
		return nil
	}
	return &bootstrap.Options{
		JoinURL: b.AgentURL, CAPin: a.ca.Pin, TokenTTL: b.TokenTTL, AgentBinary: agentBinaries(b.AgentBinaries),
	}
}

// agentBinaries opens bcd-linux-<arch> in the directory.
func agentBinaries(dir string) func(arch string) (io.ReadCloser, error) {
	return func(arch string) (io.ReadCloser, error) {
		f, err := os.Open(filepath.Join(dir, "bcd-linux-"+filepath.Base(arch)))
		if err != nil {
			return nil, fmt.Errorf("opening the agent for %s: %w", arch, err)
		}
		return f, nil
	}
}

// run serves until ctx ends or a part fails, then stops the parts in an order that loses nothing: first the listeners, so that what
// is under way ends, then the workers, then the database.
func (a *app) run(ctx context.Context, started func(context.Context) error) error {
	defer func() {
		if err := a.close(); err != nil {
			a.log.ErrorContext(ctx, "stopping", "error", err)
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	// A server that drains decides, and feeds its streams, as before: until its last request is answered.
	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	defer served()
	group.Go(func() error {
		defer served()
		return a.api.Serve(ctx, a.apiListener)
	})
	group.Go(func() error {
		a.identity.Run(serving)
		return nil
	})
	group.Go(func() error {
		if err := a.prepareDatabase(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		group.Go(func() error { return a.decider.Run(serving) }) // until now decisions read the database, if there is one
		group.Go(func() error { return a.hub.Run(serving) })
		group.Go(func() error { return a.tokens.Run(serving) })
		return a.runBehindMigrations(ctx, started)
	})
	if a.agents != nil {
		group.Go(func() error { return serveAgents(ctx, a.agents, a.agentListener) })
	}
	if a.database != nil {
		group.Go(func() error { return a.keepDatabase(ctx) })
	}
	return group.Wait()
}

// runBehindMigrations is what reads tables by itself, and so waits until the database is there and its schema is up to date. It works
// for every tenant.
func (a *app) runBehindMigrations(ctx context.Context, started func(context.Context) error) error {
	group, ctx := errgroup.WithContext(postgres.WithScope(ctx, postgres.AllTenants()))
	group.Go(func() error { return a.prune(ctx) })
	group.Go(func() error { return audit.NewSealer(a.db, a.log).Run(ctx) })
	if a.worker != nil {
		group.Go(func() error { return a.work(ctx) })
	}
	group.Go(func() error {
		if err := started(ctx); err != nil {
			return err
		}
		a.ready.set()
		return nil
	})
	return group.Wait()
}

// prepareDatabase tries until the database is there: a server that is started before its database serves as soon as it comes.
func (a *app) prepareDatabase(ctx context.Context) error {
	for {
		err := postgres.Migrate(ctx, a.db)
		if err == nil {
			err = authz.EnsureBindings(postgres.WithScope(ctx, postgres.AllTenants()), a.db, a.config.bindings())
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if !isUnavailable(err) {
			return fmt.Errorf("preparing the database: %w", err)
		}
		a.log.WarnContext(ctx, "waiting for the database", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// work drives runs until ctx ends; steps that go on then get time to come to an end.
func (a *app) work(ctx context.Context) error {
	if err := a.worker.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := a.worker.Stop(grace); err != nil {
		return fmt.Errorf("stopping the job worker: %w", err)
	}
	return nil
}

// prune deletes old events once an hour.
func (a *app) prune(ctx context.Context) error {
	for {
		if err := event.Prune(ctx, a.db.DB); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "pruning events", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Hour):
		}
	}
}

// serveAgents serves until ctx ends, and returns when the requests that were under way are answered.
func serveAgents(ctx context.Context, s *http.Server, ln net.Listener) error {
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(grace); err != nil {
			_ = s.Close()
		}
	})
	if err := s.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serving agents: %w", err)
	}
	<-drained
	return nil
}

// keepDatabase starts the embedded database again when it ends by itself. Meanwhile requests are answered UNAVAILABLE, as with any
// database that is away.
func (a *app) keepDatabase(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.database.Done():
		}
		a.log.ErrorContext(ctx, "the embedded database ended by itself; starting it again")
		_ = a.database.Stop(ctx) // nothing runs any more; this gives back its lock
		again, err := embedded.Start(ctx, embedded.Options{StateDir: a.config.StateDir, Log: a.log})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if err != nil {
			return fmt.Errorf("starting the embedded database again: %w", err)
		}
		a.database = again
	}
}

func (a *app) close() error {
	var errs []error
	for _, ln := range []net.Listener{a.apiListener, a.agentListener} {
		if ln != nil {
			_ = ln.Close() // usually closed by its server already
		}
	}
	if a.accounts != nil {
		a.accounts.Close()
	}
	if a.db != nil {
		a.db.Close()
	}
	if a.database != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		errs = append(errs, a.database.Stop(ctx))
	}
	return errors.Join(errs...)
}

func (c *config) pkiDir() string {
	if c.PKI.Dir != "" {
		return c.PKI.Dir
	}
	return filepath.Join(c.StateDir, "pki")
}

func (c *config) staticTokens() []server.StaticToken {
	tokens := make([]server.StaticToken, len(c.Auth.Tokens))
	for i, t := range c.Auth.Tokens {
		groups := make([]authz.Subject, len(t.Groups))
		for j, g := range t.Groups {
			groups[j] = "group:" + strings.TrimPrefix(g, "group:")
		}
		tokens[i] = server.StaticToken{Token: t.Token, Subject: t.Subject, Groups: groups}
	}
	return tokens
}

func (c *config) bindings() []model.RoleBinding {
	bindings := make([]model.RoleBinding, len(c.Authz.Bindings))
	for i, b := range c.Authz.Bindings {
		bindings[i] = b.binding()
	}
	return bindings
}

func (c *config) serverConfig() server.Config {
	l := c.Limits
	return server.Config{
		Limits: server.Limits{
			BodyBytes: l.BodyBytes, DocumentBytes: l.DocumentBytes, Tokens: l.Tokens, Depth: l.Depth, Cost: l.Cost,
			RootFields: l.RootFields, Aliases: l.Aliases, AnswerBytes: l.AnswerBytes, OperationTime: l.OperationTime, LiveOperationTime: l.LiveOperationTime,
			InitTime: l.InitTime, DrainNotice: l.DrainNotice,
			SocketOperations: l.SocketOperations, SocketsPerSubject: l.SocketsPerSubject,
			StreamsPerSubject: l.StreamsPerSubject, StreamsPerTenant: l.StreamsPerTenant,
			OperationsPerSubject: cmp.Or(l.OperationsPerSubject, int(c.Database.MaxConns)/2),
			OperationsPerTenant:  cmp.Or(l.OperationsPerTenant, int(c.Database.MaxConns)*3/4), OperationWait: l.OperationWait,
			PointsPerSecond: l.PointsPerSecond, PointsAtMost: l.PointsAtMost,
			TenantPointsPerSecond: l.TenantPointsPerSecond, TenantPointsAtMost: l.TenantPointsAtMost,
		},
		Introspection: c.GraphQL.Introspection, Suggestions: c.GraphQL.Suggestions, GraphiQL: c.GraphQL.GraphiQL,
		AllowedOrigins: c.GraphQL.AllowedOrigins, PersistedOperations: c.GraphQL.PersistedOperations,
	}
}
