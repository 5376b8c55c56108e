package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

const readTenants = "SELECT tenant_id FROM secrets WHERE tenant_id <> $1 ORDER BY tenant_id"

func scanText(row postgres.Row) (text string, err error) { return text, row.Scan(&text) }

// Whatever the last use of the only connection left behind, the next one sees its own scope.
func TestReadSeesItsOwnScopeAfterWhateverCameBefore(t *testing.T) {
	t.Parallel()
	db := openOne(t, pgtest.URL(t))
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	as := func(tenant string) context.Context { return postgres.WithScope(t.Context(), postgres.Tenants(tenant)) }
	refused := errors.New("refused")
	insert := func(ctx context.Context, tenant string, confirm error) error {
		return db.Write(ctx, func(b *postgres.Batch) error {
			b.Queue("INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ($1, $2, 'k', '')", tenant, t.Name())
			return nil
		}, func() error { return confirm })
	}
	for name, before := range map[string]func(ctx context.Context) error{
		"nothing": func(context.Context) error { return nil },
		"a look": func(ctx context.Context) error {
			_, err := postgres.Read(ctx, db, scanText, readTenants, "")
			return err
		},
		"Bun's look": func(ctx context.Context) error { tenantsSeen(t, ctx, db); return nil },
		"a failure": func(ctx context.Context) error {
			_, err := postgres.Read(ctx, db, scanText, "SELECT (1 / $1::int)::text", 0)
			return err
		},
		"what does not parse": func(ctx context.Context) error { _, err := postgres.Read(ctx, db, scanText, "SELEC $1", 0); return err },
		"what does not encode": func(ctx context.Context) error {
			_, err := postgres.Read(ctx, db, scanText, readTenants, 1.5)
			return err
		},
		"what does not scan": func(ctx context.Context) error {
			_, err := postgres.Read(ctx, db, func(row postgres.Row) (n int, err error) { return n, row.Scan(&n) }, readTenants, "")
			return err
		},
		"a canceled context": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := postgres.Read(ctx, db, scanText, readTenants, "")
			return err
		},
		"the end of the connection": func(ctx context.Context) error {
			_, err := postgres.Read(ctx, db, scanText, "SELECT pg_terminate_backend(pg_backend_pid())::text WHERE $1", true)
			return err
		},
		"a write":              func(ctx context.Context) error { return insert(ctx, "a", nil) },
		"a write rolled back":  func(ctx context.Context) error { return insert(ctx, "a", refused) },
		"a write out of scope": func(ctx context.Context) error { return insert(ctx, "b", nil) },
	} {
		err := before(as("a"))
		t.Log(name, err)
		seen, err := postgres.Read(as("b"), db, scanText, readTenants, "")
		if err != nil || !slices.Equal(seen, []string{"b"}) {
			t.Errorf("after %s of a's, b sees %v: %v", name, seen, err)
		}
		if err := before(as("a")); err == nil && name == "a write" {
			t.Error("the same row was written twice")
		}
		if seen := tenantsSeen(t, as("b"), db); !slices.Equal(slices.Compact(seen), []string{"b"}) {
			t.Errorf("after %s of a's, b sees %v through Bun", name, seen)
		}
	}
}

func TestReadTakesTheScopeOfItsCaller(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	refused := problem.New(problem.Unavailable, "no rights can be read")
	scope, fails := postgres.Tenants("b"), error(nil)
	db.ScopeBy(func(context.Context) (postgres.Scope, error) { return scope, fails })
	seen, err := postgres.Read(t.Context(), db, scanText, readTenants, "")
	if err != nil || !slices.Equal(seen, []string{"b"}) {
		t.Errorf("%v are seen: %v", seen, err)
	}
	scope = postgres.Scope{}
	seen, err = postgres.Read(t.Context(), db, scanText, readTenants, "")
	if err != nil || seen == nil || len(seen) != 0 {
		t.Errorf("nobody sees %#v: %v", seen, err)
	}
	if _, err := postgres.ReadOne(t.Context(), db, scanText, readTenants, ""); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("no row is %v", err)
	}
	fails = refused
	if _, err := postgres.Read(t.Context(), db, scanText, readTenants, ""); !errors.Is(err, refused) {
		t.Errorf("a scope that cannot be told: %v", err)
	}
}

func TestWriteCommitsWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	no := errors.New("no")
	for _, confirm := range []error{no, nil} {
		var name string
		err := db.Write(t.Context(), func(b *postgres.Batch) error {
			b.Queue("INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t', $1, 'k', '')", "n")
			b.Queue("SELECT name FROM secrets WHERE tenant_id = $1", "t").QueryRow(func(row postgres.Row) error { return row.Scan(&name) })
			return nil
		}, func() error {
			if name != "n" {
				t.Errorf("the statement before the look left %q", name)
			}
			return confirm
		})
		if !errors.Is(err, confirm) {
			t.Errorf("confirm gave %v, and Write %v", confirm, err)
		}
		n, err := db.NewSelect().Table("secrets").Count(t.Context())
		if err != nil || (n == 1) != (confirm == nil) {
			t.Errorf("confirm gave %v: %d rows: %v", confirm, n, err)
		}
	}
	err := db.Write(t.Context(), func(b *postgres.Batch) error {
		b.Queue("INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t', $1, 'k', '')", "n")
		return nil
	}, func() error { t.Error("what failed was confirmed"); return nil })
	if _, ok := postgres.UniqueViolation(err); !ok {
		t.Errorf("the same row again: %v", err)
	}
	if used := db.Pool.Stat().AcquiredConns(); used != 0 {
		t.Errorf("%d connections were not given back", used)
	}
}

func TestWriteRunsAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := 0
	err := db.Write(t.Context(), func(b *postgres.Batch) error {
		b.Queue("SELECT 1 WHERE $1", true)
		return nil
	}, func() error {
		if runs++; runs < 3 {
			return &pgconn.PgError{Code: "40001"}
		}
		return nil
	})
	if err != nil || runs != 3 {
		t.Errorf("%d runs: %v", runs, err)
	}
}

// A statement is prepared once on a connection, whatever it is asked; a table that has changed makes it be prepared anew.
func TestBatchesArePreparedOnce(t *testing.T) {
	t.Parallel()
	db := openOne(t, pgtest.URL(t))
	for i := range 50 {
		tenant := string(rune('a' + i%26))
		ctx := postgres.WithScope(t.Context(), postgres.Tenants(tenant))
		if _, err := postgres.Read(ctx, db, scanText, readTenants, tenant); err != nil {
			t.Fatal(err)
		}
	}
	var prepared []string
	if err := db.NewRaw("SELECT statement FROM pg_prepared_statements ORDER BY 1").Scan(t.Context(), &prepared); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"SELECT set_config('app.tenants', $1, $2)", readTenants}, prepared); diff != "" {
		t.Error(diff)
	}
	owner := pgtest.Owner(t, db)
	for _, change := range []string{"ALTER TABLE secrets ADD COLUMN more text", "ALTER TABLE secrets ALTER COLUMN tenant_id TYPE varchar(99)"} {
		if _, err := owner.ExecContext(t.Context(), "ALTER TABLE secrets DISABLE ROW LEVEL SECURITY"); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.ExecContext(t.Context(), "DROP POLICY IF EXISTS tenants ON secrets"); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.Read(t.Context(), db, scanText, readTenants, "x"); err != nil {
			t.Errorf("after %s: %v", change, err)
		}
	}
}

// A read is one exchange with the database and a write two, whose scope the connection ever had.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	wire := startWire(t, pgtest.URL(t))
	db := openOne(t, wire.url)
	insertSecretOf(t, db, "a")
	read := func(ctx context.Context) error {
		_, err := postgres.Read(ctx, db, scanText, readTenants, "x")
		return err
	}
	write := func(ctx context.Context) error {
		return db.Write(ctx, func(b *postgres.Batch) error {
			b.Queue("UPDATE secrets SET key_id = $1", "k")
			b.Queue("UPDATE secrets SET name = $1", "n")
			return nil
		}, func() error { return nil })
	}
	for _, run := range []func(context.Context) error{read, write} { // what is prepared by now
		if err := run(postgres.WithScope(t.Context(), postgres.Tenants("z"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []string{"a", "b", "a", "a"} {
		ctx := postgres.WithScope(t.Context(), postgres.Tenants(tenant))
		for i, run := range []func(context.Context) error{read, write} {
			before := wire.turns.Load()
			if err := run(ctx); err != nil {
				t.Fatal(err)
			}
			if took := wire.turns.Load() - before; took != int64(i)+1 {
				t.Errorf("%d exchanges, want %d", took, i+1)
			}
		}
	}
}

func openOne(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// wire stands between a client and the database, and counts how often the client speaks after the database did.
type wire struct {
	url   string
	turns atomic.Int64
}

func startWire(t *testing.T, url string) *wire {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := new(wire)
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.carry(client, server)
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	w.url = "host=" + host + " port=" + port + " user=" + config.User + " dbname=" + config.Database + " password='" + config.Password + "' sslmode=disable"
	return w
}

// carry ends when the client closes its connection.
func (w *wire) carry(client, server net.Conn) {
	var serverSpoke atomic.Bool
	go func() {
		_, _ = io.Copy(writerFunc(func(p []byte) (int, error) {
			serverSpoke.Store(true)
			return client.Write(p)
		}), server)
		_ = client.Close()
	}()
	_, _ = io.Copy(writerFunc(func(p []byte) (int, error) {
		if serverSpoke.Swap(false) {
			w.turns.Add(1)
		}
		return server.Write(p)
	}), client)
	_ = server.Close()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
