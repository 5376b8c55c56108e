package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// client is a WebSocket that speaks raw frames.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func (w *world) dial(t testing.TB, subprotocol string, header http.Header) *client {
	t.Helper()
	options := &websocket.DialOptions{HTTPHeader: header}
	if subprotocol != "" {
		options.Subprotocols = []string{subprotocol}
	}
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(w.url, "http")+"/graphql", options)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t, conn}
}

func (w *world) connect(t testing.TB, token string) *client {
	t.Helper()
	c := w.dial(t, socketSubprotocol, nil)
	c.send(`{"type":"connection_init","payload":{"authorization":"Bearer %s"}}`, token)
	c.expect(`{"type":"connection_ack"}`)
	return c
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

func (c *client) subscribe(id, document string) {
	c.t.Helper()
	c.send(`{"id":%q,"type":"subscribe","payload":%s}`, id, requestFor(document))
}

// next reads one message.
func (c *client) next() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	if err != nil {
		c.t.Fatalf("reading: %v", err)
	}
	return string(data)
}

func (c *client) expect(want string) {
	c.t.Helper()
	if got := c.next(); !strings.HasPrefix(got, strings.TrimSuffix(want, "…")) {
		c.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// closed reads until the server closes and checks the code.
func (c *client) closed(code websocket.StatusCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		if _, data, err := c.conn.Read(ctx); err != nil {
			if got := websocket.CloseStatus(err); got != code {
				c.t.Errorf("closed with %d (%v), want %d", got, err, code)
			}
			return
		} else if strings.Contains(string(data), `"complete"`) {
			c.t.Errorf("a message after the reason to close: %s", data)
		}
	}
}

// isSentAway says hello once more and reports whether the server has no points left for the caller.
func (c *client) isSentAway() bool {
	c.t.Helper()
	_ = c.conn.Write(c.t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`)) // fails when the server is faster
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, _, err := c.conn.Read(ctx)
	return websocket.CloseStatus(err) == closeTryLater
}

// Nobody is charged for what comes before the caller is known, so little is read of it.
func TestLittleIsReadBeforeTheCallerIsKnown(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.InitTime = time.Minute })
	open := func(pings int) *client {
		c := w.dial(t, socketSubprotocol, nil)
		for range pings {
			c.send(`{"type":"ping"}`)
			c.expect(`{"type":"pong"}`)
		}
		return c
	}
	fill := func(kind string, bytes int) string {
		return `{"type":"` + kind + `","payload":{"authorization":"` + strings.Repeat("x", bytes) + `"}}`
	}
	for name, c := range map[string]struct {
		pings int
		last  string
		code  websocket.StatusCode
	}{
		"a large ping":                     {0, fill(messagePing, helloBytes), websocket.StatusMessageTooBig},
		"a large init":                     {0, fill(messageInit, helloBytes), websocket.StatusMessageTooBig},
		"many pings":                       {helloBytes / leastHello, fill(messagePing, 1), websocket.StatusMessageTooBig},
		"the largest token, after pings":   {4, fill(messageInit, 16<<10), closeForbidden},
		"the last word":                    {helloBytes/leastHello - 1, fill(messageInit, 900), closeForbidden},
		"a large init after several pings": {10, fill(messageInit, 16<<10), websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c1 := open(c.pings)
			c1.send("%s", c.last)
			c1.closed(c.code)
		})
	}
	t.Run("known", func(t *testing.T) {
		t.Parallel()
		c := w.connect(t, tokenAlice)
		c.send("%s", fill(messagePing, 200<<10))
		c.expect(`{"type":"pong"}`)
	})
}

// pinged sends pings of WebSocket's own until the connection ends.
func (c *client) pinged() (answered int, code websocket.StatusCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.conn.Read(ctx)
		ended <- err
	}()
	for c.conn.Ping(ctx) == nil {
		answered++
	}
	return answered, websocket.CloseStatus(<-ended)
}

// What the frames of WebSocket's own make the server do is paid for like a message, and before there is a caller there are few of them.
func TestPingFramesArePaidFor(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) {
		c.Limits.InitTime, c.Limits.PointsAtMost, c.Limits.PointsPerSecond = time.Minute, 100, 1
	})
	if n, code := w.dial(t, socketSubprotocol, nil).pinged(); n != helloBytes/leastHello || code != websocket.StatusMessageTooBig {
		t.Errorf("nobody is answered %d pings and sent away with %d", n, code)
	}
	most := 100 + int(patience/time.Second) // points come back while it pings
	if n, code := w.connect(t, tokenAlice).pinged(); n < 50 || n > most || code != closeTryLater {
		t.Errorf("a caller with 100 points is answered %d pings and sent away with %d", n, code)
	}
}

// Our own pings are answered by every client, which costs it nothing.
func TestPongsThatNobodyAskedForArePaidFor(t *testing.T) {
	t.Parallel()
	paid := 0
	c := &socket{frame: func() bool { paid++; return true }}
	c.pings.Add(2)
	for _, want := range []int{0, 0, 1, 2} {
		if c.pongReceived(); paid != want {
			t.Errorf("%d pongs are paid for, want %d", paid, want)
		}
	}
	c.pings.Add(1)
	if c.pongReceived(); paid != 2 {
		t.Error("an answer is paid for after pongs that were none")
	}
}

// A credential that nobody can check now may be good.
func TestSocketIsSentAwayWhileCredentialsCannotBeChecked(t *testing.T) {
	t.Parallel()
	c := setup(t).dial(t, socketSubprotocol, nil)
	c.send(`{"type":"connection_init","payload":{"authorization":"Bearer %s"}}`, tokenNoProvider)
	c.closed(closeTryLater)
}

func TestSocketCloseCodes(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.InitTime = time.Hour })
	hasty := setup(t, func(c *Config) { c.Limits.InitTime = 200 * time.Millisecond })
	dial := func(subprotocol string) func(*testing.T) *client {
		return func(t *testing.T) *client {
			t.Helper()
			return w.dial(t, subprotocol, nil)
		}
	}
	late := func(t *testing.T) *client {
		t.Helper()
		return hasty.dial(t, socketSubprotocol, nil)
	}
	open := dial(socketSubprotocol)
	acked := func(t *testing.T) *client {
		t.Helper()
		return w.connect(t, tokenAlice)
	}
	for name, c := range map[string]struct {
		open func(*testing.T) *client
		send []string
		code websocket.StatusCode
	}{
		"no connection_init":             {late, nil, 4408},
		"ping instead of init":           {late, []string{`{"type":"ping"}`}, 4408},
		"subscribe before init":          {open, []string{`{"id":"1","type":"subscribe","payload":{"query":"{ __typename }"}}`}, 4401},
		"complete before init":           {open, []string{`{"id":"1","type":"complete"}`}, 4401},
		"no credential":                  {open, []string{`{"type":"connection_init"}`}, 4403},
		"wrong credential":               {open, []string{`{"type":"connection_init","payload":{"authorization":"Bearer nobody"}}`}, 4403},
		"credential that is no string":   {open, []string{`{"type":"connection_init","payload":{"authorization":7}}`}, 4403},
		"init payload that is no object": {open, []string{`{"type":"connection_init","payload":"x"}`}, 4400},
		"not JSON":                       {open, []string{`{`}, 4400},
		"an array":                       {open, []string{`[]`}, 4400},
		"no type":                        {open, []string{`{}`}, 4400},
		"unknown type":                   {acked, []string{`{"type":"start"}`}, 4400},
		"message of the server":          {acked, []string{`{"type":"next","id":"1"}`}, 4400},
		"second init":                    {acked, []string{`{"type":"connection_init"}`}, 4429},
		"subscribe without id":           {acked, []string{`{"type":"subscribe","payload":{"query":"{ __typename }"}}`}, 4400},
		"subscribe without payload":      {acked, []string{`{"id":"1","type":"subscribe"}`}, 4400},
		"query that is no string":        {acked, []string{`{"id":"1","type":"subscribe","payload":{"query":7}}`}, 4400},
		"subscribe with a long id":       {acked, []string{`{"id":"` + strings.Repeat("1", longestID+1) + `","type":"subscribe","payload":{"query":"{ __typename }"}}`}, 4400},
		"complete without id":            {acked, []string{`{"type":"complete"}`}, 4400},
		"duplicate id": {acked, []string{
			`{"id":"1","type":"subscribe","payload":` + requestFor(watch("t", -1)) + `}`,
			`{"id":"1","type":"subscribe","payload":` + requestFor(watch("t", -1)) + `}`,
		}, 4409},
		"message over the limit": {acked, []string{`{"id":"1","type":"subscribe","payload":{"query":"` + strings.Repeat("x", 256<<10) + `"}}`}, 1009},
		"no subprotocol":         {dial(""), nil, 4406},
		"the legacy subprotocol": {dial("graphql-ws"), nil, 4406},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c1 := c.open(t)
			for _, m := range c.send {
				c1.send("%s", m)
			}
			c1.closed(c.code)
		})
	}
	t.Run("binary frame", func(t *testing.T) {
		t.Parallel()
		c := w.connect(t, tokenAlice)
		if err := c.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
			t.Fatal(err)
		}
		c.closed(4400)
	})
}

func TestSocketOperations(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.connect(t, tokenAlice)
	cost := `,"extensions":{"cost":{"requested":1,"limit":5000}}}}`
	change := func(id string, n int) string {
		return fmt.Sprintf(`{"id":%q,"type":"next","payload":{"data":{"bootstrapStatusChanged":{"cursor":"%d"}}`, id, n) + cost
	}
	t.Log("a query has one response, a subscription as many as it has")
	c.subscribe("q", `{ viewer { subject } }`)
	c.expect(`{"id":"q","type":"next","payload":{"data":{"viewer":{"subject":"user:alice"}}` + cost)
	c.expect(`{"id":"q","type":"complete"}`)
	c.subscribe("s", watch("t", 2))
	c.expect(change("s", 0))
	c.expect(change("s", 1))
	c.expect(`{"id":"s","type":"complete"}`)

	t.Log("what is not run is an error, and nothing more")
	c.subscribe("bad", `{ nope }`)
	c.expect(`{"id":"bad","type":"error","payload":[{"message":"Cannot query field`)
	c.subscribe("denied", watch("denied", 1))
	c.expect(`{"id":"denied","type":"error","payload":[{"message":"No.","path":["bootstrapStatusChanged"],"locations"…`)

	t.Log("a source that fails ends with its reason")
	c.subscribe("lag", watch("lagging", 1))
	c.expect(change("lag", 0))
	c.expect(`{"id":"lag","type":"error","payload":[{"message":"The subscriber does not keep up.","path":["bootstrapStatusChanged"],"extensions":{"code":"RATE_LIMITED"}}]}`)

	t.Log("an id is free again as soon as the client gave it up, and the old operation is not heard any more")
	longest := strings.Repeat("x", longestID)
	c.subscribe(longest, `{ __typename }`)
	c.expect(`{"id":"` + longest + `","type":"next"…`)
	c.expect(`{"id":"` + longest + `","type":"complete"}`)
	c.subscribe("x", watch("t", -1))
	c.expect(change("x", 0))
	c.send(`{"id":"x","type":"complete"}`)
	c.subscribe("x", watch("t", 1))
	c.expect(change("x", 0))
	c.expect(`{"id":"x","type":"complete"}`)
	c.send(`{"id":"never","type":"complete"}`)
	c.send(`{"type":"ping","payload":{"a":1}}`)
	c.expect(`{"type":"pong"}`)
}

func TestSocketTakesTheHeaderOrTheBareToken(t *testing.T) {
	t.Parallel()
	w := setup(t)
	bare := w.dial(t, socketSubprotocol, nil)
	bare.send(`{"type":"connection_init","payload":{"authorization":%q}}`, tokenBob)
	bare.expect(`{"type":"connection_ack"}`)
	header := w.dial(t, socketSubprotocol, http.Header{"Authorization": {"Bearer " + tokenBob}})
	header.send(`{"type":"ping"}`)
	header.expect(`{"type":"pong"}`)
	header.send(`{"type":"connection_init"}`)
	header.expect(`{"type":"connection_ack"}`)
}

func TestSocketLimits(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.SocketOperations, c.Limits.SocketsPerSubject = 2, 1 })
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`)
	c.subscribe("2", watch("t", -1))
	c.expect(`{"id":"2","type":"next"…`)
	c.subscribe("3", watch("t", -1))
	c.expect(`{"id":"3","type":"error","payload":[{"message":"At most 2 operations may run at a time on one connection.","extensions":{"code":"RATE_LIMITED"…`)

	second := w.dial(t, socketSubprotocol, nil)
	second.send(`{"type":"connection_init","payload":{"authorization":"Bearer %s"}}`, tokenAlice)
	second.closed(websocket.StatusTryAgainLater)
	w.connect(t, tokenBob)

	_ = c.conn.Close(websocket.StatusNormalClosure, "")
	eventually(t, "the place is free again", func() bool {
		release, err := w.quota.socket("user:alice")
		if err == nil {
			release()
		}
		return err == nil
	})
	w.connect(t, tokenAlice)
}

// A tenant that makes more services has no more connections.
func TestSocketsOfATenantsServicesAreCapped(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.StreamsPerTenant = 2 })
	first := w.connect(t, tokenService+"1")
	w.connect(t, tokenService+"2")
	third := w.dial(t, socketSubprotocol, nil)
	third.send(`{"type":"connection_init","payload":{"authorization":"Bearer %s"}}`, tokenService+"3")
	third.closed(closeTryLater)
	for range 3 {
		w.connect(t, tokenAlice)
	}
	_ = first.conn.Close(websocket.StatusNormalClosure, "")
	eventually(t, "the place is free again", func() bool {
		release, err := w.quota.socket("service:alice-1/4")
		if err == nil {
			release()
		}
		return err == nil
	})
	w.connect(t, tokenService+"3")
}

func TestSocketEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.connect(t, tokenShort)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`)
	c.closed(4403)
}

// TestIdleSocketEndsWhenItsCredentialIsTakenBack has nothing running that could notice.
func TestIdleSocketEndsWhenItsCredentialIsTakenBack(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c, other := w.connect(t, tokenAlice), w.connect(t, tokenBob)
	close(w.revoked)
	c.closed(4403)
	other.subscribe("1", watch("t", 1))
	other.expect(`{"id":"1","type":"next"…`)
}

func TestSocketOfAnotherOriginIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for origin, want := range map[string]int{"https://evil.example.com": 403, "null": 403, "https://console.example.com.evil.com": 403, "https://console.example.com": 101, w.url: 101} {
		conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(w.url, "http")+"/graphql", &websocket.DialOptions{
			Subprotocols: []string{socketSubprotocol}, HTTPHeader: http.Header{"Origin": {origin}},
		})
		if err == nil {
			_ = conn.CloseNow()
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", origin, resp.StatusCode, want)
		}
	}
}

func TestClientThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.WriteTime = 2 * time.Second })
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("large", 1000)) // 100 MB, more than any socket buffer
	select {
	case <-w.subscriptions.ends:
	case <-time.After(patience):
		t.Fatal("the operation of a client that does not read goes on")
	}
}

func TestSilentPeerIsDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.KeepAlive = 2 * time.Second })
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`) // and no further read, which is what answers pings
	select {
	case <-w.subscriptions.ends:
	case <-time.After(patience):
		t.Fatal("the operation of a peer that does not answer goes on")
	}
}

func TestDrainClosesStreamsForTheirClientsToResume(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.connect(t, tokenAlice)
	c.subscribe("1", watch("t", -1))
	c.expect(`{"id":"1","type":"next"…`)
	idle := w.dial(t, socketSubprotocol, nil)
	idle.send(`{"type":"ping"}`)
	idle.expect(`{"type":"pong"}`)
	w.close()
	c.closed(websocket.StatusGoingAway)
	idle.closed(websocket.StatusGoingAway)
	if err := <-w.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// 200 sockets that never say a word, nor answer the closing handshake, leave nothing behind: TestMain looks for goroutines.
func TestHalfOpenSockets(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.InitTime = 100 * time.Millisecond })
	var conns []net.Conn
	for range 200 {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
		_, _ = fmt.Fprintf(conn, "GET /graphql HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", socketSubprotocol)
	}
	wantLate(t, conns)
}

// wantLate reads until the server ends each of the connections, and says why: with 4408, unless it is so busy that what is left for the closing
// handshake is over before that has begun.
func wantLate(t *testing.T, conns []net.Conn) {
	t.Helper()
	told := 0
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a socket that says nothing stays open")
		}
		if strings.Contains(string(got), "\x11\x38Connection initialisation timeout") { // 4408
			told++
		}
	}
	if told == 0 {
		t.Errorf("of %d sockets none was closed with 4408", len(conns))
	}
}

// TestSilentSocketsShutNobodyOut opens more connections than may wait: the oldest of those that say nothing go.
func TestSilentSocketsShutNobodyOut(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.PendingSockets = 3 })
	silent := make([]*client, 5)
	for i := range silent {
		silent[i] = w.dial(t, socketSubprotocol, nil)
	}
	for _, c := range silent[:2] {
		if _, _, err := c.conn.Read(t.Context()); err == nil || websocket.CloseStatus(err) != -1 {
			t.Errorf("one of the oldest is still there: %v", err)
		}
	}
	w.connect(t, tokenAlice) // makes the third go
	w.connect(t, tokenBob)   // finds the place that the one before has left
	last := silent[4]
	last.send(`{"type":"connection_init","payload":{"authorization":%q}}`, tokenAlice)
	last.expect(`{"type":"connection_ack"}`)
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"id":"1","type":"subscribe","payload":{"query":"{a}"}}`))
	f.Add([]byte(`{"type":"ping","type":"pong"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, ok := parseMessage(websocket.MessageText, data); ok && !json.Valid(data) {
			t.Errorf("took %q for a message", data)
		}
	})
}
