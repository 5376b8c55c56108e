package libvirt_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// What can become of a call on its way.
type verdict int

const (
	passes verdict = iota
	dropped
	answerLost
	halfAnswered
	hangs
	garbled
	negative
	answeredTwice
	mutated
	refused
)

// fault spoils the calls of a procedure; 0 is every one.
type fault struct {
	procedure uint32
	verdict   verdict
	code      uint32 // of a refusal
	after     int    // calls that pass
	once      bool
	met       func(procedure uint32) // is told of each call that is spoilt; nil is not
}

// The numbers of two procedures, as libvirt's protocol has them.
const (
	connectOpen     = 1
	domainDefineXML = 350
)

// proxy stands before libvirtd and speaks TLS in its place, so that it sees the calls.
type proxy struct {
	net.Listener
	server *server

	mu    sync.Mutex
	fault fault
	rand  *rand.Rand // of mutations
}

func (s *server) proxy(t *testing.T, f fault) *proxy {
	t.Helper()
	cert, key := s.authority.sign("127.0.0.1", false)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, server: s, fault: f}
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { p.relay(conn, done) })
		}
	})
	t.Cleanup(func() { close(done); _ = l.Close(); group.Wait() })
	return p
}

func (p *proxy) port() int { return p.Addr().(*net.TCPAddr).Port }

func (p *proxy) judge(procedure uint32) (verdict, uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.verdict == passes || p.fault.procedure != 0 && p.fault.procedure != procedure {
		return passes, 0
	}
	if p.fault.after > 0 {
		p.fault.after--
		return passes, 0
	}
	f := p.fault
	if f.met != nil {
		f.met(procedure)
	}
	if f.once {
		p.fault = fault{}
	}
	return f.verdict, f.code
}

// mutate changes some bytes of an answer, mostly behind its header.
func (p *proxy) mutate(answer []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 1 + p.rand.IntN(4) {
		from := 28
		if len(answer) == 28 || p.rand.IntN(8) == 0 {
			from = 0
		}
		answer[from+p.rand.IntN(len(answer)-from)] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(p.rand.Uint32())}[p.rand.IntN(6)]
	}
}

// relay passes one call after the other, each with its answer.
func (p *proxy) relay(client net.Conn, done <-chan struct{}) {
	defer func() { _ = client.Close() }()
	daemon, err := net.Dial("unix", p.server.dir+"/libvirt-sock")
	if err != nil {
		return
	}
	defer func() { _ = daemon.Close() }()
	_, _ = client.Write([]byte{1})
	for {
		call, err := packet(client)
		if err != nil {
			return
		}
		verdict, code := p.judge(binary.BigEndian.Uint32(call[12:]))
		switch verdict {
		case passes, answerLost, halfAnswered, answeredTwice, mutated:
			if _, err := daemon.Write(call); err != nil {
				return
			}
			answer, err := packet(daemon)
			if err != nil || verdict == answerLost {
				return
			}
			if verdict == halfAnswered {
				_, _ = client.Write(answer[:len(answer)/2])
				return
			}
			if verdict == mutated {
				p.mutate(answer)
			}
			if verdict == answeredTwice {
				_, _ = client.Write(answer)
			}
			_, _ = client.Write(answer)
		case hangs:
			<-done
			return
		case garbled:
			_, _ = io.WriteString(client, "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>")
		case negative:
			_, _ = client.Write(append([]byte{0, 0, 0, 4}, call[4:28]...))
		case refused:
			_, _ = client.Write(refusal(call, code))
		default:
			return
		}
	}
}

func packet(r io.Reader) ([]byte, error) {
	length := make([]byte, 4)
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, err
	}
	whole := make([]byte, binary.BigEndian.Uint32(length))
	copy(whole, length)
	_, err := io.ReadFull(r, whole[4:])
	return whole, err
}

// refusal is the answer of libvirtd that a call failed.
func refusal(call []byte, code uint32) []byte {
	const message = "no such luck"                                              // of a length that needs no filling
	words := []uint32{code, 7, 1, uint32(len(message)), 2, 0, 0, 0, 0, 0, 0, 0} // the message comes after the fourth
	var body []byte
	for i, word := range words {
		body = binary.BigEndian.AppendUint32(body, word)
		if i == 3 {
			body = append(body, message...)
		}
	}
	answer := append([]byte{}, call[:28]...)
	binary.BigEndian.PutUint32(answer, uint32(28+len(body)))
	binary.BigEndian.PutUint32(answer[16:], 1)
	binary.BigEndian.PutUint32(answer[24:], 1)
	return append(answer, body...)
}
