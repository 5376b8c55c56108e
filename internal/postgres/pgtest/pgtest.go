// Package pgtest gives a test a migrated PostgreSQL database of its own.
//
// The server is the one that COMPUTE_TEST_DATABASE_URL names; without it, each test process starts an embedded one on
// a data directory that an earlier process left prepared, so that it costs a moment and ends with the process. The
// invariant: no two tests ever share a database, so every test may run in parallel.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/embedded"
)

const (
	serverVariable = "COMPUTE_TEST_DATABASE_URL"
	maxConns       = 8
	cleanupIn      = 3 * time.Minute // where others use the same server
)

// New returns an open, migrated, empty database that is dropped when the test ends. Its pool has 8 connections, which work as the
// server's do, with all tenants for their scope unless the test says otherwise.
func New(t testing.TB) *postgres.DB {
	t.Helper()
	return open(t, postgres.Options{URL: URL(t), MaxConns: maxConns, Tracer: new(batches)})
}

// Owner opens the database of db as the owner of its tables, for a test that changes the schema or looks past the policies.
func Owner(t testing.TB, db *postgres.DB) *postgres.DB {
	t.Helper()
	return open(t, postgres.Options{URL: db.Pool.Config().ConnString(), AsOwner: true, MaxConns: maxConns})
}

func open(t testing.TB, o postgres.Options) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("opening the test database: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { db.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(cleanupIn):
			t.Error("closing the test database: a connection was never given back (rows or a transaction left open?)")
		}
	})
	return db
}

// URL returns the DSN of such a database, for a test that starts a process which opens it by itself.
func URL(t testing.TB) string {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("starting the test database server: %v", err)
	}
	name := "test_" + strings.ToLower(rand.Text())
	if err := server.exec(t.Context(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, server.template)); err != nil {
		t.Fatalf("creating the test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupIn)
		defer cancel()
		if err := server.exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)); err != nil {
			t.Errorf("dropping the test database: %v", err)
		}
	})
	u := *server.url
	u.Path = "/" + name
	return u.String()
}

// IgnoreServer keeps goleak from reporting the goroutine that holds this process's embedded server.
func IgnoreServer() goleak.Option {
	return goleak.IgnoreAnyFunction("better/compute/internal/postgres/embedded.startChild.func1")
}

// server is where test databases are made.
type server struct {
	url      *url.URL
	template string

	// Set for a server of our own; kept, so that its lock lasts as long as the process.
	embedded *embedded.Server
}

// sharedServer is the one global here: the tests of a process have nothing else in common that could hold it.
var sharedServer = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if dsn := os.Getenv(serverVariable); dsn != "" {
		return openServer(ctx, dsn)
	}
	return startServer(ctx)
})

// openServer prepares the template on a server, unless it is there.
func openServer(ctx context.Context, dsn string) (*server, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%s must be a URL (postgres://...)", serverVariable)
	}
	hash, err := schemaHash()
	if err != nil {
		return nil, err
	}
	s := &server{url: u, template: "compute_template_" + hash}
	return s, s.prepareTemplate(ctx)
}

// prepareTemplate migrates a database under another name and renames it, so that a half-made template is never used.
func (s *server) prepareTemplate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // also frees the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", s.template); err != nil {
		return err
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", s.template).Scan(&exists)
	if err != nil || exists {
		return err
	}
	unfinished := s.template + "_unfinished"
	if _, err := conn.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", unfinished)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+unfinished+" TEMPLATE template0"); err != nil {
		return err
	}
	if err := s.migrate(ctx, unfinished); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", unfinished, s.template))
	return err
}

func (s *server) migrate(ctx context.Context, database string) error {
	u := *s.url
	u.Path = "/" + database
	db, err := postgres.Open(ctx, postgres.Options{URL: u.String(), MaxConns: maxConns})
	if err != nil {
		return err
	}
	defer db.Close()
	return postgres.Migrate(ctx, db)
}

// exec runs one statement on a connection of its own: a pool would leave goroutines behind in every test process.
func (s *server) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}
