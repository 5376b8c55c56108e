package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"better/compute/apitest/harness"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
	"better/compute/model"
)

// perSubject is how many sockets, and how many event streams, one caller may have by default; perSocket is that of operations.
const perSubject, perSocket = 100, 20

const (
	// manySubscriptions is from how many on the bounds below hold. Of fewer one cannot tell: memory grows in large steps, and one wait of
	// the machine's is the p99 of a few.
	manySubscriptions = 1000

	// maxKiB is what a subscription may take of memory.
	maxKiB = 250

	// maxRatio is how many times as long an event may take to the others once readers have stopped reading, as far as a machine that is busy lets
	// one tell.
	maxRatio = 5
)

// TestSubscriptions opens many subscriptions at one server, measures what they cost and how long an event takes to the last of them,
// has one reader stop reading, and sees that nothing is left when they are gone.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quiet := w.newAccount(t, "quiet")
	crowd := &crowd{world: w, t: t, account: quiet, open: map[string]*round{}}
	crowd.tokens = callers(2 + *subscriptions/perSubject)
	crowd.server = w.startServer(t, crowd.tokens)
	crowd.ctx, crowd.leave = context.WithCancel(context.Background())
	defer crowd.leave()
	goroutines := crowd.server.metric(t, "go_goroutines")

	sockets, shared := *subscriptions*2/5, *subscriptions/5
	streams := *subscriptions - sockets - shared
	perOne := crowd.cost(func() { crowd.openSockets(sockets, 1) })
	perShared := crowd.cost(func() { crowd.openSockets(shared/perSocket, perSocket) })
	perStream := crowd.cost(func() { crowd.openStreams(streams) })
	crowd.awaitMembers(*subscriptions)

	flood := newFlood(crowd)
	rounds := 5 + *subscriptions/200
	crowd.rounds(3, func() {}) // what is read once and kept
	alone := crowd.rounds(rounds, func() {})
	flood.openReaders()
	before := crowd.rounds(rounds, flood.pour)
	flood.stop()
	after := crowd.rounds(rounds, flood.pour)
	lost, twice := flood.resume()
	if lost+twice > 0 {
		t.Errorf("readers that were cut off lost %d events, and got %d twice", lost, twice)
	}
	if how := flood.readers[0].how; how != "RATE_LIMITED" {
		t.Errorf("the stream of the reader that stopped ended with %s", how)
	}

	crowd.leave()
	crowd.members.Wait()
	var left float64
	harness.Await(t, "the server has let go of all readers", func() bool {
		left = crowd.server.metric(t, "go_goroutines") - goroutines
		return left <= 0 && crowd.server.metric(t, "compute_websockets_open") == 0 && crowd.server.metric(t, "compute_sse_streams_open") == 0
	})
	if left > 0 {
		t.Errorf("%.0f goroutines are left", left)
	}
	for how, each := range map[string]float64{"socket": perOne / float64(sockets), "subscription of a shared socket": perShared / float64(shared), "event stream": perStream / float64(streams)} {
		if *subscriptions >= manySubscriptions && each > maxKiB {
			t.Errorf("a %s takes %.0f KiB", how, each)
		}
	}
	if ratio := float64(quantile(after, 0.99)) / float64(quantile(before, 0.99)); *subscriptions >= manySubscriptions && ratio > maxRatio {
		t.Errorf("readers that stopped reading make it %.1f times as long for the others", ratio)
	}
	harness.Report(t, "streams", *seed, "subscriptions=%d sockets=%d shared_sockets=%dx%d sse=%d KiB_each=%.0f/%.0f/%.0f goroutines_left=%.0f",
		*subscriptions, sockets, shared/perSocket, perSocket, streams, perOne/float64(sockets), perShared/float64(shared), perStream/float64(streams), max(left, 0))
	harness.Report(t, "streams-latency", *seed, "events=%d deliveries=%d p50=%s p99=%s max=%s", rounds, len(alone), quantile(alone, 0.5), quantile(alone, 0.99), quantile(alone, 1))
	harness.Report(t, "streams-slow-reader", *seed, "others_p99_before=%s others_p99_after=%s ratio=%.2f flood=%d stopped=%s never_reads=%s lost=%d twice=%d",
		quantile(before, 0.99), quantile(after, 0.99), float64(quantile(after, 0.99))/float64(quantile(before, 0.99)),
		flood.poured, flood.readers[0].how, flood.readers[1].how, lost, twice)
}

