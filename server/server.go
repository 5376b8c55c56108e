// Package server owns the edge that callers meet: routes, authentication, the GraphQL transports and limits, health, metrics and
// an orderly end.
//
// It refuses to know any noun: the schema is executed, the REST interface and the console are mounted, as they are given. The
// invariant: whatever a caller sends costs a bounded amount of CPU, memory, time and goroutines, and nothing of it runs before the
// caller is known.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"better/compute/authz"
	"better/compute/internal/problem"
)

const (
	graphqlPath = "/graphql"
	restPath    = "/api/compute"

	// lastWords is how long before the end of the drain time requests are ended, so that their callers hear a code.
	lastWords = time.Second
)

// Deps is what the server puts behind its routes. Schema, Authenticate and Log must be there.
type Deps struct {
	Schema       graphql.ExecutableSchema
	Authenticate Authenticator
	REST         http.Handler // under /api/compute, with the actor in the context
	// CallCost is what a REST call takes in points, and whether it waits for a provider; nil: one each, and none does.
	CallCost func(path string) (points int, live bool)
	Console  http.Handler                    // at / and below, with a content policy of its own; nil: a page that says what this is
	Ready    func(ctx context.Context) error // whether requests can be served now
	Metrics  *prometheus.Registry            // what /metrics shows, and where the server's own go
	// Belongs says whether the caller of the context has any right in the tenant: only then does what it asks for count against the
	// tenant's limits. Without it only callers have limits.
	Belongs func(ctx context.Context, tenantID string) bool
	// AfterEnd calls fn once the actor's credential was taken back, unless ctx ends first. Without it a WebSocket on which nothing runs
	// stays open until its credential expires.
	AfterEnd func(ctx context.Context, actor authz.Actor, fn func())
	Log      *slog.Logger
	Config   Config
}

// Server is the edge. Its zero value is not usable, see New.
type Server struct {
	deps      Deps
	config    Config
	log       *slog.Logger
	presenter presenter
	metrics   *metrics
	engine    *engine
	quota     *quota
	now       func() time.Time

	ready   *shared[struct{}]
	figures *shared[[]byte] // in the text form of Prometheus

	pending *lobby // sockets without a subject yet

	leaving  atomic.Bool     // the server is about to stop taking work; callers are told to go elsewhere
	draining context.Context // ends when the server stops taking work; streams end with it
	drain    context.CancelFunc
	hijacked sync.WaitGroup // WebSockets, which http.Server does not wait for
}

// New puts a server together. An error names the setting that is wrong.
func New(deps Deps) (*Server, error) {
	limits, err := deps.Config.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkOrigins(deps.Config.AllowedOrigins); err != nil {
		return nil, err
	}
	if deps.Metrics == nil {
		deps.Metrics = prometheus.NewRegistry()
	}
	s := &Server{deps: deps, config: deps.Config, log: deps.Log, presenter: presenter{deps.Log}, now: time.Now}
	s.config.Limits = limits
	s.ready = &shared[struct{}]{look: s.lookReady}
	s.figures = &shared[[]byte]{look: s.gather}
	s.pending = newLobby(limits.PendingSockets)
	s.draining, s.drain = context.WithCancel(context.Background())
	if s.metrics, err = newMetrics(deps.Metrics); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	s.quota = newQuota(limits, s.metrics.running, deps.Belongs)
	if s.engine, err = newEngine(deps.Schema, s.config, s.presenter, s.metrics, s.quota); err != nil {
		return nil, err
	}
	return s, nil
}

// Handler serves every route.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(identify, s.observe, s.sayGoodbye, secure, s.refuseQueryTokens)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, problem.New(problem.NotFound, "There is nothing at this path."))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "This path does not take this method."))
	})
	r.Group(func(r chi.Router) {
		r.Use(s.checkOrigin, s.requireActor, s.readBody)
		r.With(s.chargeBody).HandleFunc(graphqlPath, s.serveGraphQL)
		if s.deps.REST != nil {
			r.With(s.admitCall).Mount(restPath, s.deps.REST)
		}
	})
	r.Get("/healthz", s.serveHealth)
	r.Get("/readyz", s.serveReady)
	r.Get("/metrics", s.serveMetrics)
	if s.config.GraphiQL {
		mountGraphiQL(r)
	}
	if s.deps.Console != nil {
		r.Mount("/", s.deps.Console)
	} else {
		r.Get("/", serveFrontPage)
	}
	return r
}

// serveHealth says that the process lives.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// serveReady says whether a load balancer should send requests here.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if s.leaving.Load() {
		s.refuse(w, r, problem.New(problem.Unavailable, "The server is shutting down."))
		return
	}
	if _, err := s.ready.get(r.Context(), s.now); err != nil {
		s.refuse(w, r, problem.New(problem.Unavailable, "The server cannot serve requests now."))
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *Server) lookReady(ctx context.Context) (_ struct{}, err error) {
	if s.deps.Ready == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Limits.OperationTime)
	defer cancel()
	if err = s.deps.Ready(ctx); err != nil {
		s.log.WarnContext(ctx, "not ready", "error", err)
	}
	return
}

// serveMetrics answers in plain text: to pack it for each who asks would cost more than to send it.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	text, err := s.figures.get(r.Context(), s.now)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(metricsFormat)))
	_, _ = w.Write(text) // the client is gone
}

// Serve answers on ln until ctx ends, then drains. During the notice /readyz says no and each answer is the last of its connection, so
// that who sends requests learns to send them elsewhere before one is refused. Then nothing new is accepted, streams are closed so
// that their clients resume elsewhere, and requests in flight get the drain time: what still runs a second before its end is
// answered UNAVAILABLE. The error is nil after an orderly end.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	requests, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	srv := &http.Server{
		BaseContext:       func(net.Listener) context.Context { return requests },
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10, // a token with many groups is large
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// No WriteTimeout: it would cut event streams. Operations are bounded in time, and writes one by one.
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(pacedListener{ln, s.config.Limits.WriteTime}) }()
	err := s.serveUntilLeft(ctx, served)
	s.drain()
	if err != nil {
		return fmt.Errorf("serving %s: %w", ln.Addr(), err)
	}
	drainTime := s.config.Limits.DrainTime
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	defer time.AfterFunc(drainTime-min(lastWords, drainTime/2), stop).Stop()
	err = srv.Shutdown(ctx)
	if err == nil {
		err = s.waitForSockets(ctx)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("draining: %w", err), srv.Close())
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// serveUntilLeft waits until ctx ends, and then for the notice. An error is why serving ended before.
func (s *Server) serveUntilLeft(ctx context.Context, served <-chan error) error {
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.leaving.Store(true)
	select {
	case err := <-served:
		return err
	case <-time.After(s.config.Limits.DrainNotice):
		return nil
	}
}

func (s *Server) waitForSockets(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.hijacked.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
