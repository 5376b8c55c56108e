package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/internal/problem"
	"better/compute/provider"
)

// Mutants says how to try a driver with answers that no vendor should give.
type Mutants struct {
	// Provider is the driver's name.
	Provider string
	// New makes a fake of its own with everything in it that a call may be about.
	New func(t *testing.T) Mutant
	// Count is how many calls are tried in a short run; 0 is 150. MUTATIONS in the environment says otherwise.
	Count int
}

// Mutant is one fake and what is in it.
type Mutant struct {
	Fake http.Handler
	// Open opens a client on the URL, whose requests take 300 ms at most.
	Open func(url string) provider.Client
	// OfferID, MachineID and InstallRef are of things that are there.
	OfferID, MachineID, InstallRef string
	// Sold counts, as that of Account.
	Sold func(operationID string) int
}

// Mutate calls the driver's methods while answers come broken in every way, a way for each call. It must neither panic nor wait without
// end; what it takes must be fit to be shown, and what it does not must be an error that helps. Most of all: an order that was placed is never said
// to have had no effect.
func Mutate(t *testing.T, m Mutants) {
	t.Helper()
	count := m.Count
	if count == 0 {
		count = 150
	}
	if given, err := strconv.Atoi(os.Getenv("MUTATIONS")); err == nil {
		count = given
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil && given != 0 {
		seed = given
	}
	run := &mutation{Mutants: m, t: t, refused: map[string]int{}}
	var group sync.WaitGroup
	for worker := range 8 { // most of the time is waiting for what comes slowly
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(worker)))
			for i := worker; i < count && !t.Failed(); i += 8 {
				// A call that gets fewer answers than come whole has met none that is broken.
				if !run.try(r, i, r.IntN(3)) {
					run.try(r, i, 0)
				}
			}
		})
	}
	group.Wait()
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	t.Logf("provider-mutants provider=%s answers=%d taken=%d refused=%v invalid=%d %s seed=%d", m.Provider, run.answers, run.taken, run.refused, run.invalid, verdict, seed)
}

type mutation struct {
	Mutants
	t *testing.T

	mu                      sync.Mutex
	answers, taken, invalid int
	refused                 map[string]int
}

// try makes one call with one way to break its answers, and says whether one was broken.
func (m *mutation) try(r *rand.Rand, i, whole int) bool {
	mutant := m.New(m.t)
	way := ways[r.IntN(len(ways))]
	breaker := &breaker{fake: mutant.Fake, way: way, r: rand.New(rand.NewPCG(r.Uint64(), 0)), after: whole}
	server := httptest.NewServer(breaker)
	defer server.Close()
	client := mutant.Open(server.URL)
	defer func() { _ = client.Close() }()
	call := calls[r.IntN(len(calls))]
	what := fmt.Sprintf("%d: %s with %s", i, call.name, way.name)

	// A list may be of many pages, each of which comes slowly.
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	err := func() (err error) {
		defer func() {
			if told := recover(); told != nil {
				m.fail(what, "panic: %v", told)
			}
		}()
		return call.do(ctx, client, mutant)
	}()
	if ctx.Err() != nil && m.t.Context().Err() == nil {
		m.fail(what, "the call did not come back")
	}
	if !breaker.broke() {
		return false
	}
	if err == nil {
		m.take()
		return true
	}
	e := m.judge(what, err)
	if call.name == "order" && e != nil && e.Class != provider.UnknownOutcome && !way.lies && mutant.Sold(mutantOperation) > 0 {
		m.fail(what, "the order was placed, and is said to have had no effect: %v", err)
	}
	return true
}

func (m *mutation) judge(what string, err error) *provider.Error {
	e, ok := err.(*provider.Error)
	if !ok {
		m.fail(what, "%v is not classed", err)
		return nil
	}
	p := problem.From(provider.Problem(m.Provider, err))
	reason, _ := p.Details["reason"].(string)
	switch {
	case p.Code == problem.Unsupported:
	case p.Code != problem.ProviderError || reason == "":
		m.fail(what, "%v is shown as %s without a reason", err, p.Code)
	case len(e.Message) < 10 || strings.Contains(e.Message, "%!") || len(e.Message) > 500 || strings.ContainsAny(e.Message, "<>\x00\n"):
		m.fail(what, "the message %q does not help", e.Message)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers++
	m.refused[string(e.Class)]++
	return e
}

func (m *mutation) take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers++
	m.taken++
}

