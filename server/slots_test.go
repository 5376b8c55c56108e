package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/internal/slots"
)

const heldPool = `{ pool(tenantId: "%s", poolId: "held") { id } }`

// ways are how a caller executes something that is held.
func ways(w *world) map[string]func(t *testing.T, token, tenant string) (refusal string) {
	call := func(t *testing.T, path, body, token string) string {
		t.Helper()
		resp, text := w.call(t, http.MethodPost, path, body, "Authorization", "Bearer "+token)
		if resp.StatusCode == http.StatusOK {
			return ""
		}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
		}
		return text
	}
	return map[string]func(t *testing.T, token, tenant string) string{
		"GraphQL": func(t *testing.T, token, tenant string) string {
			t.Helper()
			return call(t, graphqlPath, fmt.Sprintf(`{"query":%q}`, fmt.Sprintf(heldPool, tenant)), token)
		},
		"REST": func(t *testing.T, token, tenant string) string {
			t.Helper()
			return call(t, restPath+"/held", fmt.Sprintf(`{"tenantId":%q}`, tenant), token)
		},
		"a socket": func(t *testing.T, token, tenant string) string {
			t.Helper()
			c := w.connect(t, token)
			c.subscribe("1", fmt.Sprintf(heldPool, tenant))
			return onlyErrors(c.next())
		},
		"a stream": func(t *testing.T, token, tenant string) string {
			t.Helper()
			for line := range w.events(t, fmt.Sprintf(heldPool, tenant), token) {
				if data, ok := strings.CutPrefix(line, "data: {"); ok {
					return onlyErrors(data)
				}
			}
			t.Error("no answer")
			return ""
		},
	}
}

func onlyErrors(text string) string {
	if strings.Contains(text, "RATE_LIMITED") {
		return text
	}
	return ""
}

// However many operations a caller sends, by whatever transport, a few are executed at a time; the callers of a tenant have a few more together. Who
// waits too long is refused, and others are not.
func TestOperationsAtATime(t *testing.T) {
	t.Parallel()
	for name := range ways(nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(c *Config) {
				c.Limits.OperationsPerSubject, c.Limits.OperationsPerTenant, c.Limits.OperationWait, c.Limits.OperationTime = 2, 3, 100*time.Millisecond, time.Minute
			})
			send := ways(w)[name]
			var calls sync.WaitGroup
			refusals := make(chan string, 100)
			ask := func(n int, token, tenant string) {
				for range n {
					calls.Go(func() {
						if refusal := send(t, token, tenant); refusal != "" {
							refusals <- refusal
						}
					})
				}
			}
			refusedFor := func(limit string, n int) {
				t.Helper()
				for range n {
					if refusal := <-refusals; !strings.Contains(refusal, `"limit":"`+limit+`"`) || !strings.Contains(refusal, `"retryAfterSeconds":1`) {
						t.Errorf("not for the %s: %s", limit, refusal)
					}
				}
			}
			ask(8, tokenAlice, "shared")
			refusedFor(limitSubject, 6)
			ask(2, tokenBob, "shared")
			refusedFor(limitTenant, 1)
			eventually(t, "three are executed", func() bool { now, _ := w.held.counts(); return now == 3 })
			if _, most := w.held.counts(); most != 3 {
				t.Errorf("%d are executed at most", most)
			}
			ask(1, tokenBob, "none") // where nobody has a right, and so nobody's
			eventually(t, "another caller's place is free", func() bool { now, _ := w.held.counts(); return now == 4 })
			close(w.held.let)
			calls.Wait()
			for _, key := range []slots.Key{{Level: limitSubject, Name: "user:alice"}, {Level: limitTenant, Name: "shared"}} {
				eventually(t, fmt.Sprintf("the slots of %v are given back", key), func() bool {
					return w.quota.operations.unanswered.Users(key)+w.quota.operations.executed.Users(key)+w.quota.fields.Users(key) == 0
				})
			}
			var metrics string
			eventually(t, "nothing is executed", func() bool {
				_, metrics = w.call(t, http.MethodGet, "/metrics", "")
				return strings.Contains(metrics, "compute_operations_running 0")
			})
			if !strings.Contains(metrics, `{rule="operations"} 6`) || !strings.Contains(metrics, `{rule="tenant_operations"} 1`) {
				t.Errorf("not counted: %s", metrics)
			}
		})
	}
}

