package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"

	"better/compute/authz"
	"better/compute/internal/slots"
)

// unread are the ways in which a caller gets a huge answer, which each begins to come, and is read by read.
func unread(w *world) map[string]func(t *testing.T, token string) (read func() int64) {
	post := func(t *testing.T, path, accept, body, token string) func() int64 {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {typeJSON}, "Accept": {accept}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return func() int64 { n, _ := io.Copy(io.Discard, resp.Body); return n }
	}
	socket := func(t *testing.T, document, token string) func() int64 {
		t.Helper()
		c := w.connect(t, token)
		c.conn.SetReadLimit(2 * hugeBytes)
		c.subscribe("1", document)
		return func() int64 {
			kind, r, err := c.conn.Reader(t.Context())
			if err != nil || kind != websocket.MessageText {
				t.Error(err)
			}
			n, _ := io.Copy(io.Discard, r)
			return n
		}
	}
	const query = `{ pool(tenantId: "shared", poolId: "huge") { name } }`
	const events = `subscription { bootstrapStatusChanged(tenantId: "shared", bootstrapId: "huge", after: "1") { cursor } }`
	return map[string]func(*testing.T, string) func() int64{
		"GraphQL": func(t *testing.T, token string) func() int64 {
			t.Helper()
			return post(t, graphqlPath, typeJSON, requestFor(query), token)
		},
		"REST": func(t *testing.T, token string) func() int64 {
			t.Helper()
			return post(t, restPath+"/huge", typeJSON, `{"tenantId":"shared"}`, token)
		},
		"a socket": func(t *testing.T, token string) func() int64 { t.Helper(); return socket(t, query, token) },
		"a stream": func(t *testing.T, token string) func() int64 {
			t.Helper()
			return post(t, graphqlPath, typeEvents, requestFor(query), token)
		},
		"events on a socket": func(t *testing.T, token string) func() int64 { t.Helper(); return socket(t, events, token) },
		"events of a stream": func(t *testing.T, token string) func() int64 {
			t.Helper()
			return post(t, graphqlPath, typeEvents, requestFor(events), token)
		},
	}
}

// A large answer that is read slowly keeps its caller's place, so that nobody has more of them in memory than places, but none of the tenant's. It comes
// whole, however slowly it is read.
func TestLargeAnswersKeepTheirCallersPlace(t *testing.T) {
	t.Parallel()
	for name := range unread(nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const places = 2
			w := setup(t, func(c *Config) {
				c.Limits.OperationsPerSubject, c.Limits.OperationsPerTenant, c.Limits.OperationWait = places, places, 100*time.Millisecond
				c.Limits.AnswerBytes, c.Limits.WriteTime = 2*hugeBytes, time.Minute
			})
			keys := func(level, name string) int {
				key := slots.Key{Level: level, Name: name}
				return w.quota.operations.unanswered.Users(key) + w.quota.operations.executed.Users(key)
			}
			const own = `{ pool(tenantId: "shared", poolId: "p") { id } }`
			answers := make([]func() int64, places)
			for i := range answers {
				answers[i] = unread(w)[name](t, tokenAlice)
			}
			eventually(t, "all is executed", func() bool { return keys(limitSubject, "user:alice") == places && keys(limitTenant, "shared") == 0 })
			if _, body := w.post(t, own); !strings.Contains(body, `"rule":"operations"`) {
				t.Errorf("one more is not refused: %s", body)
			}
			if resp, body := w.post(t, own, "Authorization", "Bearer "+tokenBob); resp.StatusCode != http.StatusOK {
				t.Errorf("another caller of the tenant: %d %s", resp.StatusCode, body)
			}
			for _, read := range answers {
				if n := read(); n < hugeBytes {
					t.Errorf("only %d bytes came", n)
				}
			}
			eventually(t, "the places are given back", func() bool { return keys(limitSubject, "user:alice") == 0 })
			if resp, body := w.post(t, own); resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

// What a tenant's services have not read is the tenant's, since it has as many of them as its administrators like.
func TestLargeAnswersOfServicesKeepTheirTenantsPlace(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) {
		c.Limits.OperationsPerSubject, c.Limits.OperationsPerTenant, c.Limits.OperationWait = 1, 2, 100*time.Millisecond
		c.Limits.AnswerBytes, c.Limits.WriteTime = 2*hugeBytes, time.Minute
	})
	for i := range 2 {
		unread(w)["GraphQL"](t, fmt.Sprint(tokenService, i))
	}
	key := slots.Key{Level: limitTenant, Name: "alice-1"}
	eventually(t, "all is executed", func() bool {
		return w.quota.operations.unanswered.Users(key) == 2 && w.quota.operations.executed.Users(key) == 0
	})
	if _, body := w.post(t, `{ viewer { subject } }`, "Authorization", "Bearer "+tokenService+"2"); !strings.Contains(body, `"rule":"tenant_operations"`) {
		t.Errorf("one more is not refused: %s", body)
	}
	if resp, body := w.post(t, `{ pool(tenantId: "alice-1", poolId: "p") { id } }`); resp.StatusCode != http.StatusOK {
		t.Errorf("a person of the tenant: %d %s", resp.StatusCode, body)
	}
}

// An event is an operation, whatever is selected of it. It waits for its turn as long as it may take; then the stream ends before it.
func TestEventsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationsPerSubject, c.Limits.OperationTime = 1, 200*time.Millisecond })
	ctx := authz.WithActor(t.Context(), authz.Actor{Subject: "user:alice"})
	held, err := w.quota.operations.take(ctx, w.quota.keys(ctx, nil))
	if err != nil {
		t.Fatal(err)
	}
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("shared", 3))
	c.expect(`{"id":"1","type":"error","payload":[{"message":"The operation did not finish within its time limit.","extensions":{"code":"UNAVAILABLE"}`)
	held.end()
	c.subscribe("2", watch("shared", 3))
	for range 3 {
		c.expect(`{"id":"2","type":"next"…`)
	}
	c.expect(`{"id":"2","type":"complete"}`)
}

// A stream does not keep the memory of an event that was told.
func TestStreamsForgetWhatTheyTold(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx, cancel := context.WithCancel(authz.WithActor(t.Context(), authz.Actor{Subject: "user:alice"}))
	op, refusal := w.engine.prepare(ctx, &graphql.RawParams{Query: watch("large", 5)})
	if refusal != nil {
		t.Fatal(refusal.Errors)
	}
	var told, forgotten atomic.Int64
	err := w.engine.run(ctx, op, func(resp *graphql.Response) error {
		if !bytes.Contains(resp.Data, []byte("xxx")) {
			t.Errorf("told %.99s", resp.Data)
		}
		before := told.Add(1) - 1
		eventually(t, "all events before are forgotten", func() bool { runtime.GC(); return forgotten.Load() == before })
		runtime.AddCleanup(&resp.Data[0], func(int) { forgotten.Add(1) }, 0)
		return nil
	})
	cancel()
	if err != nil || told.Load() != 5 {
		t.Errorf("%d events were told: %v", told.Load(), err)
	}
}
