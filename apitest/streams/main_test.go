// Package streams shows that the events of runs reach whoever follows them, each once and in order: through writers and readers that
// are killed, through connections that end anywhere, and to thousands of readers at a time.
//
// It has no code but tests. Each prints its figures with the seed that repeats it; flags make the small runs of every day long. The
// invariant: what was delivered is compared with the outbox, position by position.
package streams

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

// patience bounds every wait for what happens by itself, on a machine that is busy.
const patience = 3 * time.Minute

var (
	events        = flag.Int("events", 5000, "how many events TestOutbox has written")
	reconnects    = flag.Int("reconnects", 50, "how often the followers of TestReconnects lose their connection")
	subscriptions = flag.Int("subscriptions", 200, "how many subscriptions TestSubscriptions opens")
	seed          = flag.Uint64("seed", 0, "repeats a run; 0 takes a new one")
)

func TestMain(m *testing.M) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(work(job))
	}
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	goleak.VerifyTestMain(m, pgtest.IgnoreServer(), goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

// report prints the figures of a harness.
func report(t *testing.T, name, format string, args ...any) {
	t.Helper()
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	fmt.Printf("%s %s %s seed=%d\n", name, fmt.Sprintf(format, args...), verdict, *seed)
}

// await polls until it is so.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// start runs a program that dies with this one. The channel gives how it ended.
func start(cmd *exec.Cmd) (<-chan error, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The kernel takes the end of this thread for ours.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// serverBinary is the server, built once from the present sources.
func serverBinary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "streams-"); built.err != nil {
			return
		}
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", built.dir+"/", "./cmd/compute-api")
		cmd.Dir = "../.."
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			built.err = fmt.Errorf("building the server: %w\n%s", err, out.String())
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "compute-api")
}

// tenant is whose runs they are.
const tenant = "rack"

// world is a database with runs that nobody drives: their events are written by the tests.
type world struct {
	url     string
	db      *postgres.DB // as its owner
	account string
	pool    string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{url: pgtest.URL(t), pool: id.New("pool")}
	db, err := postgres.Open(t.Context(), postgres.Options{URL: w.url, MaxConns: 8, AsOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	w.db = db
	t.Cleanup(db.Close)
	w.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", w.pool, tenant)
	w.account = w.newAccount(t, "main")
	return w
}

func (w *world) newAccount(t testing.TB, name string) string {
	t.Helper()
	account := id.New("pacct")
	w.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'ssh', ?, 'test')", account, tenant, name)
	return account
}

// newRun makes a run without an event.
func (w *world) newRun(t testing.TB, account string) string {
	t.Helper()
	run := id.New("boot")
	w.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, operation_id)
		VALUES (?0, ?1, ?2, ?3, 'test', 'o', 'claiming', ?0)`, run, tenant, account, w.pool)
	return run
}

func (w *world) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := w.db.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
