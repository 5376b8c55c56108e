package harness

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Dial takes a connection further. It may read from it what tells where it wants to go, and then passes that on itself. A link that it
// has marked can fall silent.
type Dial func(client net.Conn) (server net.Conn, marked bool, err error)

// Relay listens, and passes on what is said on each of its connections. It closes all of them with the test.
type Relay struct {
	Address string

	dial  Dial
	all   sync.WaitGroup
	mu    sync.Mutex
	links map[net.Conn]*link
}

type link struct {
	marked bool
	silent atomic.Bool
}

// NewRelay listens at the address.
func NewRelay(t testing.TB, address string, dial Dial) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Address: ln.Addr().String(), dial: dial, links: map[net.Conn]*link{}}
	r.all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		r.change(func() {
			for conn := range r.links {
				_ = conn.Close()
			}
		})
		r.all.Wait()
	})
	return r
}

func (r *Relay) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	l := new(link)
	r.change(func() { r.links[client] = l })
	defer r.change(func() { delete(r.links, client) })
	server, marked, err := r.dial(client)
	if server != nil {
		defer func() { _ = server.Close() }()
	}
	if err != nil {
		return
	}
	r.change(func() { l.marked = marked })
	var up sync.WaitGroup
	up.Go(func() {
		_, err := io.Copy(server, client)
		half, ok := server.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			_ = server.Close()
		}
	})
	l.answer(client, server)
	_ = client.Close()
	up.Wait()
}

func (l *link) answer(client, server net.Conn) {
	for chunk := make([]byte, 32<<10); ; {
		n, err := server.Read(chunk)
		if err != nil {
			return
		}
		if l.silent.Load() {
			continue
		}
		if _, err := client.Write(chunk[:n]); err != nil {
			return
		}
	}
}

// Hush lets nothing more through to the clients of the marked links that there are now, which stay open.
func (r *Relay) Hush() {
	r.change(func() {
		for _, l := range r.links {
			if l.marked {
				l.silent.Store(true)
			}
		}
	})
}

// change does something to the links, while nothing else does.
func (r *Relay) change(links func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	links()
}
