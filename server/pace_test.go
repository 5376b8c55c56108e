package server

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// An answer that its client does not read ends, whatever made it.
func TestAnswersEndWithAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.WriteTime = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /api/compute/large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+tokenAlice+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-w.written; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing it ended with %v", err)
	}
}

// Each piece has the whole time, so that whoever reads slowly gets it all.
func TestPacedWrites(t *testing.T) {
	t.Parallel()
	for whole, pace := range map[bool]time.Duration{true: patience, false: 2 * time.Second} {
		ours, theirs := net.Pipe()
		paced := &pacedConn{ours, pace}
		read := make(chan int, 1)
		go func() {
			size := 3 * paceBytes
			if !whole {
				size = paceBytes + 10
			}
			n, _ := io.ReadFull(theirs, make([]byte, size))
			read <- n
		}()
		written, err := paced.Write(make([]byte, 3*paceBytes))
		n := <-read
		if written != n || whole != (err == nil) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d of %d that were read: %v", written, n, err)
		}
		_ = ours.Close()
		_ = theirs.Close()
	}
}