// Who waits a little gets their turn.
func TestOperationsWaitForOneAnother(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) {
		c.Limits.OperationsPerSubject, c.Limits.OperationWait = 1, time.Minute
	})
	close(w.held.let)
	var calls sync.WaitGroup
	for name, send := range ways(w) {
		for range 10 {
			calls.Go(func() {
				if refusal := send(t, tokenAlice, "shared"); refusal != "" {
					t.Errorf("%s: %s", name, refusal)
				}
			})
		}
	}
	calls.Wait()
	if _, most := w.held.counts(); most != 1 {
		t.Errorf("%d at a time", most)
	}
}

// One operation may have many fields, each of which needs a connection to the database.
func TestFieldsAtATime(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationsPerSubject = 3 })
	var fields strings.Builder
	for i := range 20 {
		fmt.Fprintf(&fields, `f%d: pool(tenantId: "shared", poolId: "held") { id } `, i)
	}
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if resp, body := w.post(t, "{ "+fields.String()+"}"); resp.StatusCode != http.StatusOK || strings.Contains(body, "errors") {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
	eventually(t, "all places are taken", func() bool { now, _ := w.held.counts(); return now == 3 })
	close(w.held.let)
	calls.Wait()
	if _, most := w.held.counts(); most != 3 {
		t.Errorf("%d at a time", most)
	}
}

// Subscriptions have no place while they wait, and one of the caller's while they read what they tell.
func TestSubscriptionsWaitWithoutAPlace(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationsPerSubject = 1 })
	c := w.connect(t, tokenAlice)
	for i := range 5 {
		c.subscribe(fmt.Sprint(i), watch("shared", -1))
		c.expect(fmt.Sprintf(`{"id":"%d","type":"next"…`, i))
	}
	if resp, body := w.post(t, `{ viewer { subject } }`); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	reading := `subscription { bootstrapStatusChanged(tenantId: "held", after: "1") { bootstrap { account { id } } } }`
	for i := range 5 {
		c.subscribe(fmt.Sprint("reads", i), reading)
	}
	eventually(t, "one reads", func() bool { now, _ := w.held.counts(); return now == 1 })
	close(w.held.let)
	for told := 0; told < 5; {
		if m := c.next(); strings.Contains(m, `"type":"next"`) && strings.Contains(m, `"account":null`) {
			told++
		} else if strings.Contains(m, `"type":"error"`) {
			t.Fatal(m)
		}
	}
	if _, most := w.held.counts(); most != 1 {
		t.Errorf("%d read at a time", most)
	}
}

// A provider that hangs keeps its callers from nothing else, and they are capped all the same.
func TestLiveOperationsHavePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) {
		c.Limits.OperationsPerSubject, c.Limits.OperationWait, c.Limits.LiveOperationTime = 2, 50*time.Millisecond, time.Minute
	})
	var calls sync.WaitGroup
	refused := make(chan string, 10)
	for range 2 {
		calls.Go(func() {
			w.post(t, `{ offers(tenantId: "shared", accountId: "held") { id } }`)
		})
	}
	eventually(t, "both hang", func() bool { now, _ := w.live.counts(); return now == 2 })
	for range 2 {
		calls.Go(func() {
			_, body := w.call(t, http.MethodPost, restPath+"/live", `{"tenantId":"shared"}`)
			refused <- body
		})
		if body := <-refused; !strings.Contains(body, `"rule":"operations"`) {
			t.Errorf("a third one: %s", body)
		}
		if resp, body := w.post(t, `{ viewer { subject } }`); resp.StatusCode != http.StatusOK {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	close(w.live.let)
	calls.Wait()
}

// What is read for an event may take as long as an operation. Then the stream ends with the code of that, before the event, which comes again to who resumes.
func TestEventsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime = 2 * time.Second })
	quick, slow := watch("shared", 3), `subscription { bootstrapStatusChanged(tenantId: "held", after: "3") { cursor bootstrap { account { id } } } }`
	const late = `"The operation did not finish within its time limit.","extensions":{"code":"UNAVAILABLE"}`
	expectLines(t, w.events(t, slow, tokenAlice), "event: next", `data: {"errors":[{"message":`+late, "event: complete", "data:")
	c := w.connect(t, tokenAlice)
	c.subscribe("1", slow)
	c.expect(`{"id":"1","type":"error","payload":[{"message":` + late + `}]}`)
	c.subscribe("2", watch("shared", -1))
	c.expect(`{"id":"2","type":"next"…`)
	c.subscribe("3", quick)
	for range 3 {
		c.expect(`{"id":"3","type":"next"…`)
	}
	c.expect(`{"id":"3","type":"complete"}`)
	close(w.held.let)
	c.subscribe("4", slow) // each event in time
	for range 3 {
		c.expect(`{"id":"4","type":"next"…`)
	}
	c.expect(`{"id":"4","type":"complete"}`)
}
