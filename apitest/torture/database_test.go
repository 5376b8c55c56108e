package torture

import (
	"context"
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

	"github.com/jackc/pgx/v5"

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

// restart starts it again, and says when it took its first connection.
func (d *database) restart() (accepting time.Time) {
	d.t.Helper()
	first, url := make(chan time.Time, 1), d.pg.URL()
	ctx, stop := context.WithTimeout(d.t.Context(), harness.Patience)
	defer stop()
	go func() {
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			conn, err := pgx.Connect(ctx, url)
			if err == nil {
				first <- time.Now()
				_ = conn.Close(ctx)
				return
			}
		}
	}()
	d.start()
	select {
	case accepting = <-first:
	case <-ctx.Done():
		d.t.Fatal("the database takes no connection")
	}
	return accepting
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
	lost     int // without an answer

	since time.Time // calls that began after it are looked out for
	first time.Time // when the first of them was answered well; zero: none was
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
	if began.After(a.since) && a.first.IsZero() {
		a.first = time.Now()
	}
}

// lookOut looks out for calls that begin from now on.
func (a *acknowledged) lookOut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since, a.first = time.Now(), time.Time{}
}

// awaitFirst is when the first of them was answered well.
func (a *acknowledged) awaitFirst(t testing.TB) (first time.Time) {
	t.Helper()
	harness.Await(t, "a write is acknowledged", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		first = a.first
		return !first.IsZero()
	})
	return first
}

// awaitMore waits for so many more that are written.
func (a *acknowledged) awaitMore(t testing.TB, accounts, runs int) {
	t.Helper()
	count := func() (int, int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.accounts), len(a.runs)
	}
	someAccounts, someRuns := count()
	harness.Await(t, "more is written", func() bool {
		nowAccounts, nowRuns := count()
		return nowAccounts >= someAccounts+accounts && nowRuns >= someRuns+runs
	})
}

// missing counts what was acknowledged and is not there.
func (a *acknowledged) missing(r *rig) (n int) {
	r.t.Helper()
	for table, ids := range map[string][]string{"provider_accounts": a.accounts, "bootstraps": a.runs} {
		for _, id := range ids {
			if r.count("SELECT count(*) FROM "+table+" WHERE id = ?", id) != 1 {
				n++
				r.t.Errorf("%s was acknowledged and is gone", id)
			}
		}
	}
	return n
}

// writeOn has clients create accounts, and start runs that order a machine, until done is closed.
func (r *rig) writeOn(told *acknowledged, done <-chan struct{}) (ended *sync.WaitGroup) {
	tenant, accountID, pools := r.tenantOf(0)
	ended = new(sync.WaitGroup)
	var next atomic.Int64
	every := func(pause time.Duration, in func(i int64) call, p *replica) {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			began, in := time.Now(), in(next.Add(1))
			out := r.once(r.t.Context(), tenant, accountID, pools, in, p)
			told.note(in, out, began)
		}
	}
	for client := range clients {
		ended.Go(func() {
			every(10*time.Millisecond, func(i int64) call {
				return call{key: fmt.Sprint("key-", i), what: fmt.Sprint("name-", i), named: true}
			}, r.replicas[client%len(r.replicas)])
		})
	}
	ended.Go(func() {
		every(200*time.Millisecond, func(i int64) call { return call{key: fmt.Sprint("run-", i), what: "first"} }, r.replicas[0])
	})
	return ended
}

// The database stops hard while clients write through two servers, and while runs are driven: what clients were told is written is there, the
// servers need nobody to go on, and every run comes to its end with one machine.
func TestDatabaseCrashes(t *testing.T) {
	crashes := number(t, "CRASHES", 2)
	d := newDatabase(t)
	r := newRig(t, 1, 2, (*rig).unhurried, func(r *rig) { r.dsn = d.pg.URL() })
	told, done := new(acknowledged), make(chan struct{})
	ended := r.writeOn(told, done)
	var slowest time.Duration
	late := 0
	for range crashes {
		told.awaitMore(t, 100, 2)
		harness.Await(t, "a run is driven", func() bool { return r.count("SELECT count(*) FROM bootstraps WHERE lease_until > now()") > 0 })
		d.crash()
		told.lookOut()
		accepting := d.restart()
		r.db.Pool.Reset() // its connections are to the database that was stopped
		after := max(0, told.awaitFirst(t).Sub(accepting))
		slowest = max(slowest, after)
		if after > firstSuccess {
			late++
			t.Errorf("the first write was acknowledged %s after the database took connections again", after)
		}
	}
	close(done)
	ended.Wait()
	harness.Await(t, "every run is final", func() bool { return r.count("SELECT count(*) FROM bootstraps WHERE live_account_id IS NOT NULL") == 0 })
	j := r.judge()
	if j.joined == 0 {
		t.Error("no run joined")
	}
	harness.Report(t, t.Name(), 0, "crashes=%d acknowledged=%d without-answer=%d lost=%d late=%d first-success-after=%s runs=%d joined=%d double=%d orphans=%d lost-machines=%d stuck=%d retold=%d",
		crashes, len(told.accounts)+len(told.runs), told.lost, told.missing(r), late, slowest.Round(10*time.Millisecond),
		j.runs, j.joined, j.double, j.orphans, j.lost, j.stuck, j.retold)
}
