// Package streams shows that the events of runs reach whoever follows them, each once and in order: through writers and readers that
// are killed, through connections that end anywhere, and to thousands of readers at a time.
//
// It has no code but tests. Each prints its figures with the seed that repeats it; flags make the small runs of every day long. The
// invariant: what was delivered is compared with the outbox, position by position.
package streams

import (
	"flag"
	"os"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

var (
	events        = flag.Int("events", 5000, "how many events TestOutbox has written")
	reconnects    = flag.Int("reconnects", 50, "how often the followers of TestReconnects lose their connection")
	subscriptions = flag.Int("subscriptions", 200, "how many subscriptions TestSubscriptions opens")
	seed          = flag.Uint64("seed", 0, "repeats a run; 0 takes a new one")
)

// programs are the server.
var programs = &harness.Build{Packages: []string{"./cmd/compute-api"}}

func TestMain(m *testing.M) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(work(job))
	}
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	harness.Main(m, programs)
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
