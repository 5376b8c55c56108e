// Package walls shows that two walls stand between tenants, the decisions and the database's row security, and that each holds when
// the other is torn down.
//
// It has no code but tests. A generator sends requests of everything that the schema and the REST interface have, as callers of one tenant who
// name their own and others' things, and looks for marks of other tenants in every byte that comes back. The invariant: no mark of
// a tenant reaches another, unless both walls are down; then some do, or else the generator could not see.
package walls

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"better/compute/internal/leaktest"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

var (
	requests = flag.Int("requests", 800, "how many requests each mode gets")
	seed     = flag.Uint64("seed", 0, "repeats a run; 0 takes one at random")
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

func TestWalls(t *testing.T) {
	for _, rowSecurity := range []bool{true, false} {
		mode := map[[2]bool]string{
			{true, true}: "both", {true, false}: "decisions", {false, true}: "rows", {false, false}: "none",
		}[[2]bool{decides, rowSecurity}]
		t.Run(mode, func(t *testing.T) { besiege(t, mode, rowSecurity) })
	}
}

// followed is how long a stream is listened to.
const followed = 300 * time.Millisecond

func besiege(t *testing.T, mode string, rowSecurity bool) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	w := newWorld(t)
	if !rowSecurity {
		w.tearDown(t)
	}
	j := &judge{w: w, edge: newEdge(t, w), seen: &memory{told: map[[2]string]bool{}}, fields: map[string]bool{}, valid: map[string]bool{}}
	inBackground(t, func(ctx context.Context) error { return w.keepTelling(ctx, rand.New(rand.NewPCG(s, 0))) })
	const at = 4 // at a time
	var g errgroup.Group
	for i := range at {
		g.Go(func() error {
			gen := newGenerator(rand.New(rand.NewPCG(s, uint64(i)+1)), w, j.edge.schema, j.seen)
			gen.next = i * len(gen.fields) / at
			for range *requests / at {
				j.try(gen.request())
			}
			return nil
		})
	}
	must(t, g.Wait())
	writes := w.foreignWrites(t)
	leaks := j.leaks.Load()
	verdict := "PASS"
	if mode == "none" && leaks == 0 || mode != "none" && (leaks > 0 || writes > 0) {
		verdict = "FAIL"
		t.Fail()
	}
	fmt.Printf("walls mode=%s requests=%d foreign=%d leaks=%d writes=%d %s answered=%d fields=%d messages=%d sockets=%d seed=%d\n",
		mode, j.requests.Load(), j.foreign.Load(), leaks, writes, verdict, j.answered.Load(), len(j.fields), j.told.Load(), j.overSockets.Load(), s)
	if j.answered.Load() == 0 || len(j.fields) < 20 {
		t.Errorf("callers see too little for this to mean anything: %d answers, of the fields %v", j.answered.Load(), j.fields)
	}
	for _, f := range newGenerator(nil, w, j.edge.schema, nil).fields {
		if !j.valid[f.Name] {
			t.Errorf("each request of %s was refused for its form, before any wall", f.Name)
		}
	}
	if j.overSockets.Load() == 0 {
		t.Error("nothing was answered over a WebSocket")
	}
	if mode != "none" {
		for _, text := range j.examples {
			t.Log(text)
		}
	}
}

// judge sends requests and looks at what comes back.
type judge struct {
	w    *world
	edge *edge
	seen *memory

	requests, foreign, answered, told, overSockets, leaks atomic.Int64

	mu       sync.Mutex
	examples []string
	fields   map[string]bool // those at the top that were answered
	valid    map[string]bool // those of which a request was more than refused for its form
}

func (j *judge) try(r request) {
	j.requests.Add(1)
	if r.foreign {
		j.foreign.Add(1)
	}
	switch {
	case r.socket:
		answer := j.overSocket(r)
		j.overSockets.Add(int64(bytes.Count(answer, []byte(`"type":"next"`))))
		j.look(r, answer)
		return
	case r.stream:
		answer := j.follow(r)
		j.told.Add(int64(bytes.Count(answer, []byte("event: next"))))
		j.look(r, answer)
		return
	}
	rec := httptest.NewRecorder()
	j.edge.handler.ServeHTTP(rec, newRequest(context.Background(), r, ""))
	j.note(r, rec.Body.Bytes())
	j.look(r, whole(rec.Result().Header, rec.Body.Bytes()))
}

