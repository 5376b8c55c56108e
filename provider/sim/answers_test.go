package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/provider"
	"better/compute/provider/sim"
)

// answering gives a client of a server that answers every call in one way, and counts them.
func answering(t *testing.T, answer http.HandlerFunc) (provider.Client, *atomic.Int32) {
	t.Helper()
	calls := new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // a handler hears that the client went only after the body
		answer(w, r)
	}))
	client := openClient(t, sim.New(sim.Options{Endpoint: server.URL, Timeout: 5 * time.Second}), `{"apiToken":"secret://sim"}`)
	t.Cleanup(func() {
		_ = client.Close()
		server.Close()
	})
	return client, calls
}

// TestAnswersThatMakeNoSense gives reads and orders the same answers: an order must not be called void on any of them.
func TestAnswersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty":               "",
		"html":                "<html>",
		"null":                "null",
		"other type":          `[1,2]`,
		"no list":             `{"page":1}`,
		"list of other type":  `{"offers":{"a":1},"id":7}`,
		"items of other type": `{"offers":[{"id":7}],"id":["a"]}`,
		"numbers as text":     `{"offers":[{"id":"a","vcpu":"4"}],"id":{}}`,
		"half":                `{"offers":[{"id":"a"`,
		"trailing data":       `{"offers":[]} {}`,
		"next page is text":   `{"offers":[],"nextPage":"2","id":1}`,
		"next page is first":  `{"offers":[],"nextPage":1,"name":"other"}`,
		"next page is below":  `{"offers":[],"nextPage":-5}`,
		"too much":            `{"offers":[],"id":"m-1","name":"op"}` + strings.Repeat(" ", 17<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, calls := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
			if list, err := client.Offers(t.Context()); provider.ClassOf(err) != provider.InvalidResponse {
				t.Errorf("offers: %v, %v", list, err)
			}
			calls.Store(0)
			_, err := client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "op", OfferID: "a"})
			if provider.ClassOf(err) != provider.UnknownOutcome || calls.Load() != 1 {
				t.Errorf("order: %v after %d calls", err, calls.Load())
			}
		})
	}
}

func TestOffersThatCannotBeNamed(t *testing.T) {
	t.Parallel()
	client, _ := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"offers":[null,{"id":""},{"id":"` + strings.Repeat("x", 129) + `","category":"vps","location":"a"},
			{"id":"a","category":"fridge","location":"a"},{"id":"b","category":"vps","location":"--"},
			{"id":"good","category":"vps","location":"-A b-","price":{"hourly":"NaN","monthly":"1e3","currency":"EUR"},
			"gpu":{"name":"x","count":-1},"vcpu":-2,"memoryMiB":0,"disks":[{"sizeGB":0,"count":1},null],"arch":"mips"},
			{"id":"good","category":"vps","location":"a"}]}`))
	})
	list, err := client.Offers(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d offers, %v", len(list), err)
	}
	text, _ := json.Marshal(list[0])
	o := list[0]
	if o.ID != "good" || o.Region != "a-b" || o.Price != nil || o.GPU != nil || o.VCPU != nil || o.MemoryGiB != nil || len(o.Disks) != 0 || o.Arch != nil {
		t.Errorf("offer %s", text)
	}
}

// TestFilterThatIsIgnored asks a cloud that lists every machine whatever it is asked for.
func TestFilterThatIsIgnored(t *testing.T) {
	t.Parallel()
	client, _ := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"machines":[{"id":"m-1","name":"other","labels":null,"status":"ready"}]}`))
	})
	if claim, err := client.(provider.Orderer).FindClaim(t.Context(), "op"); claim != nil || err != nil {
		t.Errorf("claim %+v, %v", claim, err)
	}
}

// TestNoRedirects follows none, so that the token goes nowhere else.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		client, calls := answering(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", status) })
		if err := client.Check(t.Context()); provider.ClassOf(err) != provider.InvalidResponse {
			t.Errorf("status %d: %v", status, err)
		}
		if _, err := client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "op", OfferID: "a"}); provider.ClassOf(err) != provider.UnknownOutcome {
			t.Errorf("status %d on an order: %v", status, err)
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("status %d: %d calls", status, n)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "soon": 0, "99999999": 24 * time.Hour,
		"Thu, 01 Jan 2026 00:00:30 GMT": 30 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		client, _ := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		err := client.Check(t.Context())
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Class != provider.RateLimited || e.RetryAfter != want {
			t.Errorf("Retry-After %q: %v, want %v", header, err, want)
		}
	}
}

// TestErrorsTellTheirOrigin keeps the provider's code and request id, and nothing else that it said.
func TestErrorsTellTheirOrigin(t *testing.T) {
	t.Parallel()
	client, _ := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "req-7")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"error":{"code":"quota_exceeded","message":"you are ` + secret + `"}}`))
	})
	e, ok := errors.AsType[*provider.Error](client.Check(t.Context()))
	if !ok || e.Class != provider.Quota || e.Code != "quota_exceeded" || e.RequestID != "req-7" || strings.Contains(fmt.Sprintf("%+v", e), secret) {
		t.Errorf("error %+v", e)
	}
	client, _ = answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", strings.Repeat("x", 500))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"error":{"code":"<script>"}}`))
	})
	e, ok = errors.AsType[*provider.Error](client.Check(t.Context()))
	if !ok || e.Class != provider.Fatal || e.Code != "" || e.RequestID != "" {
		t.Errorf("error %+v", e)
	}
}

// TestNobodyListens: an order that found nobody to talk to has had no effect, and may say so.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	client := openClient(t, sim.New(sim.Options{Endpoint: server.URL}), `{"apiToken":"secret://sim"}`)
	defer client.Close()
	if err := client.Check(t.Context()); provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("check: %v", err)
	}
	if _, err := client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "op", OfferID: "a"}); provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("order: %v", err)
	}
}

// TestCallEndsWithItsContext cuts a call off while the server holds it.
func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	client, _ := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		held <- struct{}{}
		<-r.Context().Done()
	})
	for _, test := range []struct {
		call func(context.Context) error
		want provider.Class
	}{
		{client.Check, provider.Timeout},
		{func(ctx context.Context) error {
			_, err := client.(provider.Orderer).Order(ctx, provider.Order{OperationID: "op", OfferID: "a"})
			return err
		}, provider.UnknownOutcome},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-held
			cancel()
		}()
		if err := test.call(ctx); provider.ClassOf(err) != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}
