package apitoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Prefix is what every API token begins with, so that a scanner for leaked secrets knows one: bct_[0-9a-hjkmnp-tv-z]{56}.
const Prefix = "bct_"

const (
	secretSize   = 32
	checksumSize = 3 // 35 bytes are 56 characters without a bit left over, so each token has one spelling
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// hash is the SHA-256 of a token. A slow hash would protect what people think up; 256 random bits cannot be guessed,
// and a slow one would let anybody keep the server busy with wrong tokens.
type hash [sha256.Size]byte

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

// newToken draws a token: 256 random bits and a checksum.
func newToken() string {
	b := make([]byte, secretSize, secretSize+checksumSize)
	_, _ = rand.Read(b) // never fails
	return Prefix + encoding.EncodeToString(append(b, checksum(b)...))
}

// wellFormed reports whether the token is one that newToken could have drawn. A typo is told without asking the database.
func wellFormed(token string) bool {
	text, ok := strings.CutPrefix(token, Prefix)
	if !ok || len(text) != encoding.EncodedLen(secretSize+checksumSize) || strings.ContainsAny(text, "\r\n") {
		return false // the decoder passes over new lines
	}
	b, err := encoding.DecodeString(text)
	return err == nil && string(checksum(b[:secretSize])) == string(b[secretSize:])
}

// checksum is for typos and scanners, not for secrecy: whoever can make one still has to guess the rest.
func checksum(secret []byte) []byte {
	sum := sha256.Sum256(append([]byte(Prefix), secret...))
	return sum[:checksumSize]
}
