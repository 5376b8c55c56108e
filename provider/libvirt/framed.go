package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// What libvirt's protocol says of a packet: its length with the header, and where the header has what.
const (
	headerBytes    = 28
	maxPacketBytes = 32 << 20 // as libvirt's own
	programRemote  = 0x20008086
	procedureOfPut = 208 // that a volume is uploaded with, the one call that is answered twice
	typeReply      = 1
	typeStream     = 3
	statusOK       = 0
	statusError    = 1
)

// forms are those of the answers to the calls that the driver makes: w is a word, u a UUID, s a text, and what is in brackets comes as often as
// the word before it says. What comes after the form has no lengths in it.
var forms = map[uint32]string{
	1: "", 4: "", 6: "", 9: "", 12: "", 14: "s", 23: "suw", 24: "suw", 66: "[w]", 70: "", 84: "su", 93: "sss", 94: "", 95: "sss", 99: "s", 102: "",
	procedureOfPut: "", 212: "", 231: "", 273: "[suw]", 350: "suw",
}

const formOfError = "wwws"

// framed lets only answers through that the SDK was made for. It reads them in a goroutine of its own, where it panics at a length that
// is none, and waits for ever at an answer too many; and it makes room for whatever length it is told. Whoever runs the hypervisor could
// end the server that way.
type framed struct {
	net.Conn
	rest     []byte // of the packet that is being read
	answered map[uint32]answers

	mu  sync.Mutex
	err error
}

// answers are those that a call has had.
type answers struct{ reply, stream bool }

// Dial gives the connection that is there already: it is what the SDK asks for.
func (f *framed) Dial() (net.Conn, error) { return f, nil }

// Read gives the bytes of packets that make sense.
func (f *framed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		packet, err := f.packet()
		if err != nil {
			return 0, err
		}
		f.rest = packet
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// nonsense is why an answer was not let through.
func (f *framed) nonsense() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *framed) packet() ([]byte, error) {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(f.Conn, header); err != nil {
		return nil, io.EOF // the SDK takes any other error for one that passes
	}
	length := binary.BigEndian.Uint32(header)
	err := f.judge(header)
	if err == nil {
		packet := make([]byte, length)
		copy(packet, header)
		if _, err := io.ReadFull(f.Conn, packet[headerBytes:]); err != nil {
			return nil, io.EOF
		}
		if err = fits(packet); err == nil {
			return packet, nil
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	return nil, io.EOF
}

// judge wants one reply to each call, and after the one to an upload one word on how it went.
func (f *framed) judge(header []byte) error {
	field := func(i int) uint32 { return binary.BigEndian.Uint32(header[4*i:]) }
	length, program, procedure, kind, serial, status := field(0), field(1), field(3), field(4), field(5), field(6)
	if length < headerBytes || length > maxPacketBytes || program != programRemote || status > statusError {
		return fmt.Errorf("a packet of program %x has %d bytes and status %d", program, length, status)
	}
	if f.answered == nil {
		f.answered = map[uint32]answers{}
	}
	had := f.answered[serial]
	switch {
	case kind == typeReply && !had.reply:
		had.reply, had.stream = true, procedure != procedureOfPut || status != statusOK
	case kind == typeStream && had.reply && !had.stream:
		had.stream = true
	default:
		return errors.New("an answer too many")
	}
	f.answered[serial] = had
	return nil
}

// fits says what is wrong with the lengths in a packet.
func fits(packet []byte) error {
	procedure, status := binary.BigEndian.Uint32(packet[12:]), binary.BigEndian.Uint32(packet[24:])
	form, known := forms[procedure]
	if status == statusError {
		form = formOfError
	}
	if !known {
		return fmt.Errorf("an answer to procedure %d, which was not called", procedure)
	}
	if _, ok := skip(packet[headerBytes:], form); !ok {
		return fmt.Errorf("an answer to procedure %d that is shorter than it says", procedure)
	}
	return nil
}

// skip goes over what is of the form, and gives what is left.
func skip(rest []byte, form string) ([]byte, bool) {
	word := func() (uint32, bool) {
		if len(rest) < 4 {
			return 0, false
		}
		value := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		return value, true
	}
	if inner, isList := strings.CutPrefix(form, "["); isList {
		count, ok := word()
		for range count {
			if rest, ok = skip(rest, strings.TrimSuffix(inner, "]")); !ok {
				break
			}
		}
		return rest, ok
	}
	for _, part := range form {
		length, ok := uint32(4), true
		switch part {
		case 'u':
			length = 16
		case 's':
			if length, ok = word(); ok {
				length = min(length, maxPacketBytes)
				length += -length & 3 // texts are filled up to whole words
			}
		}
		if !ok || uint64(len(rest)) < uint64(length) {
			return nil, false
		}
		rest = rest[length:]
	}
	return rest, true
}
