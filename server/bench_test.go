package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
)

// What a request costs before it is executed: a document that was seen before, one that was not, and the dearest.
func BenchmarkPrepare(b *testing.B) {
	ordinary := &graphql.RawParams{
		Query:     `query ($t: ID!) { providerAccounts(tenantId: $t, first: 20) { nodes { id name bootstraps(first: 2) { nodes { id status } } } } }`,
		Variables: map[string]any{"t": "demo"},
	}
	for _, c := range []struct {
		name   string
		params *graphql.RawParams
		fresh  bool
	}{
		{"cached", ordinary, false},
		{"fresh", ordinary, true},
		{"unknown fields", hostile()["unknown fields"], true},
		{"equal fields", hostile()["1,900 equal fields"], true},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := newTestEngine(b, Config{})
			b.ReportAllocs()
			for b.Loop() {
				if c.fresh {
					e.documents.Purge()
				}
				e.prepare(b.Context(), &graphql.RawParams{Query: c.params.Query, Variables: c.params.Variables})
			}
		})
	}
}

// What a WebSocket with one idle subscription costs the server. The clients are bare sockets, so that the figures are the
// server's own but for some hundred bytes.
func BenchmarkOpenSubscriptions(b *testing.B) {
	const count = 1000
	w := setup(b, func(c *Config) { c.Limits.SocketsPerSubject, c.Limits.PendingSockets = count, count })
	for b.Loop() {
		before, goroutines := memoryInUse(), runtime.NumGoroutine()
		conns := make([]net.Conn, count)
		for i := range conns {
			conns[i] = w.openBare(b)
		}
		b.ReportMetric(float64(memoryInUse()-before)/count, "B/subscription")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/count, "goroutines/subscription")
		for _, conn := range conns {
			_ = conn.Close()
		}
		eventually(b, "every goroutine ends", func() bool { return runtime.NumGoroutine() <= goroutines })
	}
}

func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // the first may only have put pools aside
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// openBare opens a socket with one subscription, and reads up to its first message.
func (w *world) openBare(t testing.TB) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "GET /graphql HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", socketSubprotocol)
	out.Write(frame(fmt.Sprintf(`{"type":"connection_init","payload":{"authorization":%q}}`, tokenAlice)))
	out.Write(frame(`{"id":"1","type":"subscribe","payload":` + requestFor(watch("t", -1)) + `}`))
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for chunk := make([]byte, 512); !bytes.Contains(got, []byte(`"type":"next"`)); {
		n, err := conn.Read(chunk)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, chunk[:n]...)
	}
	return conn
}

// frame is a text frame as a client sends it, masked with zeros.
func frame(text string) []byte {
	header := []byte{0x81, 0x80 | 126, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(header[2:], uint16(len(text)))
	return append(header, text...)
}