func quantile(waits []time.Duration, q float64) time.Duration {
	slices.Sort(waits)
	return waits[min(int(q*float64(len(waits))), len(waits)-1)].Round(10 * time.Microsecond)
}

// crowd is everybody who follows the quiet account.
type crowd struct {
	*world
	t       testing.TB
	server  *server
	account string
	tokens  []string
	ctx     context.Context
	leave   context.CancelFunc
	members sync.WaitGroup
	sockets int

	mu    sync.Mutex
	count int
	open  map[string]*round
}

// round is one event on its way to everybody.
type round struct {
	began time.Time
	waits []time.Duration
	all   chan struct{}
}

// cost is by how many KiB the server's memory grows.
func (c *crowd) cost(open func()) float64 {
	c.t.Helper()
	before := c.server.memory(c.t)
	open()
	return c.server.memory(c.t) - before
}

// memory is what the process has in memory, in KiB.
func (s *server) memory(t testing.TB) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("the server has no memory")
	return 0
}

func (c *crowd) variables() map[string]any {
	return map[string]any{"tenantId": tenant, "accountId": c.account}
}

// openSockets opens n sockets with so many subscriptions on each.
func (c *crowd) openSockets(n, each int) {
	c.t.Helper()
	for range n {
		conn, err := dialSocket(c.ctx, http.DefaultClient, c.server.url, c.tokens[c.sockets/perSubject])
		if err != nil {
			c.t.Fatal(err)
		}
		for id := range each {
			if err := subscribe(c.ctx, conn, strconv.Itoa(id), smallDocument, c.variables()); err != nil {
				c.t.Fatal(err)
			}
		}
		c.members.Go(func() {
			defer func() { _ = conn.CloseNow() }()
			for {
				f, err := receive(c.ctx, conn)
				if err != nil {
					c.left(err)
					return
				}
				if _, err := f.take(c.saw); err != nil {
					c.left(err)
					return
				}
			}
		})
		c.add(each)
		c.sockets++
	}
}

func (c *crowd) openStreams(n int) {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	opened := make(chan struct{})
	for i := range n {
		c.members.Go(func() {
			err := followOpened(c.ctx, client, c.server.url, c.tokens[i/perSubject], c.variables(), func() { opened <- struct{}{} }, c.saw)
			c.left(err)
		})
		select {
		case <-opened:
			c.add(1)
		case <-time.After(harness.Patience):
			c.t.Fatal("an event stream does not open")
		}
	}
}

func (c *crowd) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += n
}

// left is told of each member that ends. Before leave none may.
func (c *crowd) left(err error) {
	if c.ctx.Err() == nil {
		c.t.Errorf("a follower ended with %v", err)
	}
}

// awaitMembers sends events until everybody gets them: a subscription begins some time after it was asked for.
func (c *crowd) awaitMembers(n int) {
	c.t.Helper()
	if c.count != n {
		c.t.Fatalf("%d subscriptions are open, want %d", c.count, n)
	}
	harness.Await(c.t, "everybody follows", func() bool {
		r := c.begin()
		select {
		case <-r.all:
			return true
		case <-time.After(10 * time.Second):
			return false
		}
	})
}

// begin writes one event, of a run of its own, in a transaction that commits after the round began.
func (c *crowd) begin() *round {
	c.t.Helper()
	run := c.newRun(c.t, c.account)
	r := &round{all: make(chan struct{})}
	c.mu.Lock()
	r.began = time.Now()
	c.open[run] = r
	c.mu.Unlock()
	c.write(c.t, run, c.account)
	return r
}

