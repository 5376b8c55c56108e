package server

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// foreignOrigins are what pages of other sites send, and what passes for an allowed one when it is not compared as a whole.
func foreignOrigins(own string) []string {
	host := strings.TrimPrefix(own, "http://")
	port := host[strings.LastIndexByte(host, ':'):]
	return []string{
		"null", "https://evil.example.com", "http://evil.example.com", "https://example.com", "https://console.example.com.evil.com",
		"https://evilconsole.example.com", "https://console.example.com:444", "https://console.example.com:80", "http://console.example.com",
		"https://console.example.com/", "https://console.example.com/path", "https://console.example.com?x", "https://console.example.com#x",
		"https://console.example.com@evil.com", "https://evil.com@console.example.com:1", "https://user@console.example.com", "//console.example.com",
		"console.example.com", "https:console.example.com", "https:///console.example.com", "https://console.example.com.", "https://CONSOLE.example.com",
		"HTTPS://console.example.com", "https://console%2eexample.com", "https://console.example.com%00", "https://xn--console.example.com",
		"file://", "file:///etc/passwd", "chrome-extension://abcdef", "about:blank", "data:text/html,x", "javascript:alert(1)", "ws://evil.example.com", "*",
		own + ".evil.com", own + "0", own + "@evil.com", "http://evil.com" + port, "http://localhost.evil.com" + port, "https://0.0.0.0" + port, own + "," + own, "https://console.example.com https://evil.com",
	}
}

func TestNoOriginOfAnotherSiteGetsASocket(t *testing.T) {
	t.Parallel()
	w := setup(t)
	upgrades := 0
	origins := foreignOrigins(w.url)
	for _, origin := range origins {
		conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(w.url, "http")+"/graphql", &websocket.DialOptions{
			HTTPHeader: http.Header{"Origin": {origin}, "Authorization": {"Bearer " + tokenAlice}}, Subprotocols: []string{socketSubprotocol},
		})
		if err == nil {
			upgrades++
			t.Errorf("a page of %q got a socket", origin)
			_ = conn.CloseNow()
			continue
		}
		if resp != nil && resp.StatusCode != http.StatusForbidden {
			t.Errorf("%q: %d", origin, resp.StatusCode)
		}
	}
	for _, origin := range []string{"https://console.example.com", w.url} {
		w.dial(t, socketSubprotocol, http.Header{"Origin": {origin}})
	}
	t.Logf("socket-origins origins=%d upgrades=%d", len(origins), upgrades)
}

// What a page of another site can have a browser send: no cell of the matrix may execute a mutation, unless origin, method and type are all right.
func TestMatrixOfWhatABrowserSends(t *testing.T) {
	t.Parallel()
	w := setup(t)
	document := `mutation { archivePool(input: {tenantId: "t", poolId: "p"}) { pool { id } } }`
	query := "?" + url.Values{"query": {document}}.Encode()
	media := []string{
		"application/json", "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/graphql",
		"application/json; charset=utf-16", "application/jsonp", "text/json", "", "application/json, text/plain", "*/*",
	}
	headers := [][2]string{
		{},
		{"X-Http-Method-Override", "POST"},
		{"X-Requested-With", "XMLHttpRequest"},
		{"Upgrade", "websocket"},
		{"Content-Encoding", "gzip"},
		{"Apollo-Require-Preflight", "1"},
		{"Cookie", "token=" + tokenAlice},
	}
	cells, forbidden := 0, 0
	for _, origin := range []string{"", "https://console.example.com", "https://evil.example.com", "null"} {
		for _, method := range []string{"POST", "GET", "PUT", "HEAD", "OPTIONS"} {
			for _, m := range media {
				for _, h := range headers {
					before := w.mutations.Load()
					w.call(t, method, "/graphql"+query, requestFor(document), "Origin", origin, "Content-Type", m, "X-Cell", "1", orNothing(h[0]), h[1])
					executed := w.mutations.Load() > before
					cells++
					if may := method == "POST" && m == "application/json" && (origin == "" || origin == "https://console.example.com"); executed && !may {
						forbidden++
						t.Errorf("executed: %s from %q as %q with %v", method, origin, m, h)
					}
				}
			}
		}
	}
	t.Logf("browser-matrix cells=%d executed=%d forbidden=%d", cells, w.mutations.Load(), forbidden)
}

