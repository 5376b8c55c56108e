package streams

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
)

// TestReconnects has followers of a busy tenant lose their connections at random bytes, and go on from the last cursor over either
// transport at either of two replicas.
func TestReconnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runs := make([]string, 12)
	for i := range runs {
		runs[i] = w.newRun(t, w.account)
	}
	tokens := callers(1)
	replicas := []*server{w.startServer(t, tokens), w.startServer(t, tokens)}
	rnd := lockedRand(*seed)
	writing, stopWriting := context.WithCancel(t.Context())
	defer stopWriting()
	var writers []*restarting
	for range 4 {
		r := &restarting{
			job: func() job {
				return job{URL: w.url, Runs: runs, Account: w.account, Seed: rnd.Uint64(), Pause: 10 * time.Millisecond}
			},
			line:  func([]byte) {},
			every: func() time.Duration { return time.Second + rnd.duration(4*time.Second) },
		}
		r.run(writing, t)
		writers = append(writers, r)
	}

	const followers = 10
	var left atomic.Int64 // connections still to be lost
	left.Store(int64(*reconnects))
	all := make([]*follower, followers)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = &follower{world: w, rnd: rnd, replicas: replicas, token: tokens[0], list: w.listOfStream(t), left: &left}
		wg.Go(func() { all[i].follow(t) })
	}
	for before := left.Load(); left.Load() > 0; before = left.Load() {
		harness.Await(t, "a follower loses its connection", func() bool { return left.Load() < before || t.Failed() })
	}
	stopWriting()
	for _, r := range writers {
		<-r.done
		if r.failed != nil {
			t.Error(r.failed)
		}
	}
	w.awaitCommits(t)
	truth := w.committed(t, w.account)
	end := truth[len(truth)-1].At
	for _, f := range all {
		f.end.Store(&end)
	}
	// One more event wakes those who have seen the last one already.
	marker := job{Account: w.account}
	if err := marker.tell(t.Context(), w.db.DB, runs[0]); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	lost, twice, disorder, seen, closed := 0, 0, 0, 0, 0
	for _, f := range all {
		if len(f.seen) == 0 {
			t.Error("a follower saw nothing")
			continue
		}
		from := 0
		for truth[from].At.Before(f.seen[0].At) {
			from++
		}
		l, d, o := compare(truth[from:], f.seen)
		lost, twice, disorder, seen, closed = lost+l, twice+d, disorder+o, seen+len(f.seen), closed+f.slow
	}
	if lost+twice+disorder > 0 {
		t.Errorf("%d events were lost, %d came twice, %d came out of order", lost, twice, disorder)
	}
	harness.Report(t, "reconnects", *seed, "followers=%d replicas=2 connections_cut=%d closed_as_slow=%d events=%d seen=%d lost=%d twice=%d reordered=%d",
		followers, int64(*reconnects)-left.Load(), closed, len(truth), seen, lost, twice, disorder)
}

// follower follows the tenant, whatever happens to its connections.
type follower struct {
	*world
	rnd      *locked
	replicas []*server
	token    string
	list     cursor.List
	left     *atomic.Int64
	end      atomic.Pointer[event.Position] // of the last event, once that is known

	after string
	seen  []sighting
	slow  int // times that it was told that it does not keep up
}

func (f *follower) follow(t testing.TB) {
	for deadline := time.Now().Add(10 * harness.Patience); time.Now().Before(deadline); {
		bytes := int64(math.MaxInt64)
		if len(f.seen) == 0 || f.left.Load() > 0 {
			bytes = int64(300 + f.rnd.intN(60_000))
		}
		err := f.once(t, bytes)
		refused, wasRefused := errors.AsType[refusedError](err)
		switch {
		case err == nil:
			return
		case wasRefused && refused.code == "RATE_LIMITED":
			f.slow++
		case wasRefused:
			t.Errorf("a follower was %v", err)
			return
		default:
			f.left.Add(-1)
		}
	}
	t.Error("a follower did not get to the end")
}

// once follows over one connection; nil when it has seen the last event.
func (f *follower) once(t testing.TB, bytes int64) error {
	transport := []follow{followSocket, followEvents}[f.rnd.intN(2)]
	variables := map[string]any{"tenantId": tenant}
	if f.after != "" {
		variables["after"] = f.after
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	return transport(ctx, shortLived(bytes), f.replicas[f.rnd.intN(len(f.replicas))].url, f.token, variables, func(c change) bool {
		at, ok := positionOf(f.list, c.Cursor)
		if !ok {
			t.Errorf("%q is no cursor of the stream", c.Cursor)
			return false
		}
		if end := f.end.Load(); end != nil && end.Before(at) {
			return false // the event that came to wake it
		}
		f.after = c.Cursor
		f.seen = append(f.seen, sighting{At: at, Run: c.Bootstrap.ID})
		return true
	})
}

// listOfStream reads the cursors of a subscription to the whole tenant.
func (w *world) listOfStream(t testing.TB) cursor.List {
	t.Helper()
	l, err := cursor.NewSealer(w.db).List(t.Context(), "bootstrapStatusChanged", tenant, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
