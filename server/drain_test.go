package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"better/compute/internal/problem"
)

// TestNotice looks at a server that was told to stop: it says so, and serves as before until the notice is over.
func TestNotice(t *testing.T) {
	t.Parallel()
	w := setup(t)
	lines := w.events(t, watch("t", -1), tokenAlice)
	expectLines(t, lines, "event: next", `data: {"data"`)
	if resp, _ := w.post(t, `{ viewer { subject } }`); resp.Close {
		t.Error("a server that stays says goodbye")
	}
	w.leaving.Store(true) // what Serve does first
	if resp, body := w.call(t, "GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"UNAVAILABLE"`) {
		t.Errorf("/readyz: %d %s", resp.StatusCode, body)
	}
	for _, c := range [][3]string{{"POST", "/graphql", requestFor(`{ viewer { subject } }`)}, {"POST", "/api/compute/x", "{}"}, {"GET", "/healthz", ""}} {
		if resp, body := w.call(t, c[0], c[1], c[2]); resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%s: %d %s, the connection stays: %v", c[1], resp.StatusCode, body, !resp.Close)
		}
	}
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`)
}

func TestAfterTheNoticeTheServerEnds(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.DrainNotice = time.Millisecond })
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`)
	lines := w.events(t, watch("t", -1), tokenAlice)
	expectLines(t, lines, "event: next", `data: {"data"`)
	w.close()
	c.closed(closeDraining)
	expectEnd(t, lines)
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A request that takes longer than a drain hears what to do instead of losing its connection.
func TestRequestsAreAnsweredAtTheEndOfTheDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime, c.Limits.DrainTime = time.Hour, 2*time.Second })
	answered := make(chan string, 1)
	go func() {
		_, body := w.post(t, `{ pool(tenantId: "slow", poolId: "p") { id } viewer { subject } }`)
		answered <- body
	}()
	eventually(t, "the request is running", func() bool { return w.slow.Load() > 0 })
	w.close()
	if body := <-answered; !strings.Contains(body, `"code":"UNAVAILABLE"`) || !strings.Contains(body, "user:alice") {
		t.Errorf("got %s", body)
	}
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestOperationsOfASocketAreAnsweredAtDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime = 2 * time.Second })
	c := w.connect(t, tokenAlice)
	c.subscribe("stream", watch("t", -1))
	c.expect(`{"id":"stream","type":"next"…`)
	c.subscribe("slow", `{ pool(tenantId: "slow", poolId: "p") { id } viewer { subject } }`)
	eventually(t, "the query is running", func() bool { return w.slow.Load() > 0 })
	w.close()
	c.expect(`{"id":"slow","type":"next"…`)
	c.expect(`{"id":"slow","type":"complete"}`)
	c.closed(closeDraining)
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestAnOperationAsAnEventStreamIsAnsweredAtDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime = 2 * time.Second })
	lines := w.events(t, `{ pool(tenantId: "slow", poolId: "p") { id } viewer { subject } }`, tokenAlice)
	eventually(t, "the query is running", func() bool { return w.slow.Load() > 0 })
	w.close()
	expectLines(t, lines, "event: next", `data: {"errors"`, "event: complete", "data:")
	expectEnd(t, lines)
}

func TestALeavingSocketTakesNothingNew(t *testing.T) {
	t.Parallel()
	c := &socket{server: setup(t).Server, leaving: true, live: map[string]*liveOperation{}}
	if err := c.admit("1", &liveOperation{}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("admitted: %v", err)
	}
}