// note remembers what became of the field at the top.
func (j *judge) note(r request, body []byte) {
	var answer struct {
		Data   map[string]any
		Errors []struct {
			Path       []any
			Extensions struct{ Code problem.Code }
		}
	}
	if r.field == "" || json.Unmarshal(body, &answer) != nil {
		return
	}
	valid := answer.Data["a0"] != nil
	for _, e := range answer.Errors {
		valid = valid || len(e.Path) > 0 && e.Path[0] == "a0" && e.Extensions.Code != problem.InvalidInput
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fields[r.field] = j.fields[r.field] || answer.Data["a0"] != nil
	j.valid[r.field] = j.valid[r.field] || valid
}

// overSocket gives all that a WebSocket has said of the operation until it ended, or after a while.
func (j *judge) overSocket(r request) []byte {
	patience := time.Minute
	if r.stream {
		patience = followed
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options := &websocket.DialOptions{HTTPClient: j.edge.client, Subprotocols: []string{"graphql-transport-ws"}}
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(j.edge.url, "http")+r.path, options)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	_ = conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"connection_init","payload":{"authorization":%q}}`, "Bearer token-of-"+r.subject))
	_ = conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"id":"1","type":"subscribe","payload":%s}`, r.body))
	var said []byte
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return said
		}
		said = append(said, text...)
		if bytes.Contains(text, []byte(`"type":"complete"`)) || bytes.Contains(text, []byte(`"type":"error"`)) {
			return said
		}
	}
}

func newRequest(ctx context.Context, r request, base string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, base+r.path, strings.NewReader(r.body))
	req.RequestURI = ""
	req.Header.Set("Authorization", "Bearer token-of-"+r.subject)
	req.Header.Set("Content-Type", "application/json")
	if r.stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	return req
}

// follow gives what a stream has said after a while, also where it has not ended.
func (j *judge) follow(r request) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), followed)
	defer cancel()
	resp, err := j.edge.client.Do(newRequest(ctx, r, j.edge.url))
	if err != nil {
		return nil // not even a header in that time
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // ends with ctx
	return whole(resp.Header, body)
}

func whole(header http.Header, body []byte) []byte {
	var answer bytes.Buffer
	_ = header.Write(&answer)
	answer.Write(body)
	return answer.Bytes()
}

var (
	nameable = regexp.MustCompile(`cnry[0-9a-z]{16}|(?:pacct|pool|boot|host|orph|tok|inst)_[0-9a-z]{26}`)
	encoded  = regexp.MustCompile(`[A-Za-z0-9_-]{24,}`)
	cursors  = regexp.MustCompile(`"[A-Za-z]*_?(?:cursor|endCursor|startCursor)":"([^"]+)"`)
)

// look counts what of another tenant's is in the answer and was not in the request.
func (j *judge) look(r request, answer []byte) {
	of := j.w.callers[r.subject]
	found := nameable.FindAll(answer, -1)
	for _, text := range encoded.FindAll(answer, -1) {
		if plain, err := base64.RawURLEncoding.DecodeString(string(text)); err == nil {
			found = append(found, nameable.FindAll(plain, -1)...)
		}
	}
	for _, m := range cursors.FindAllSubmatch(answer, -1) {
		j.seen.addCursor(string(m[1]))
	}
	own := false
	defer func() {
		if own {
			j.answered.Add(1)
		}
	}()
	for _, name := range found {
		owner, known := j.w.owners[string(name)]
		switch {
		case !known:
		case owner == of:
			own = true
		case strings.Contains(r.body, string(name)) || of != nil && j.seen.wasTold(of.id, string(name)):
		default:
			j.leaks.Add(1)
			j.keep(fmt.Sprintf("%s of %s reached %s\n%s %s\n%.2000s", name, owner.id, r.subject, r.path, r.body, answer))
			return // one for each answer
		}
	}
}

func (j *judge) keep(example string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.examples) < 3 {
		j.examples = append(j.examples, example)
	}
}