// tellMany writes n events of a run at once.
func (w *world) tellMany(t testing.TB, run, account string, n int) {
	t.Helper()
	w.exec(t, `INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
		SELECT ?, 'provider.bootstrap.progressed', ?, ?, '{"data": {"from": "claiming", "to": "identifying"}}' FROM generate_series(1, ?)`, tenant, run, account, n)
}

func (w *world) write(t testing.TB, run, account string) {
	t.Helper()
	err := event.Append(t.Context(), w.db.DB, event.Record{
		TenantID: tenant, Type: "provider.bootstrap.started", BootstrapID: run, AccountID: account, Data: model.JSON(`{"data": {"from": null, "to": "claiming"}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// saw takes a change that a member got.
func (c *crowd) saw(got change) (more bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[got.Bootstrap.ID]
	if r == nil {
		c.t.Errorf("somebody got a change of %s", got.Bootstrap.ID)
		return true
	}
	r.waits = append(r.waits, now.Sub(r.began))
	if len(r.waits) == c.count {
		close(r.all)
	}
	return true
}

// rounds sends n events, one after the other, each behind what else is poured in, and gives how long each was on its way to each member.
func (c *crowd) rounds(n int, pour func()) (waits []time.Duration) {
	c.t.Helper()
	for range n {
		pour()
		r := c.begin()
		select {
		case <-r.all:
		case <-time.After(harness.Patience):
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("an event reached %d of %d followers", len(r.waits), c.count)
		}
		waits = append(waits, r.waits...)
	}
	return waits
}

// followOpened is followEvents that tells when the stream is open.
func followOpened(ctx context.Context, c *http.Client, url, token string, variables map[string]any, opened func(), take func(change) bool) error {
	resp, err := openEvents(ctx, c, url, token, variables)
	if err != nil {
		return err
	}
	opened()
	return readEvents(resp, take)
}

// flood is a busy account of the same tenant, with two readers of its own that stop reading: the first for a while, the second, whose
// messages are big, until the server gives it up.
type flood struct {
	crowd   *crowd
	account string
	run     string
	list    cursor.List
	readers [2]*floodReader
	poured  int
}

type floodReader struct {
	document string
	stopped  chan struct{} // closed when it is to stop reading
	goOn     chan struct{} // closed when it may read again
	ended    chan struct{} // closed when its first connection has ended
	how      string        // then

	before int // how many events it had seen when pouring began

	mu    sync.Mutex
	seen  []sighting
	after string
}

// chunk is less than what a follower may be behind, burst is more.
const chunk, burst = 100, 1000

func newFlood(c *crowd) *flood {
	c.t.Helper()
	f := &flood{crowd: c, account: c.newAccount(c.t, "flood")}
	f.run = c.newRun(c.t, f.account)
	c.exec(c.t, `UPDATE bootstraps SET failure = jsonb_build_object('reason', 'INTERNAL', 'message', '', 'logTail', jsonb_build_array(repeat('x', 30000)))
		WHERE id = ?`, f.run)
	var err error
	if f.list, err = cursor.NewSealer(c.db).List(c.t.Context(), "bootstrapStatusChanged", tenant, cursor.Optional(&f.account), ""); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// openReaders opens the two readers, and waits until they follow.
func (f *flood) openReaders() {
	t := f.crowd.t
	t.Helper()
	for i, document := range []string{smallDocument, bigDocument} {
		r := &floodReader{document: document, stopped: make(chan struct{}), goOn: make(chan struct{}), ended: make(chan struct{})}
		f.readers[i] = r
		conn, err := f.dial(r)
		if err != nil {
			t.Fatal(err)
		}
		f.crowd.members.Go(func() {
			defer func() { _ = conn.CloseNow() }()
			defer close(r.ended)
			r.how = r.read(f, conn)
		})
	}
	var written time.Time
	harness.Await(t, "the flood is followed", func() bool {
		if time.Since(written) > time.Second/4 { // or on a busy machine there are more than a reader may be behind
			f.write(1)
			written = time.Now()
		}
		return f.readers[0].count() > 0 && f.readers[1].count() > 0
	})
	truth := f.crowd.committed(t, f.account)
	for _, r := range f.readers {
		harness.Await(t, "the flood's readers have all of it", func() bool { return r.last() == truth[len(truth)-1].At })
		r.before = r.count()
	}
	f.poured = 0
}

func (f *flood) dial(r *floodReader) (*websocket.Conn, error) {
	variables := map[string]any{"tenantId": tenant, "accountId": f.account}
	if r.after != "" {
		variables["after"] = r.after
	}
	conn, err := dialSocket(f.crowd.ctx, http.DefaultClient, f.crowd.server.url, f.crowd.tokens[len(f.crowd.tokens)-1])
	if err != nil {
		return nil, err
	}
	return conn, subscribe(f.crowd.ctx, conn, "1", r.document, variables)
}

// read reads until the connection or its stream ends, with a pause, and says how it ended.
func (r *floodReader) read(f *flood, conn *websocket.Conn) (how string) {
	for {
		select {
		case <-r.stopped:
			<-r.goOn
		default:
		}
		m, err := receive(f.crowd.ctx, conn)
		if err == nil {
			_, err = m.take(func(c change) bool { return r.take(f, c) })
		}
		if refused, ok := errors.AsType[refusedError](err); ok {
			return refused.code
		}
		if err != nil {
			return "DROPPED"
		}
	}
}

func (r *floodReader) take(f *flood, c change) bool {
	at, ok := positionOf(f.list, c.Cursor)
	if !ok {
		f.crowd.t.Errorf("%q is no cursor of the stream", c.Cursor)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, sighting{At: at})
	r.after = c.Cursor
	return true
}

func (r *floodReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// last is the position of what it saw last.
func (r *floodReader) last() event.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[len(r.seen)-1].At
}

// write writes n events in one transaction.
func (f *flood) write(n int) {
	f.crowd.t.Helper()
	f.crowd.tellMany(f.crowd.t, f.run, f.account, n)
	f.poured += n
}

// pour writes a chunk. Readers that read are let have all before it first.
func (f *flood) pour() {
	t := f.crowd.t
	t.Helper()
	for _, r := range f.readers {
		select {
		case <-r.stopped:
		default:
			harness.Await(t, "the flood's readers keep up", func() bool { return r.count()-r.before >= f.poured })
		}
	}
	f.write(chunk)
}

// stop has the readers stop reading, and the first be so far behind at once that it is cut off. It then reads what there is for it, before
// its connection is taken for dead.
func (f *flood) stop() {
	for _, r := range f.readers {
		close(r.stopped)
	}
	f.write(burst)
	close(f.readers[0].goOn)
	<-f.readers[0].ended
}

// resume lets the readers read what is left for them, then go on over new connections, and counts what they missed.
func (f *flood) resume() (lost, twice int) {
	t := f.crowd.t
	t.Helper()
	harness.Await(t, "the reader that does not read is dropped", func() bool {
		return f.crowd.server.metric(t, "compute_websockets_open") <= float64(f.crowd.sockets)
	})
	close(f.readers[1].goOn)
	for _, r := range f.readers {
		<-r.ended
		r.stopped = make(chan struct{})
		conn, err := f.dial(r)
		if err != nil {
			t.Fatal(err)
		}
		f.crowd.members.Go(func() {
			defer func() { _ = conn.CloseNow() }()
			r.read(f, conn)
		})
	}
	truth := f.crowd.committed(t, f.account)
	end := truth[len(truth)-1].At
	for _, r := range f.readers {
		harness.Await(t, "the flood's readers have come to its end", func() bool {
			return r.last() == end
		})
		r.mu.Lock()
		from := slices.IndexFunc(truth, func(s sighting) bool { return s.At == r.seen[0].At })
		l, d, o := compare(truth[from:], r.seen)
		r.mu.Unlock()
		lost, twice = lost+l, twice+d+o
	}
	return lost, twice
}