// orNothing gives a header that does nothing where the cell has none.
func orNothing(name string) string {
	if name == "" {
		return "X-Nothing"
	}
	return name
}

// A socket whose client says nothing, or never finishes what it says, is closed when the time for its credential is over.
func TestHalfOpenSocketsAreClosed(t *testing.T) {
	t.Parallel()
	const open = 50
	w := setup(t, func(c *Config) { c.Limits.InitTime = 300 * time.Millisecond })
	conns := make([]net.Conn, open)
	for i := range conns {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "GET /graphql HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", base64.StdEncoding.EncodeToString(make([]byte, 16)), socketSubprotocol)
		if i%2 == 0 {
			_, _ = conn.Write(frame(`{"type":"connection_init"}`)[:9]) // the first bytes of a message
		}
		conns[i] = conn
	}
	wantLate(t, conns)
	eventually(t, "every place is free", func() bool {
		w.pending.mu.Lock()
		defer w.pending.mu.Unlock()
		return w.pending.waiting.Len() == 0
	})
}

// Guesses cost the same in one request, in one socket and in many requests, so that none of them is a way to guess more.
func TestGuessesAreChargedEqually(t *testing.T) {
	t.Parallel()
	const guesses = 100
	guess := func(i int) string { return fmt.Sprintf(`g%d: pool(tenantId: "t", poolId: "%d") { id } `, i, i) }
	var inOne strings.Builder
	for i := range 20 {
		inOne.WriteString(guess(i))
	}
	spent := func(ask func(w *world)) int {
		w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 1_000_000 })
		ask(w)
		return int(1_000_000 - w.quota.meter.points(account{limitSubject, "user:alice"}, time.Time{}))
	}
	separate := spent(func(w *world) {
		for i := range guesses {
			w.post(t, "{ "+guess(i)+"}")
		}
	})
	aliased := spent(func(w *world) {
		for range guesses / 20 {
			w.post(t, "{ "+inOne.String()+"}")
		}
	})
	socket := spent(func(w *world) {
		c := w.connect(t, tokenAlice)
		for i := range guesses {
			c.subscribe(fmt.Sprint(i), "{ "+guess(i)+"}")
			c.next()
			c.next()
		}
	})
	if separate != socket {
		t.Errorf("%d guesses cost %d points in requests, %d in a socket", guesses, separate, socket)
	}
	if aliased < guesses {
		t.Errorf("%d guesses cost %d points by aliases", guesses, aliased)
	}
	t.Logf("guesses guesses=%d points-by-request=%d by-socket=%d by-alias=%d", guesses, separate, socket, aliased)
}

// TestNoisyNeighbour has one tenant ask for a hundred times what it may, and prints what that does to another's slowest calls.
func TestNoisyNeighbour(t *testing.T) {
	w := setup(t, func(c *Config) { c.Limits.TenantPointsPerSecond, c.Limits.TenantPointsAtMost = 100, 100 })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer client.CloseIdleConnections()
	ask := func(token, tenant string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/graphql",
			strings.NewReader(requestFor(`{ providerAccounts(tenantId: "`+tenant+`", first: 9) { nodes { id } } }`)))
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", typeJSON)
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	p99 := func() time.Duration {
		took := make([]time.Duration, 300)
		for i := range took {
			began := time.Now()
			if status := ask(tokenBob, "bob's own"); status != http.StatusOK {
				t.Errorf("the victim got %d", status)
			}
			took[i] = time.Since(began)
			time.Sleep(time.Millisecond) // a caller that does something else as well
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	quiet := p99()
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range 10 { // 10 requests of 10 points are what a second allows; each of these sends as many in a tenth, as far as the machine can
		flood.Go(func() {
			for ticks := time.Tick(10 * time.Millisecond); ; <-ticks {
				select {
				case <-stop:
					return
				default:
				}
				status := ask(tokenAlice, "alice-1")
				mu.Lock()
				answers[status]++
				mu.Unlock()
			}
		})
	}
	flooded := p99()
	close(stop)
	flood.Wait()
	if answers[http.StatusTooManyRequests] == 0 {
		t.Errorf("the flood was not refused: %v", answers)
	}
	t.Logf("noisy-neighbour victim-p99-quiet=%v flooded=%v ratio=%.2f flood=%v", quiet, flooded, float64(flooded)/float64(quiet), answers)
}