func (m *mutation) fail(what, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.invalid++
	m.t.Errorf("%s: %s", what, fmt.Sprintf(format, args...))
}

const mutantOperation = "bcd-0123456789abcdefghjkmnpqrs"

// calls are the methods that answers are broken for. What they give is judged as callers are shown it.
var calls = []struct {
	name string
	do   func(context.Context, provider.Client, Mutant) error
}{
	{"check", func(ctx context.Context, c provider.Client, _ Mutant) error { return c.Check(ctx) }},
	{"offers", func(ctx context.Context, c provider.Client, _ Mutant) error {
		offers, err := c.Offers(ctx)
		if err == nil {
			offers, err = provider.CheckOffers(offers)
			_, failed := json.Marshal(offers)
			err = orFailed(err, failed)
		}
		return err
	}},
	{"machines", func(ctx context.Context, c provider.Client, _ Mutant) error {
		machines, err := c.Machines(ctx)
		if err == nil {
			_, err = provider.CheckMachines(machines)
		}
		return err
	}},
	{"order", func(ctx context.Context, c provider.Client, m Mutant) error {
		o, ok := c.(provider.Orderer)
		if !ok {
			return nil
		}
		claim, err := o.Order(ctx, provider.Order{OperationID: mutantOperation, OfferID: m.OfferID})
		return orClaim(err, claim, true)
	}},
	{"find claim", func(ctx context.Context, c provider.Client, _ Mutant) error {
		o, ok := c.(provider.Orderer)
		if !ok {
			return nil
		}
		claim, err := o.FindClaim(ctx, mutantOperation)
		return orClaim(err, claim, false)
	}},
	{"claims", func(ctx context.Context, c provider.Client, _ Mutant) error {
		o, ok := c.(provider.Claimant)
		if !ok {
			return nil
		}
		claims, err := o.Claims(ctx)
		for _, claim := range claims {
			if !provider.IsOperationID(claim.OperationID) || !idPattern.MatchString(claim.MachineID) {
				return fmt.Errorf("the claim %+v", claim)
			}
		}
		return err
	}},
	{"release", func(ctx context.Context, c provider.Client, m Mutant) error {
		o, ok := c.(provider.Orderer)
		if !ok {
			return nil
		}
		return o.Release(ctx, mutantOperation, m.MachineID)
	}},
	{"identify", func(ctx context.Context, c provider.Client, m Mutant) error {
		b, ok := c.(provider.Bootstrapper)
		if !ok {
			return nil
		}
		identity, err := b.Identify(ctx, m.MachineID)
		if err == nil && (identity == nil || identity.CPUs < 0 || identity.MemoryMiB < 0) {
			return fmt.Errorf("identified as %+v", identity)
		}
		return err
	}},
	{"prepare", func(ctx context.Context, c provider.Client, m Mutant) error {
		b, ok := c.(provider.Bootstrapper)
		if !ok {
			return nil
		}
		p, err := b.Prepare(ctx, m.MachineID)
		if err == nil && p == nil {
			return fmt.Errorf("no preparation")
		}
		return err
	}},
	{"install status", func(ctx context.Context, c provider.Client, m Mutant) error {
		b, ok := c.(provider.Bootstrapper)
		if !ok || m.InstallRef == "" {
			return nil
		}
		s, err := b.InstallStatus(ctx, m.MachineID, m.InstallRef)
		if err == nil && !slices.Contains([]provider.InstallState{provider.InstallRunning, provider.InstallSucceeded, provider.InstallFailed}, s.State) {
			return fmt.Errorf("the install is %+v", s)
		}
		return err
	}},
}

func orFailed(err, failed error) error {
	if err != nil {
		return err
	}
	return failed
}

// orClaim wants a claim that can be relied on.
func orClaim(err error, claim *provider.Claim, must bool) error {
	switch {
	case err != nil || claim == nil && !must:
		return err
	case claim == nil:
		return fmt.Errorf("no claim")
	case claim.State == provider.ClaimReady && !idPattern.MatchString(claim.MachineID), claim.State == provider.ClaimFailed && claim.Err == nil:
		return fmt.Errorf("the claim %+v", claim)
	}
	return nil
}

