package sim

import (
	"encoding/hex"
	"strings"
)

const maxID = 128

// encodeID turns an id of the cloud's into one that our callers may use, and back again with decodeID: what is not a letter, a
// digit, `.`, `:` or `-` becomes `_` and two hex digits. It reports whether the result is short enough.
func encodeID(id string) (string, bool) {
	var b strings.Builder
	for i := range len(id) {
		if plainByte(id[i]) {
			b.WriteByte(id[i])
			continue
		}
		b.WriteByte('_')
		b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{id[i]})))
	}
	return b.String(), id != "" && b.Len() <= maxID
}

// decodeID reports whether the id is one that encodeID gives.
func decodeID(id string) (string, bool) {
	var b strings.Builder
	for rest := id; rest != ""; {
		if rest[0] != '_' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if len(rest) < 3 {
			return "", false
		}
		decoded, err := hex.DecodeString(rest[1:3])
		if err != nil {
			return "", false
		}
		b.Write(decoded)
		rest = rest[3:]
	}
	again, ok := encodeID(b.String())
	return b.String(), ok && again == id
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == ':' || c == '-'
}
