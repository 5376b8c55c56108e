package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

var restarts = flag.Int("restarts", 2, "how many servers TestRollingRestart restarts")

// manyRestarts is from how many on the test has the machine to itself: then servers have their default time to leave, and may take no longer.
const manyRestarts = 20

// notice is how long a server that is to stop tells the balancer so. One on a busy machine looks late.
func notice() time.Duration {
	if *restarts >= manyRestarts {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// balancer sends requests to the replicas in turn, as a load balancer does that looks at /readyz ten times a second.
type balancer struct {
	mu      sync.Mutex
	servers []*upstream
	turn    int
}

type upstream struct {
	*process
	ready atomic.Bool
	stop  context.CancelFunc
	ended chan struct{}
}

// join takes a server in and looks after it until it is told to leave.
func (b *balancer) join(p *process) *upstream {
	ctx, stop := context.WithCancel(context.Background())
	u := &upstream{process: p, stop: stop, ended: make(chan struct{})}
	u.look(ctx)
	b.mu.Lock()
	b.servers = append(b.servers, u)
	b.mu.Unlock()
	go func() {
		defer close(u.ended)
		for ticks := time.Tick(100 * time.Millisecond); ctx.Err() == nil; <-ticks {
			u.look(ctx)
		}
	}()
	return u
}

func (u *upstream) look(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+"/readyz", nil)
	if err != nil {
		return
	}
	resp, err := u.http.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	u.ready.Store(err == nil && resp.StatusCode == http.StatusOK)
}

func (b *balancer) leave(u *upstream) {
	u.stop()
	<-u.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = slices.DeleteFunc(b.servers, func(other *upstream) bool { return other == u })
}

// next is the ready server whose turn it is; nil when there is none.
func (b *balancer) next() *upstream {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.servers {
		b.turn++
		if u := b.servers[b.turn%len(b.servers)]; u.ready.Load() {
			return u
		}
	}
	return nil
}

// tallies are what the load counts.
type tallies struct{ requests, refused, retried, failed, streams, lost, twice atomic.Int64 }

// roll is the load on a rolling restart.
type roll struct {
	balancer
	tallies
	token string
	t     testing.TB
}

const rolledTenant = "rolled"

// TestRollingRestart restarts two replicas in turn under reads, mutations and streams. Nothing may fail but with a code that says
// that it can be tried again, and no stream may lose an event or get one twice.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.settings["limits"].(map[string]any)["drainNotice"] = notice().String()
	r := &roll{token: d.caller("user:roller", "tenant-admin compute-tenant/"+rolledTenant), t: t}
	events := d.newOutbox(t, rolledTenant)
	start := func() *upstream {
		p := d.start(t)
		t.Cleanup(func() { p.stop(t) })
		p.waitReady(t)
		return r.join(p)
	}
	replicas := []*upstream{start(), start()}

	ctx, cancel := context.WithCancel(t.Context())
	var load, streams sync.WaitGroup
	readers := make([]*reader, 10)
	for i := range readers {
		readers[i] = &reader{roll: r, transport: []string{overSocket, overEvents}[i%2], seen: map[int64]int{}}
		streams.Go(func() { readers[i].follow(ctx) })
	}
	harness.Await(t, "every stream has its first event", func() bool {
		if _, err := events.emit(ctx); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(readers, func(f *reader) bool { return f.last() == 0 })
	})
	stopLoad := make(chan struct{})
	for i := range 4 {
		load.Go(func() { r.read(ctx, stopLoad) })
		load.Go(func() { r.write(ctx, stopLoad, i) })
	}
	load.Go(func() {
		for ticks := time.Tick(10 * time.Millisecond); !closed(stopLoad); <-ticks {
			if _, err := events.emit(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})

	var slowest time.Duration
	for i := range *restarts {
		old := replicas[i%2]
		began := time.Now()
		old.process.stop(t)
		slowest = max(slowest, time.Since(began))
		r.leave(old)
		replicas[i%2] = start()
	}
	close(stopLoad)
	load.Wait()
	last := events.number
	harness.Await(t, "every stream has the last event", func() bool {
		return !slices.ContainsFunc(readers, func(f *reader) bool { return f.last() < last })
	})
	cancel()
	streams.Wait()
	for _, u := range replicas {
		r.leave(u)
	}
	for _, f := range readers {
		f.judge(last)
	}
	if r.failed.Load() > 0 || r.lost.Load() > 0 || r.twice.Load() > 0 || *restarts >= manyRestarts && slowest > 10*time.Second {
		t.Fail()
	}
	harness.Report(t, "rolling-restart", 0, "restarts=%d requests=%d retried=%d refused-connections=%d failed-not-retryable=%d max-drain=%.1fs reconnects=%d events=%d streams lost=%d twice=%d",
		*restarts, r.requests.Load(), r.retried.Load(), r.refused.Load(), r.failed.Load(), slowest.Seconds(),
		r.streams.Load()-int64(len(readers)), last-readers[0].first, r.lost.Load(), r.twice.Load())
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// send makes a REST call, again at another server as long as its code allows it, and reports its answer.
func (r *roll) send(ctx context.Context, method string, body []byte) []byte {
	r.requests.Add(1)
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline) && ctx.Err() == nil; {
		u := r.next()
		if u == nil {
			time.Sleep(10 * time.Millisecond) // as a client does that is told to try later
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url+restPath+method, bytes.NewReader(body))
		if err != nil {
			r.t.Error(err)
			return nil
		}
		req.Header.Set("Authorization", "Bearer "+r.token)
		req.Header.Set("Content-Type", typeJSON)
		resp, err := u.http.Do(req)
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			r.refused.Add(1)
			continue
		}
		if err == nil {
			body, readErr := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err = readErr; err == nil && resp.StatusCode == http.StatusOK {
				return body
			}
			if err == nil {
				err = fmt.Errorf("%s: %s", resp.Status, body)
			}
			var refused struct{ Error struct{ Code problem.Code } }
			if json.Unmarshal(body, &refused) == nil && (refused.Error.Code == problem.Unavailable || refused.Error.Code == problem.RateLimited) {
				r.retried.Add(1)
				continue
			}
		}
		r.failed.Add(1)
		r.t.Errorf("%s: %v", method, err)
		return nil
	}
	if ctx.Err() == nil {
		r.failed.Add(1)
		r.t.Errorf("%s: no server took it", method)
	}
	return nil
}

func (r *roll) read(ctx context.Context, stop <-chan struct{}) {
	for ticks := time.Tick(5 * time.Millisecond); !closed(stop); <-ticks {
		r.send(ctx, "list", fmt.Appendf(nil, `{"tenantId":%q}`, rolledTenant))
	}
}

// write creates accounts and deletes them again, each with a key under which a repeat is the same.
func (r *roll) write(ctx context.Context, stop <-chan struct{}, writer int) {
	for i := 0; !closed(stop); i++ {
		name := fmt.Sprintf("w%d-%d", writer, i)
		body := fmt.Appendf(nil, `{"tenantId":%q,"provider":"ssh","name":%q,"config":{"machines":[]},"idempotencyKey":%q}`, rolledTenant, name, name)
		var first, again struct{ ID string }
		created, repeated := r.send(ctx, "create", body), r.send(ctx, "create", body)
		if json.Unmarshal(created, &first) != nil || json.Unmarshal(repeated, &again) != nil || first.ID == "" || first.ID != again.ID {
			r.failed.Add(1)
			r.t.Errorf("creating %s gave %s, and again %s", name, created, repeated)
			return
		}
		if i%2 == 0 {
			r.send(ctx, "update", fmt.Appendf(nil, `{"tenantId":%q,"accountId":%q,"config":{"machines":[]}}`, rolledTenant, first.ID))
		}
	}
}

// reader is a client of one stream that goes on from its cursor wherever it can.
type reader struct {
	*roll
	transport string

	mu     sync.Mutex
	seen   map[int64]int
	first  int64
	newest int64
	cursor *string
}

func (f *reader) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

func (f *reader) follow(ctx context.Context) {
	const document = `subscription ($t: ID!, $after: String) { bootstrapStatusChanged(tenantId: $t, after: $after) { cursor at } }`
	for ctx.Err() == nil {
		u := f.next()
		if u == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		f.mu.Lock()
		s := subscription{f.transport, f.token, document, map[string]any{"t": rolledTenant, "after": f.cursor}}
		f.mu.Unlock()
		end, err := s.run(ctx, u.streaming(), u.url, f.take)
		f.streams.Add(1)
		retryable := end.code == "" || end.code == problem.Unavailable || end.code == problem.RateLimited
		if ctx.Err() == nil && err == nil && (end.completed || !retryable) {
			f.failed.Add(1)
			f.t.Errorf("a stream over %s ended with %+v", f.transport, end)
			return
		}
	}
}

func (f *reader) take(data json.RawMessage) {
	var m struct {
		Data struct {
			BootstrapStatusChanged struct {
				Cursor string
				At     time.Time
			}
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		f.t.Error(err)
		return
	}
	change := m.Data.BootstrapStatusChanged
	number := change.At.UnixMilli()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == 0 {
		f.first = number
	}
	f.newest, f.cursor = max(f.newest, number), &change.Cursor
	f.seen[number]++
}

// judge counts what the stream lost, and what it got twice, since its first event.
func (f *reader) judge(last int64) {
	for n := f.first; n <= last; n++ {
		switch times := f.seen[n]; {
		case times == 0:
			f.lost.Add(1)
		case times > 1:
			f.twice.Add(int64(times - 1))
		}
	}
}