// breaker breaks one of the answers that a call gets, and all that come after.
type breaker struct {
	fake  http.Handler
	way   way
	after int // so many answers that come whole

	mu    sync.Mutex
	r     *rand.Rand
	seen  int
	first []byte
}

func (b *breaker) broke() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen > b.after
}

func (b *breaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	b.fake.ServeHTTP(answer, r)
	b.mu.Lock()
	b.seen++
	if b.first == nil {
		b.first = bytes.Clone(answer.Body.Bytes())
	}
	whole := b.seen <= b.after
	number := b.r.Uint64()
	first := b.first
	b.mu.Unlock()
	copyHeader(w, answer)
	if whole {
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	b.way.do(&broken{w: w, request: r, answer: answer, first: first, r: rand.New(rand.NewPCG(number, 0))})
}

// broken is an answer that is being broken.
type broken struct {
	w       http.ResponseWriter
	request *http.Request
	answer  *httptest.ResponseRecorder
	first   []byte // of the call's answers
	r       *rand.Rand
}

func (b *broken) send(status int, body []byte) {
	b.w.WriteHeader(status)
	_, _ = b.w.Write(body)
}

// way is a way to break an answer.
type way struct {
	name string
	// lies: it says of what took effect that it did not.
	lies bool
	do   func(*broken)
}

var ways = []way{
	{name: "10 GB cut short", do: func(b *broken) {
		b.w.Header().Set("Content-Length", "10000000000")
		body := b.answer.Body.Bytes()
		b.send(b.answer.Code, body[:b.r.IntN(len(body)+1)])
		panic(http.ErrAbortHandler)
	}},
	{name: "no end", do: func(b *broken) {
		b.send(b.answer.Code, b.answer.Body.Bytes())
		chunk := bytes.Repeat([]byte(" "), 1<<16)
		for sent := 0; sent < 40<<20 && b.request.Context().Err() == nil; sent += len(chunk) {
			if _, err := b.w.Write(chunk); err != nil {
				return
			}
		}
	}},
	{name: "slow bytes", do: func(b *broken) {
		b.w.WriteHeader(b.answer.Code)
		for _, c := range b.answer.Body.Bytes() {
			_, _ = b.w.Write([]byte{c})
			_ = http.NewResponseController(b.w).Flush()
			select {
			case <-b.request.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}},
	{name: "HTML", do: func(b *broken) {
		b.w.Header().Set("Content-Type", "text/html")
		b.send(b.answer.Code, []byte("<html><body>Service &amp; maintenance</body></html>"))
	}},
	{name: "HTML that says it is JSON", do: func(b *broken) { b.send(b.answer.Code, []byte("<html></html>")) }},
	{name: "nothing", do: func(b *broken) { b.send(http.StatusOK, nil) }},
	{name: "no content", do: func(b *broken) { b.w.WriteHeader(http.StatusNoContent) }},
	{name: "null", do: func(b *broken) { b.send(b.answer.Code, []byte("null")) }},
	{name: "an empty object", do: func(b *broken) { b.send(b.answer.Code, []byte("{}")) }},
	{name: "an array", do: func(b *broken) { b.send(b.answer.Code, []byte("[]")) }},
	{name: "random bytes", do: func(b *broken) {
		noise := make([]byte, 1+b.r.IntN(4096))
		for i := range noise {
			noise[i] = byte(b.r.Uint32())
		}
		b.send(b.answer.Code, noise)
	}},
	{name: "a flipped byte", do: func(b *broken) {
		body := bytes.Clone(b.answer.Body.Bytes())
		if len(body) > 0 {
			body[b.r.IntN(len(body))] ^= byte(1 << b.r.IntN(8))
		}
		b.send(b.answer.Code, body)
	}},
	{name: "the call's first answer again", do: func(b *broken) { b.send(b.answer.Code, b.first) }},
	{name: "half in compression that it does not have", do: func(b *broken) {
		b.w.Header().Set("Content-Encoding", "gzip")
		b.send(b.answer.Code, b.answer.Body.Bytes())
	}},
	{name: "a redirect to elsewhere", do: func(b *broken) {
		b.w.Header().Set("Location", "http://169.254.169.254/latest/meta-data")
		b.send(http.StatusTemporaryRedirect, nil)
	}},
	{name: "a failure", do: func(b *broken) { b.send(500+b.r.IntN(6), b.answer.Body.Bytes()) }},
	{name: "a refusal in no form", lies: true, do: func(b *broken) {
		b.send([]int{400, 401, 402, 403, 404, 405, 409, 410, 418, 422, 423, 429, 451}[b.r.IntN(13)], []byte(`{"error":7,"errors":{"a":[]},"message":["x"],"code":{}}`))
	}},
	{name: "another time to wait", lies: true, do: func(b *broken) {
		b.w.Header().Set("Retry-After", []string{"-1", "NaN", "1e99", "Inf", "Mon", "0", ""}[b.r.IntN(7)])
		b.w.Header().Set("RateLimit-Remaining", []string{"-1", "x", "99999999999999999999", "0"}[b.r.IntN(4)])
		b.send(http.StatusTooManyRequests, []byte("slow down"))
	}},
	{name: "a broken connection", do: func(*broken) { panic(http.ErrAbortHandler) }},
	{name: "depth", do: func(b *broken) { b.send(b.answer.Code, []byte(strings.Repeat(`{"a":[`, 20_000))) }},
	{name: "another value", do: mutated(func(b *broken, _ any) any { return odd(b) })},
	{name: "several other values", do: func(b *broken) { several(b) }},
	{name: "NaN", do: func(b *broken) {
		body := b.answer.Body.Bytes()
		digits := []int{}
		for i, c := range body {
			if c >= '0' && c <= '9' {
				digits = append(digits, i)
			}
		}
		if len(digits) > 0 {
			i := digits[b.r.IntN(len(digits))]
			body = slices.Concat(body[:i], []byte("NaN"), body[i+1:])
		}
		b.send(b.answer.Code, body)
	}},
	{name: "a value twice as deep", do: mutated(func(_ *broken, v any) any { return []any{v, map[string]any{"": v}} })},
	{name: "no value", do: mutated(func(*broken, any) any { return nil })},
	{name: "everything of the wrong type", do: func(b *broken) {
		Rewrite(func(document any) any {
			return walk(document, func(v any) any {
				switch v.(type) {
				case string:
					return 7
				case json.Number, bool:
					return "text"
				}
				return v
			})
		})(b.w, b.request, again(b.answer))
	}},
	{name: "every list ten times", do: func(b *broken) {
		Rewrite(func(document any) any {
			return walk(document, func(v any) any {
				if list, ok := v.([]any); ok && len(list) < 1000 {
					return slices.Repeat(list, 10)
				}
				return v
			})
		})(b.w, b.request, again(b.answer))
	}},
}

// odd are values that no field is made for.
func odd(b *broken) any {
	return []any{
		nil, true, "", "NaN", "-1", "1e309", -1, 0, json.Number("1e308"), json.Number("9223372036854775808"), json.Number("-9223372036854775808"), 0.5,
		[]any{},
		map[string]any{},
		[]any{nil},
		"\x00\u202e<script>", strings.Repeat("x", 100_000), "../../etc/passwd", "2006-13-45T99:99:99Z", "\ufffd\ufeff",
	}[b.r.IntN(20)]
}

// mutated changes one value of the document, drawn from all.
func mutated(change func(*broken, any) any) func(*broken) {
	return func(b *broken) {
		Rewrite(func(document any) any {
			nodes := 0
			walk(document, func(v any) any { nodes++; return v })
			chosen, at := b.r.IntN(nodes), -1
			return walk(document, func(v any) any {
				if at++; at == chosen {
					return change(b, v)
				}
				return v
			})
		})(b.w, b.request, again(b.answer))
	}
}

func several(b *broken) {
	Rewrite(func(document any) any {
		return walk(document, func(v any) any {
			if b.r.IntN(6) == 0 {
				return odd(b)
			}
			return v
		})
	})(b.w, b.request, again(b.answer))
}

// again gives an answer that was given.
func again(answer *httptest.ResponseRecorder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = io.Copy(w, bytes.NewReader(answer.Body.Bytes()))
	})
}
