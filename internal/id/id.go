// Package id owns the form of identifiers: a prefix, an underscore and lower-case Crockford base32.
//
// It refuses to know which nouns exist. The invariant: an id is either random and time-ordered (New) or a pure
// function of its parts (Derive), and two different lists of parts never derive the same id.
package id

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// Lengths of the part after the prefix: a ULID, and a whole SHA-256.
const (
	randomLen  = 26
	derivedLen = 52
)

// New makes a random id: a ULID of 26 characters (48 bits of milliseconds, then 80 random bits), so ids sort by time.
func New(prefix string) string {
	return newAt(prefix, time.Now())
}

func newAt(prefix string, at time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails: crypto/rand aborts the process instead
	// A ULID is 128 bits in 26 characters of 5 bits, so its first character holds only 3 of them.
	out := make([]byte, randomLen)
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	for i := randomLen - 1; i >= 0; i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return prefix + "_" + string(out)
}

// Derive makes the id that belongs to the parts: SHA-256 over the length-prefixed parts, 52 characters. The prefix
// of each part's length is what keeps ("a:b", "c") and ("a", "b:c") apart.
func Derive(prefix string, parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return prefix + "_" + base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
}

// Valid reports whether s is an id of the prefix: 26 to 52 characters of the alphabet after it.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(rest) < randomLen || len(rest) > derivedLen {
		return false
	}
	for i := range len(rest) {
		if strings.IndexByte(alphabet, rest[i]) < 0 {
			return false
		}
	}
	return true
}
