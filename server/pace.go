package server

import (
	"net"
	"time"
)

// paceBytes is how much has to be with a client in the time for one write.
const paceBytes = 64 << 10

// pacedListener has connections that end when their client does not read: whatever is written, each 64 KiB of it get the limit. An answer of any size
// can be read slowly, but none can be kept waiting for ever, with its memory.
type pacedListener struct {
	net.Listener
	limit time.Duration
}

func (l pacedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pacedConn{conn, l.limit}, nil
}

type pacedConn struct {
	net.Conn
	limit time.Duration
}

func (c *pacedConn) Write(b []byte) (written int, err error) {
	for {
		if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(b[:min(len(b), paceBytes)])
		written, b = written+n, b[n:]
		if err != nil || len(b) == 0 {
			return written, err
		}
	}
}
