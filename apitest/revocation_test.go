package apitest

import (
	"bytes"
	"context"
	bits "encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

var (
	revocations    = flag.Int("revocations", 24, "how many rights and tokens TestRevocation takes away")
	revokedStreams = flag.Int("revoked-streams", 24, "how many streams TestRevocation keeps open")
	revokeSeed     = flag.Uint64("revoke-seed", 1, "what TestRevocation chooses by")
)

const (
	revokedTenant = "revoked"

	// perHolder is how many streams each holder of a right has: over both transports, at both replicas.
	perHolder = 4
	// atOnce is how many holders lose their right in one round.
	atOnce = 8
	// promised is within what time a right that was taken away must be gone everywhere.
	promised = time.Second
	// figuresCount from this many revocations on: fewer are a test of what happens, not of how fast.
	figuresCount = 500
)

// wire is the way from one replica to the database. The connection that follows rights is marked on it.
func wire(t testing.TB, database string) (relay *harness.Relay, url string) {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	network, address := networkOf(config.Host, config.Port)
	relay = harness.NewRelay(t, "127.0.0.1:0", func(replica net.Conn) (net.Conn, bool, error) {
		first, err := firstMessage(replica)
		if err != nil {
			return nil, false, err
		}
		server, err := net.Dial(network, address)
		if err == nil {
			_, err = server.Write(first)
		}
		return server, bytes.Contains(first, []byte("compute-api authz\x00")), err
	})
	return relay, urlAt(config, relay.Address)
}

// firstMessage names the connection's purpose.
func firstMessage(replica io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(replica, head); err != nil {
		return nil, err
	}
	rest := make([]byte, min(bits.BigEndian.Uint32(head), 10_000)-4)
	_, err := io.ReadFull(replica, rest)
	return append(head, rest...), err
}

func networkOf(host string, port uint16) (network, address string) {
	if host[0] == '/' {
		return "unix", fmt.Sprintf("%s/.s.PGSQL.%d", host, port)
	}
	return "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func urlAt(config *pgx.ConnConfig, address string) string {
	u := url.URL{Scheme: "postgres", Host: address, Path: "/" + config.Database, RawQuery: "sslmode=disable", User: url.UserPassword(config.User, config.Password)}
	return u.String()
}

// holder is somebody who loses a right again and again: a user its binding, a program its token; and who is barred gets a denial.
type holder struct {
	*revoking
	subject string
	program bool
	barred  bool

	mu      sync.Mutex
	token   string
	held    chan struct{} // closed while the right is held
	revoked time.Time     // when it began to be taken away; zero while it is held
	streams int           // that have had an event since it was given
	got     []int64       // the events that those have had
	ends    chan time.Duration
}

// revoking is the state of the test.
type revoking struct {
	t        testing.TB
	d        *deployment
	servers  [2]*process
	wires    [2]*harness.Relay
	admin    string
	random   *rand.Rand
	holders  []*holder
	ctx      context.Context
	written  writings
	after    atomic.Int64 // events that were delivered and had been written after the commit that took the right away
	missed   atomic.Int64 // events that were written so, before all streams of the one without the right had ended
	unlooked atomic.Int64 // streams that ended for another reason
}

// writings are the events of the test, with the version of the policy that the statement saw that wrote each: the database says what came first.
type writings struct {
	mu       sync.Mutex
	outbox   *outbox
	versions map[int64]int64 // by number
}

const insertSeeing = `WITH written AS (` + insertEvent + `) SELECT version FROM policy_version`

func (w *writings) add(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var version int64
	number, err := w.outbox.next(ctx)
	if err == nil {
		err = w.outbox.d.db.Pool.QueryRow(ctx, insertSeeing, w.outbox.tenant, w.outbox.boot, w.outbox.account, number).Scan(&version)
	}
	w.versions[number] = version
	return err
}

// since counts the events that were written when the policy had come to that version.
func (w *writings) since(version int64) (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.versions {
		if v >= version {
			n++
		}
	}
	return n
}

// among counts those of some events.
func (w *writings) among(numbers []int64, version int64) (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range numbers {
		if w.versions[number] >= version {
			n++
		}
	}
	return n
}

// TestRevocation takes rights and tokens away from holders with open streams at two replicas, half of the time while the link that tells the
// replicas is cut, or stands and carries nothing. Every stream must end, every call be refused, and no event be delivered that was written after the
// commit, however late a replica hears of it.
func TestRevocation(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := &revoking{t: t, d: d, ctx: ctx, random: rand.New(rand.NewPCG(*revokeSeed, 0))}
	r.admin = d.caller("user:revoker", "tenant-admin compute-tenant/"+revokedTenant)
	for i := range *revokedStreams / perHolder {
		h := &holder{revoking: r, program: i%5 == 4, barred: i%5 == 3, subject: fmt.Sprintf("user:holder-%d", i), held: make(chan struct{}), ends: make(chan time.Duration, perHolder)}
		if !h.program {
			h.token = d.caller(h.subject)
		}
		r.holders = append(r.holders, h)
	}
	r.written = writings{outbox: d.newOutbox(t, revokedTenant), versions: map[int64]int64{}}
	for i := range r.servers {
		r.wires[i], d.settings["database"].(map[string]any)["url"] = wire(t, d.database)
		r.servers[i] = d.start(t)
		t.Cleanup(func() { r.servers[i].stop(t) })
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, s := range r.servers {
		s.waitReady(t)
	}
	for _, h := range r.holders {
		h.give()
		for i := range perHolder {
			running.Go(func() { h.follow(r.servers[i/2], []string{overSocket, overEvents}[i%2]) })
		}
	}
	running.Go(func() {
		for ticks := time.Tick(500 * time.Millisecond); ctx.Err() == nil; <-ticks {
			if err := r.written.add(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})

	figures := map[string]*figure{}
	count := 0
	for round := 0; count < *revocations && !t.Failed(); round++ {
		mode := []string{"told", "cut", "told", "silent"}[round%4]
		if figures[mode] == nil {
			figures[mode] = &figure{}
		}
		chosen := r.choose(min(atOnce, *revocations-count))
		r.disturb(mode)
		var losses sync.WaitGroup
		for _, h := range chosen {
			losses.Go(func() { figures[mode].add(h.lose()) })
		}
		losses.Wait()
		for _, h := range chosen {
			h.give()
		}
		count += len(chosen)
	}
	slowest := time.Duration(0)
	for mode, f := range figures {
		t.Logf("%-7s slowest stream %4d ms, slowest call %4d ms", mode, f.stream.Milliseconds(), f.call.Milliseconds())
		slowest = max(slowest, f.stream, f.call)
	}
	if r.after.Load() > 0 || r.missed.Load() < int64(count) || count >= figuresCount && slowest > promised {
		t.Fail()
	}
	harness.Report(t, "revocation", *revokeSeed, "revocations=%d streams=%d slowest-ms=%d written-after=%d delivered-of-those=%d other-ends=%d",
		count, len(r.holders)*perHolder, slowest.Milliseconds(), r.missed.Load(), r.after.Load(), r.unlooked.Load())
}

// figure is the slowest end of a stream and the slowest refusal of a call.
type figure struct {
	mu           sync.Mutex
	stream, call time.Duration
}

func (f *figure) add(stream, call time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stream, f.call = max(f.stream, stream), max(f.call, call)
}

// choose waits until all streams of some holders have had an event.
func (r *revoking) choose(n int) []*holder {
	var chosen []*holder
	for _, i := range r.random.Perm(len(r.holders))[:min(n, len(r.holders))] {
		h := r.holders[i]
		harness.Await(r.t, "the streams of "+h.subject, func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.streams == perHolder
		})
		chosen = append(chosen, h)
	}
	return chosen
}

func (r *revoking) disturb(mode string) {
	switch mode {
	case "cut":
		if err := r.terminateLinks(); err != nil {
			r.t.Error(err)
		}
	case "silent":
		for _, w := range r.wires {
			w.Hush()
		}
	}
}

// terminateLinks needs the rights of the database's owner, which the pool gives up.
func (r *revoking) terminateLinks() error {
	conn, err := pgx.Connect(r.ctx, r.d.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(r.ctx) }()
	_, err = conn.Exec(r.ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'compute-api authz' AND datname = current_database()`)
	return err
}

func (r *revoking) exec(query string, args ...any) {
	if _, err := r.d.db.Pool.Exec(r.ctx, query, args...); err != nil && r.ctx.Err() == nil {
		r.t.Error(err)
	}
}

// give gives the holder its right: a program a new token.
func (h *holder) give() {
	if h.program {
		out := h.servers[0].execute(h.t, h.admin, `mutation ($t: ID!, $n: String!) { createApiToken(input: {tenantId: $t, name: $n}) { token apiToken { subject } } }`,
			map[string]any{"t": revokedTenant, "n": h.subject[len("user:"):]})
		made := member(out.Data, "createApiToken")
		h.mu.Lock()
		h.token, _ = member(made, "token").(string)
		subject, _ := member(member(made, "apiToken"), "subject").(string)
		h.mu.Unlock()
		if subject == "" {
			h.t.Errorf("no token was made: %+v", out)
		}
		h.exec(`INSERT INTO role_bindings (subject, role, object, effect) VALUES ($1, 'provider-viewer', 'compute-tenant/' || $2, 'allow') ON CONFLICT DO NOTHING`, subject, revokedTenant)
	} else {
		h.exec(`DELETE FROM role_bindings WHERE subject = $1 AND effect = 'deny'`, h.subject)
		h.exec(`INSERT INTO role_bindings (subject, role, object, effect) VALUES ($1, 'provider-viewer', 'compute-tenant/' || $2, 'allow') ON CONFLICT DO NOTHING`, h.subject, revokedTenant)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked, h.streams, h.got = time.Time{}, 0, nil
	close(h.held)
}

// lose takes the right away and waits until every stream has ended and both replicas refuse. It gives the longest times from the commit.
func (h *holder) lose() (stream, call time.Duration) {
	var calls sync.WaitGroup
	committed := make(chan struct{})
	refusals := make(chan time.Duration, len(h.servers))
	for _, s := range h.servers {
		calls.Go(func() { refusals <- h.askUntilRefused(s, committed) })
	}
	tx, err := h.d.db.Pool.Begin(h.ctx)
	if err != nil {
		h.t.Error(err)
		return 0, 0
	}
	query := `DELETE FROM role_bindings WHERE subject = $1`
	args := []any{h.subject}
	switch {
	case h.program:
		query, args = `UPDATE api_tokens SET revoked_at = now(), revoked_by = 'test' WHERE name = $1 AND revoked_at IS NULL`, []any{h.subject[len("user:"):]}
	case h.barred:
		query, args = `INSERT INTO role_bindings (subject, role, object, effect) VALUES ($1, 'provider-viewer', 'compute-tenant/' || $2, 'deny')`, []any{h.subject, revokedTenant}
	}
	tag, err := tx.Exec(h.ctx, query, args...)
	if err != nil || tag.RowsAffected() != 1 {
		h.t.Errorf("taking away the right of %s: %s %v", h.subject, tag, err)
	}
	var version int64
	if err := tx.QueryRow(h.ctx, "SELECT version FROM policy_version").Scan(&version); err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.held, h.revoked = make(chan struct{}), time.Now()
	h.mu.Unlock()
	if err := tx.Commit(h.ctx); err != nil {
		h.t.Error(err)
	}
	close(committed)
	if err := h.written.add(h.ctx); err != nil {
		h.t.Error(err)
	}
	for range perHolder {
		select {
		case took := <-h.ends:
			stream = max(stream, took)
		case <-time.After(harness.Patience):
			h.t.Errorf("a stream of %s goes on", h.subject)
			return stream, call
		}
	}
	h.mu.Lock()
	h.after.Add(h.written.among(h.got, version))
	h.mu.Unlock()
	h.missed.Add(h.written.since(version))
	calls.Wait()
	for range h.servers {
		call = max(call, <-refusals)
	}
	return stream, call
}

// askUntilRefused gives the time from the commit to the beginning of the last call that was answered.
func (h *holder) askUntilRefused(s *process, committed <-chan struct{}) (last time.Duration) {
	body := fmt.Appendf(nil, `{"tenantId":%q}`, revokedTenant)
	h.mu.Lock()
	token := h.token
	h.mu.Unlock()
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // so as not to be the load
		began := time.Now()
		a, err := s.try(h.ctx, http.MethodPost, restPath+"list", token, typeJSON, body)
		if err != nil {
			h.t.Error(err)
			return last
		}
		switch readREST(h.t, a).Code {
		case "":
			if closed(committed) {
				h.mu.Lock()
				last = max(last, began.Sub(h.revoked))
				h.mu.Unlock()
			}
		case problem.Forbidden, problem.Unauthenticated:
			return last
		default: // the bindings could not be read
		}
	}
	h.t.Errorf("%s is not refused", h.subject)
	return last
}

// follow keeps a stream open for as long as the right is held.
func (h *holder) follow(s *process, transport string) {
	const document = `subscription ($t: ID!) { bootstrapStatusChanged(tenantId: $t) { at } }`
	for h.ctx.Err() == nil {
		h.mu.Lock()
		held := h.held
		h.mu.Unlock()
		select {
		case <-held:
		case <-h.ctx.Done():
			return
		}
		h.mu.Lock()
		token := h.token
		h.mu.Unlock()
		counted := false
		end, err := subscription{transport, token, document, map[string]any{"t": revokedTenant}}.run(h.ctx, s.streaming(), s.url, func(data json.RawMessage) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.got = append(h.got, numberOf(h.t, data))
			if !counted && h.revoked.IsZero() {
				counted = true
				h.streams++
			}
		})
		h.mu.Lock()
		since := time.Since(h.revoked)
		if counted {
			if h.revoked.IsZero() { // it is opened again, and counted again
				h.streams--
				h.unlooked.Add(1)
			} else {
				h.ends <- since
			}
		}
		h.mu.Unlock()
		if !counted { // the right is not seen yet
			time.Sleep(50 * time.Millisecond)
		}
		refused := end.code == problem.Forbidden || end.code == problem.Unauthenticated || end.closed == 4403
		if h.ctx.Err() == nil && err == nil && !refused && end.code != problem.Unavailable {
			h.t.Errorf("a stream of %s over %s ended with %+v", h.subject, transport, end)
		}
	}
}
