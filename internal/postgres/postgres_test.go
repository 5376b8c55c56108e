package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/embedded"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

func TestOpenBoundsWhatAConnectionMayTake(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var got string
	err := db.NewRaw(`SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'),
		current_setting('idle_in_transaction_session_timeout'))`).Scan(t.Context(), &got)
	if err != nil || got != "30s 10s 1min" {
		t.Errorf("the limits are %q, %v", got, err)
	}

	own := open(t, pgtest.URL(t)+"&statement_timeout=7s")
	err = own.NewRaw("SELECT current_setting('statement_timeout')").Scan(t.Context(), &got)
	if err != nil || got != "7s" {
		t.Errorf("the limit of the URL became %q, %v", got, err)
	}
}

func TestStatementsLeaveNothingPrepared(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 50 {
		var name string
		err := conn.NewSelect().ColumnExpr("?", strconv.Itoa(i)).Scan(t.Context(), &name)
		if err != nil {
			t.Fatal(err)
		}
	}
	var prepared int
	if err := conn.NewRaw("SELECT count(*) FROM pg_prepared_statements").Scan(t.Context(), &prepared); err != nil {
		t.Fatal(err)
	}
	if prepared != 0 {
		t.Errorf("%d statements are prepared", prepared)
	}
}

func TestOpenNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://u:hunter2@/db?host=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	assertUnavailable(t, db)
	if err := postgres.Migrate(t.Context(), db); !problem.Is(err, problem.Unavailable) {
		t.Errorf("Migrate: got %v, want UNAVAILABLE", err)
	}
	if _, err := postgres.MigrationStatus(t.Context(), db); !problem.Is(err, problem.Unavailable) {
		t.Errorf("MigrationStatus: got %v, want UNAVAILABLE", err)
	}
}

func TestOpenRefusesAnUnreadableURLWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@h:notaport/db", "postgres://u:hunter2@h/db?sslmode=odd", "host=h password=hunter2 port=x"} {
		_, err := postgres.Open(t.Context(), postgres.Options{URL: url})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
}

func TestClosedDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	db.Close() // harmless
	if err := postgres.Translate(selectOne(t.Context(), db)); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a query: got %v, want UNAVAILABLE", err)
	}
	if err := db.Ping(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Errorf("Ping: got %v, want UNAVAILABLE", err)
	}
}

func TestWriteProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for range 3 {
		if err := db.WriteProbe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var tables int
	err := db.NewRaw("SELECT count(*) FROM pg_class WHERE relname = 'write_probe'").Scan(t.Context(), &tables)
	if err != nil || tables != 0 {
		t.Errorf("%d tables are left, %v", tables, err)
	}
}

func TestDatabaseThatCrashesComesBackByItself(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	server := startServer(t, dir)
	db := open(t, server.URL())
	for range 3 {
		var inFlight [3]chan error
		for i := range inFlight {
			inFlight[i] = make(chan error, 1)
			go func() { _, err := db.ExecContext(t.Context(), "SELECT pg_sleep(60)"); inFlight[i] <- err }()
		}
		admin := connect(t, server.URL())
		eventually(t, "three queries run", func() bool {
			var n int
			err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'").Scan(&n)
			return err == nil && n == len(inFlight)
		})
		crash(t, dir, server)
		for i := range inFlight {
			if err := postgres.Translate(<-inFlight[i]); !problem.Is(err, problem.Unavailable) {
				t.Errorf("a query in flight: got %v, want UNAVAILABLE", err)
			}
		}
		assertUnavailable(t, db)

		server = startServer(t, dir)
		// Not one more failure: no dead connection is left to be found.
		for range 6 {
			if err := selectOne(t.Context(), db); err != nil {
				t.Fatalf("after the restart: %v", err)
			}
		}
		if err := db.WriteProbe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadOnlyServerLosesItsConnections(t *testing.T) {
	t.Parallel()
	server := startServer(t, serverDir(t))
	db := open(t, server.URL())
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE things (v int)"); err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		return db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO things VALUES (1)")
			return err
		})
	}
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	before := db.Pool.Stat().NewConnsCount()

	setReadOnly(t, server, true)
	eventually(t, "the read-only server is found out", func() bool { return problem.Is(insert(), problem.Unavailable) })
	if idle := db.Pool.Stat().IdleConns(); idle != 0 {
		t.Errorf("%d connections to a read-only server are kept", idle)
	}
	if err := db.WriteProbe(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Errorf("WriteProbe: got %v, want UNAVAILABLE", err)
	}
	if err := selectOne(t.Context(), db); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a read: got %v, want UNAVAILABLE, since what it would read may be old", err)
	}

	setReadOnly(t, server, false)
	eventually(t, "the server is used again", func() bool { return insert() == nil })
	if after := db.Pool.Stat().NewConnsCount(); after <= before {
		t.Errorf("no new connection was made (%d before, %d after)", before, after)
	}
}

func TestWriteProbeFindsAReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := startServer(t, serverDir(t))
	db := open(t, server.URL())
	if err := db.WriteProbe(t.Context()); err != nil {
		t.Fatal(err)
	}
	setReadOnly(t, server, true)
	eventually(t, "WriteProbe fails", func() bool { return problem.Is(db.WriteProbe(t.Context()), problem.Unavailable) })
}

func assertUnavailable(t *testing.T, db *postgres.DB) {
	t.Helper()
	for name, err := range map[string]error{
		"Ping":       db.Ping(t.Context()),
		"WriteProbe": db.WriteProbe(t.Context()),
		"a query":    selectOne(t.Context(), db), // even when nobody translates
		"RunInTx":    db.RunInTx(t.Context(), func(context.Context, bun.Tx) error { return nil }),
	} {
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: got %v, want UNAVAILABLE", name, err)
		}
	}
}

func selectOne(ctx context.Context, db *postgres.DB) error {
	_, err := db.ExecContext(ctx, "SELECT 1")
	return err
}

// serverDir is a state directory that every user may enter: the parent of t.TempDir is private to root.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startServer(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{StateDir: dir, Settings: []string{"fsync=off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server
}

// crash does what pg_ctl stop -m immediate does.
func crash(t *testing.T, dir string, server *embedded.Server) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pg", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Done():
	case <-time.After(patience):
		t.Fatal("the server did not end")
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func setReadOnly(t *testing.T, server *embedded.Server, on bool) {
	t.Helper()
	conn := connect(t, server.URL())
	for _, statement := range []string{
		"SET default_transaction_read_only = off",
		fmt.Sprintf("ALTER SYSTEM SET default_transaction_read_only = %t", on),
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

// eventually polls: the server takes a changed setting up when it likes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
