package server

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// events opens an event stream and gives its lines without comments and blank ones; the channel closes at its end.
func (w *world) events(t testing.TB, document, token string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/graphql", strings.NewReader(requestFor(document)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	client := &http.Client{}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close(); client.CloseIdleConnections() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("no event stream: %d %v", resp.StatusCode, resp.Header)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			if line := scanner.Text(); line != "" {
				lines <- line
			}
		}
	}()
	return lines
}

func expectLines(t testing.TB, lines <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-lines:
			for got == ":" {
				got = <-lines
			}
			if !strings.HasPrefix(got, w) {
				t.Fatalf("got  %q\nwant %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("no line for %q", w)
		}
	}
}

func expectEnd(t testing.TB, lines <-chan string) {
	t.Helper()
	for line := range lines {
		if line != ":" {
			t.Errorf("a line too many: %q", line)
		}
	}
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, c := range map[string]struct {
		document string
		want     []string
	}{
		"subscription": {watch("t", 2), []string{
			"event: next", `data: {"data":{"bootstrapStatusChanged":{"cursor":"0"}},"extensions":{"cost":{`,
			"event: next", `data: {"data":{"bootstrapStatusChanged":{"cursor":"1"}}`, "event: complete", "data:",
		}},
		"query":            {`{ viewer { subject } }`, []string{"event: next", `data: {"data":{"viewer":{"subject":"user:alice"}}`, "event: complete", "data:"}},
		"invalid document": {`{ nope }`, []string{"event: next", `data: {"errors":[{"message":"Cannot query field`, "event: complete", "data:"}},
		"refused at once":  {watch("denied", 1), []string{"event: next", `data: {"errors":[{"message":"No."`, "event: complete", "data:"}},
		"source that fails": {watch("lagging", 1), []string{
			"event: next", `data: {"data"`, "event: next", `data: {"errors":[{"message":"The subscriber does not keep up."`, "event: complete", "data:",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := w.events(t, c.document, tokenAlice)
			expectLines(t, lines, c.want...)
			expectEnd(t, lines)
		})
	}
}

func TestEventStreamEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	w := setup(t)
	lines := w.events(t, watch("t", -1), tokenShort)
	expectLines(t, lines, "event: next", `data: {"data"`,
		"event: next", `data: {"errors":[{"message":"The credential has ended.","extensions":{"code":"UNAUTHENTICATED"}}]}`, "event: complete", "data:")
	expectEnd(t, lines)
}

func TestEventStreamEndsAtDrainWithoutComplete(t *testing.T) {
	t.Parallel()
	w := setup(t)
	lines := w.events(t, watch("t", -1), tokenAlice)
	expectLines(t, lines, "event: next", `data: {"data"`)
	w.close()
	expectEnd(t, lines)
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestEventStreamThatIsNotReadIsDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.WriteTime = 200 * time.Millisecond })
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := requestFor(watch("large", 1000)) // 100 MB, more than any socket buffer
	_, _ = fmt.Fprintf(conn, "POST /graphql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"+
		"Content-Length: %d\r\n\r\n%s", tokenAlice, len(body), body)
	select {
	case <-w.subscriptions.ends:
	case <-time.After(patience):
		t.Fatal("the operation of a client that does not read goes on")
	}
}

func TestEventStreamsAreCappedAndKeptAlive(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.StreamsPerSubject, c.Limits.KeepAlive = 1, 20*time.Millisecond })
	lines := w.events(t, watch("t", -1), tokenAlice)
	expectLines(t, lines, "event: next", `data: {"data"`)
	for range 3 {
		if got := <-lines; got != ":" {
			t.Fatalf("got %q, want a comment", got)
		}
	}
	resp, body := w.post(t, watch("t", 1), "Accept", "text/event-stream")
	if code, _, _ := firstError(t, body); resp.StatusCode != 429 || code != "RATE_LIMITED" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a second stream: %d %s %v", resp.StatusCode, body, resp.Header)
	}
	w.events(t, watch("t", 1), tokenBob)
}

func TestRequestInFlightOutlivesTheDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime = 2 * time.Second })
	type answer struct {
		status int
		body   string
	}
	got := make(chan answer, 1)
	go func() {
		resp, body := w.post(t, `{ pool(tenantId: "slow", poolId: "p") { id } viewer { subject } }`)
		got <- answer{resp.StatusCode, body}
	}()
	eventually(t, "the request is running", func() bool { return w.slow.Load() > 0 })
	w.close()
	if a := <-got; a.status != 200 || !strings.Contains(a.body, "user:alice") {
		t.Errorf("cut off: %d %s", a.status, a.body)
	}
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
