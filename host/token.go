package host

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"better/compute/internal/id"
)

const (
	tokenPrefix = "bcj1"
	tokenBytes  = 32
)

// MintToken makes the join token of one install generation of a run: 256 random bits, and the hash that alone may be stored. The
// run and the generation are spelled out in it only to explain a refusal; they decide nothing.
func MintToken(bootstrapID string, generation int) (token string, hash []byte) {
	var secret [tokenBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand aborts the process instead
	token = strings.Join([]string{
		tokenPrefix, bootstrapID, strconv.Itoa(generation), base64.RawURLEncoding.EncodeToString(secret[:]),
	}, ".")
	return token, hashToken(token)
}

func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// parseToken reads what a token says of itself.
func parseToken(token string) (bootstrapID string, generation int, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != tokenPrefix || !id.Valid(runPrefix, parts[1]) {
		return "", 0, false
	}
	generation, err := strconv.Atoi(parts[2])
	if err != nil || generation < 0 || len(parts[3]) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return "", 0, false
	}
	return parts[1], generation, true
}
