package vendor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/internal/guard"
	"better/compute/internal/leaktest"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// codeError is what an SDK makes of an answer.
type codeError struct{ code string }

func (e *codeError) Error() string { return "the SDK says " + e.code }

// bundle is a vendor with an SDK of a few lines.
type bundle struct {
	*vendor.Vendor
	url      string
	requests atomic.Int64
}

func setup(t *testing.T, o vendor.Options, h http.HandlerFunc) *bundle {
	t.Helper()
	b := &bundle{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.requests.Add(1); h(w, r) }))
	o.Name, o.Origins, o.Networks = "The vendor", []string{server.URL}, guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}
	o.Code = func(err error) string {
		if e, ok := errors.AsType[*codeError](err); ok {
			return e.code
		}
		return ""
	}
	o.Codes = map[string]provider.Class{"sold_out": provider.OutOfStock, "exists": provider.UnknownOutcome}
	b.Vendor, b.url = vendor.New(o), server.URL
	t.Cleanup(func() { b.Close(); server.Close() })
	return b
}

func (b *bundle) ask(method string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, method, b.url+"/", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		response, err := b.HTTP().Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		var answer struct{ Code string }
		err = json.Unmarshal(body, &answer)
		switch {
		case answer.Code != "":
			return &codeError{answer.Code}
		case response.StatusCode >= 300:
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return err
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r-1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func reset(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }

func half(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "10000000000")
	_, _ = io.WriteString(w, `{"a":`)
	panic(http.ErrAbortHandler)
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat("[", 1<<16)); err != nil {
			return
		}
	}
}

// TestClasses says for every way to fail what it means for a call that reads and for one that changes.
func TestClasses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		handler      http.HandlerFunc
		read, change provider.Class
	}{
		"fine":             {answer(200, `{}`), "", ""},
		"401":              {answer(401, `{}`), provider.Auth, provider.Auth},
		"402":              {answer(402, ``), provider.Payment, provider.Payment},
		"403":              {answer(403, `<html>`), provider.Forbidden, provider.Forbidden},
		"404":              {answer(404, `{}`), provider.NotFound, provider.NotFound},
		"408":              {answer(408, `{}`), provider.Timeout, provider.UnknownOutcome},
		"409":              {answer(409, `{}`), provider.Conflict, provider.Conflict},
		"422":              {answer(422, `{}`), provider.Fatal, provider.Fatal},
		"423":              {answer(423, `{}`), provider.Conflict, provider.Conflict},
		"429":              {answer(429, `{}`), provider.RateLimited, provider.RateLimited},
		"500":              {answer(500, `{}`), provider.Unavailable, provider.UnknownOutcome},
		"503 HTML":         {answer(503, `<html>`), provider.Unavailable, provider.UnknownOutcome},
		"redirect":         {answer(302, ``), provider.InvalidResponse, provider.UnknownOutcome},
		"HTML":             {answer(200, `<html>`), provider.InvalidResponse, provider.UnknownOutcome},
		"a known code":     {answer(412, `{"code":"sold_out"}`), provider.OutOfStock, provider.OutOfStock},
		"with a 5xx":       {answer(503, `{"code":"sold_out"}`), provider.OutOfStock, provider.OutOfStock},
		"there already":    {answer(409, `{"code":"exists"}`), provider.UnknownOutcome, provider.UnknownOutcome},
		"an unknown code":  {answer(409, `{"code":"new"}`), provider.Conflict, provider.Conflict},
		"reset":            {reset, provider.Unavailable, provider.UnknownOutcome},
		"half an answer":   {half, provider.Unavailable, provider.UnknownOutcome},
		"an endless one":   {endless, provider.InvalidResponse, provider.UnknownOutcome},
		"no answer":        {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, provider.Timeout, provider.UnknownOutcome},
		"an SDK's nil map": {answer(200, `{"code":"panic"}`), provider.InvalidResponse, provider.UnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := vendor.Options{Timeout: 20 * time.Second}
			if name == "no answer" {
				o.Timeout = 200 * time.Millisecond
			}
			b := setup(t, o, want.handler)
			call := func(method string) func(context.Context) error {
				return func(ctx context.Context) error {
					err := b.ask(method)(ctx)
					if e, ok := errors.AsType[*codeError](err); ok && e.code == "panic" {
						panic("assignment to entry in nil map")
					}
					return err
				}
			}
			judge(t, "read", b.Read(t.Context(), call(http.MethodGet)), want.read)
			judge(t, "change", b.Change(t.Context(), call(http.MethodPost)), want.change)
			if n := b.requests.Load(); n > 2 {
				t.Errorf("%d requests for two calls", n)
			}
		})
	}
}

