package streams

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/event"
)

// TestOutbox has eight processes write and two read, kills all of them again and again, cuts the connections of those that live, and
// compares what was read with what was committed.
func TestOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runs := make([]string, 12)
	for i := range runs {
		runs[i] = w.newRun(t, w.account)
	}
	rnd := lockedRand(*seed)
	began := time.Now()
	writing, stopWriting := context.WithCancel(t.Context())
	defer stopWriting()
	var writers []*restarting
	for range 8 {
		r := &restarting{
			job:   func() job { return job{URL: w.url, Runs: runs, Account: w.account, Seed: rnd.Uint64()} },
			line:  func([]byte) {},
			every: func() time.Duration { return 300*time.Millisecond + rnd.duration(3*time.Second) },
		}
		r.run(writing, t)
		writers = append(writers, r)
	}
	reading, stopReading := context.WithCancel(t.Context())
	defer stopReading()
	readers := make([]*outboxReader, 2)
	for i := range readers {
		readers[i] = &outboxReader{restarting: restarting{every: func() time.Duration { return 300*time.Millisecond + rnd.duration(2*time.Second) }}}
		readers[i].job = func() job { return job{URL: w.url, From: readers[i].last()} }
		readers[i].line = func(text []byte) { readers[i].take(t, text) }
		readers[i].run(reading, t)
	}

	terminated := 0
	for written := 0; written < *events; time.Sleep(50 * time.Millisecond) {
		var cut int
		err := w.db.NewRaw(`SELECT (SELECT sum(attempt) FROM bootstraps), (SELECT count(pg_terminate_backend(pid)) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename IS NOT NULL AND pid <> pg_backend_pid()
				AND random() < 0.01) AS unlucky)`).Scan(t.Context(), &written, &cut)
		if err != nil {
			written = 0 // it was the unlucky one
		}
		terminated += cut
		if time.Since(began) > 10*time.Minute+time.Duration(*events)*10*time.Millisecond {
			t.Fatalf("only %d events were written", written)
		}
	}
	stopWriting()
	kills := 0
	for _, r := range writers {
		<-r.done
		if r.failed != nil {
			t.Error(r.failed)
		}
		kills += r.kills
	}
	took := time.Since(began)
	w.awaitCommits(t)
	truth := w.committed(t, w.account)
	lost, twice, disorder := 0, 0, outOfOrder(truth)
	readerKills := 0
	for _, r := range readers {
		harness.Await(t, "the last event is read", func() bool { return r.last() == truth[len(truth)-1].At })
	}
	stopReading()
	for _, r := range readers {
		<-r.done
		if r.failed != nil {
			t.Error(r.failed)
		}
		l, d, o := compare(truth, r.seen)
		lost, twice, disorder, readerKills = lost+l, twice+d, disorder+o, readerKills+r.kills
	}
	if lost+twice+disorder > 0 {
		t.Errorf("%d events were lost, %d came twice, %d came out of order", lost, twice, disorder)
	}
	harness.Report(t, "outbox", *seed, "events=%d writers=8 killed=%d terminated=%d readers=2 killed=%d lost=%d twice=%d reordered=%d seconds=%.0f",
		len(truth), kills, terminated, readerKills, lost, twice, disorder, took.Seconds())
}

type outboxReader struct {
	restarting
	mu   sync.Mutex
	seen []sighting
}

func (r *outboxReader) take(t testing.TB, text []byte) {
	var s sighting
	if err := json.Unmarshal(text, &s); err != nil {
		t.Errorf("a reader printed %q", text)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, s)
}

func (r *outboxReader) last() event.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		return event.Position{}
	}
	return r.seen[len(r.seen)-1].At
}

// awaitCommits waits until no transaction runs: what was killed may have sent its commit.
func (w *world) awaitCommits(t testing.TB) {
	t.Helper()
	harness.Await(t, "no transaction runs", func() bool {
		var none bool
		err := w.db.NewRaw("SELECT pg_snapshot_xmin(s) = pg_snapshot_xmax(s) FROM pg_current_snapshot() s").Scan(t.Context(), &none)
		return err == nil && none
	})
}

// committed is what the outbox holds of an account, in its order.
func (w *world) committed(t testing.TB, account string) []sighting {
	t.Helper()
	var rows []struct {
		XID uint64 `bun:"x"`
		ID  int64  `bun:"id"`
		Run string `bun:"run"`
		N   int    `bun:"n"`
	}
	err := w.db.NewRaw(`SELECT e.xid::text::bigint AS x, e.id, e.bootstrap_id AS run, coalesce((e.data ->> 'n')::int, 0) AS n FROM events e
		WHERE e.account_id = ? ORDER BY e.xid, e.id`, account).Scan(t.Context(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]sighting, len(rows))
	for i, r := range rows {
		all[i] = sighting{event.Position{XID: r.XID, ID: r.ID}, r.Run, r.N}
	}
	return all
}

// outOfOrder counts the events that do not follow the one before them of the same run.
func outOfOrder(all []sighting) (n int) {
	last := map[string]int{}
	for _, s := range all {
		if before, seen := last[s.Run]; seen && s.N != before+1 {
			n++
		}
		last[s.Run] = s.N
	}
	return n
}

// compare counts what of the truth was not seen, what was seen more than once, and what was seen in another order.
func compare(truth, seen []sighting) (lost, twice, disorder int) {
	times := make(map[event.Position]int, len(seen))
	for i, s := range seen {
		times[s.At]++
		if i > 0 && !seen[i-1].At.Before(s.At) && times[s.At] == 1 {
			disorder++
		}
	}
	for _, s := range truth {
		if times[s.At] == 0 {
			lost++
		}
	}
	for _, n := range times {
		if n > 1 {
			twice += n - 1
		}
	}
	return lost, twice, disorder
}

// locked is a source of randomness for several goroutines.
type locked struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func lockedRand(seed uint64) *locked { return &locked{rnd: rand.New(rand.NewPCG(seed, 1))} }

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.Uint64()
}

func (l *locked) intN(n int) int { return int(l.Uint64() % uint64(n)) }

func (l *locked) duration(most time.Duration) time.Duration { return time.Duration(l.intN(int(most))) }
