package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/postgres/embedded"
)

// database is a PostgreSQL of this test's own, which writes to the disk.
type database struct {
	t     testing.TB
	state string
	pg    *embedded.Server
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	d := &database{t: t, state: t.TempDir()}
	if err := os.Chmod(filepath.Dir(d.state), 0o755); err != nil { // PostgreSQL runs as another user
		t.Fatal(err)
	}
	d.start()
	t.Cleanup(func() { _ = d.pg.Stop(t.Context()) })
	return d
}

func (d *database) start() {
	d.t.Helper()
	pg, err := embedded.Start(d.t.Context(), embedded.Options{StateDir: d.state})
	if err != nil {
		d.t.Fatal(err)
	}
	d.pg = pg
}

// crash ends it as `pg_ctl stop -m immediate` does: no connection is waited for, and what was committed comes back from the log alone.
func (d *database) crash() {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.state, "pg", "postmaster.pid"))
	if err != nil {
		d.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGQUIT)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	<-d.pg.Done()
	if err := d.pg.Stop(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// acknowledged is what clients were told is written.
type acknowledged struct {
	mu       sync.Mutex
	accounts []string
	runs     []string
	last     time.Time // when the last call began that was answered well
	lost     int       // without an answer
}

func (a *acknowledged) note(in call, out reply, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case out.lost:
		a.lost++
		return
	case in.named:
		a.accounts = append(a.accounts, out.id)
	default:
		a.runs = append(a.runs, out.id)
	}
	if began.After(a.last) {
		a.last = began
	}
}

func (a *acknowledged) since(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.After(t)
}

// The database stops hard while clients write through two servers: what they were told is written is there, and the servers need nobody to go
// on.
func TestDatabaseCrashes(t *testing.T) {
	crashes := number(t, "CRASHES", 2)
	d := newDatabase(t)
	r := newRig(t, 1, 2, func(r *rig) { r.dsn = d.pg.URL() })
	r.killCloud()
	tenant, accountID, pools := r.tenantOf(0)
	told := new(acknowledged)
	var next atomic.Int64
	var wait sync.WaitGroup
	done := make(chan struct{})
	for client := range clients {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				i := next.Add(1)
				in := call{key: fmt.Sprint("key-", i), what: fmt.Sprint("name-", i), named: i%4 != 0}
				began := time.Now()
				out := r.once(t.Context(), tenant, accountID, pools, in, r.replicas[client%len(r.replicas)])
				told.note(in, out, began)
				if out.lost {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	var slowest time.Duration
	for range crashes {
		began := time.Now()
		harness.Await(t, "writes go on", func() bool { return told.since(began.Add(300 * time.Millisecond)) })
		d.crash()
		d.start()
		back := time.Now()
		harness.Await(t, "the first write after the database's return", func() bool { return told.since(back) })
		slowest = max(slowest, time.Since(back))
	}
	close(done)
	wait.Wait()
	missing := 0
	for table, ids := range map[string][]string{"provider_accounts": told.accounts, "bootstraps": told.runs} {
		for _, id := range ids {
			if r.count("SELECT count(*) FROM "+table+" WHERE id = ?", id) != 1 {
				missing++
				t.Errorf("%s was acknowledged and is gone", id)
			}
		}
	}
	harness.Report(t, t.Name(), 0, "crashes=%d acknowledged=%d without-answer=%d lost=%d first-success-after=%s",
		crashes, len(told.accounts)+len(told.runs), told.lost, missing, slowest.Round(10*time.Millisecond))
}