func judge(t *testing.T, what string, err error, class provider.Class) {
	t.Helper()
	if class == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != class {
		t.Fatalf("%s: %v, want class %s", what, err, class)
	}
	if !strings.Contains(e.Message, "The vendor") && !strings.Contains(e.Message, "at The vendor") || strings.Contains(e.Message, "%!") {
		t.Errorf("%s: message %q", what, e.Message)
	}
}

func TestWhatWasNotSentHadNoEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, vendor.Options{}, answer(200, `{}`))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	judge(t, "ended", b.Change(ended, b.ask(http.MethodPost)), provider.Unavailable)
	judge(t, "ended read", b.Read(ended, b.ask(http.MethodGet)), provider.Timeout)
	elsewhere := vendor.New(vendor.Options{Name: "The vendor", Origins: []string{b.url}}) // a private network that nobody allowed
	defer elsewhere.Close()
	err := elsewhere.Change(t.Context(), func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, nil)
		if err != nil {
			return err
		}
		_, err = elsewhere.HTTP().Do(r)
		return err
	})
	judge(t, "refused", err, provider.InvalidConfig)
	own := provider.Errorf(provider.SecretUnresolved, "There is no such secret.")
	if err := b.Read(t.Context(), func(context.Context) error { return fmt.Errorf("resolving: %w", own) }); !errors.Is(err, own) {
		t.Errorf("a classed error: %v", err)
	}
	if n := b.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestErrorsNameTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, vendor.Options{}, answer(409, `{"code":"busy"}`))
	e, _ := errors.AsType[*provider.Error](b.Read(t.Context(), b.ask(http.MethodGet)))
	if e == nil || e.Code != "busy" || e.RequestID != "r-1" {
		t.Errorf("%+v", e)
	}
}

// TestRate holds calls back, without asking the vendor, as long as it wants to be left alone.
func TestRate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers map[string]string
		status  int
		after   time.Duration // that the first answer asks for
		second  provider.Class
		sent    int64
	}{
		"told to wait":        {map[string]string{"Retry-After": "7"}, 429, 7 * time.Second, provider.RateLimited, 1},
		"told until when":     {map[string]string{"Date": "Mon, 02 Jan 2006 15:04:05 GMT", "Retry-After": "Mon, 02 Jan 2006 15:05:05 GMT"}, 429, time.Minute, provider.RateLimited, 1},
		"told nothing":        {nil, 429, 0, provider.RateLimited, 1},
		"nothing left":        {map[string]string{"RateLimit-Remaining": "0"}, 200, 0, provider.RateLimited, 1},
		"nothing left either": {map[string]string{"X-RateLimit-Remaining": "0"}, 200, 0, provider.RateLimited, 1},
		"some left":           {map[string]string{"RateLimit-Remaining": "5"}, 200, 0, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, vendor.Options{Rate: vendor.Rate{PerSecond: 0.01, Burst: 10}}, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range c.headers {
					w.Header().Set(k, v)
				}
				answer(c.status, `{}`)(w, r)
			})
			first, _ := errors.AsType[*provider.Error](b.Read(t.Context(), b.ask(http.MethodGet)))
			if c.status == 429 && (first == nil || first.RetryAfter != c.after) {
				t.Errorf("first: %+v, want to be told to wait %s", first, c.after)
			}
			second := b.Read(t.Context(), b.ask(http.MethodGet))
			judge(t, "second", second, c.second)
			if e, ok := errors.AsType[*provider.Error](second); ok && e.RetryAfter <= 0 {
				t.Errorf("second: %v does not say when to come again", e)
			}
			if n := b.requests.Load(); n != c.sent {
				t.Errorf("%d requests, want %d", n, c.sent)
			}
		})
	}
}

// TestTheBucketFills waits for a turn that is near instead of failing.
func TestTheBucketFills(t *testing.T) {
	t.Parallel()
	b := setup(t, vendor.Options{Rate: vendor.Rate{PerSecond: 50, Burst: 1}}, answer(200, `{}`))
	for range 10 {
		if err := b.Read(t.Context(), b.ask(http.MethodGet)); err != nil {
			t.Fatal(err)
		}
	}
}
