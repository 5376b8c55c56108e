// Package cursor owns the cursors that callers get and give back: what one says is authenticated, and bound to the list that it
// was made for.
//
// It refuses to know nouns, and what a place in a list is. The invariant: Open gives back only what Seal was given, for the same list,
// by any replica of this deployment.
package cursor

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"

	"better/compute/internal/postgres"
	"better/compute/internal/serverkey"
)

const tagSize = 16

// Sealer makes the cursors of a process. It is safe for concurrent use, and needs no database before the first List.
type Sealer struct{ key *serverkey.Key }

// NewSealer makes a sealer whose key is the one in the database, which the first sealer of all puts there.
func NewSealer(db *postgres.DB) *Sealer { return &Sealer{serverkey.New(db, "cursor")} }

// List is what a cursor is bound to: a query with its tenant and its filter.
type List struct {
	key  []byte
	name []byte
}

// List names the list of a query (of the API: its field), a tenant and whatever else decides which items are in it and in which
// order. The size of the page does not. Its first call reads the key, later ones ask nobody. UNAVAILABLE when the key cannot be read.
func (s *Sealer) List(ctx context.Context, query, tenantID string, filter ...string) (List, error) {
	key, err := s.key.Get(ctx)
	if err != nil {
		return List{}, err
	}
	l := List{key: key}
	for _, part := range append([]string{query, tenantID}, filter...) {
		l.name = append(binary.AppendUvarint(l.name, uint64(len(part))), part...)
	}
	return l, nil
}

// Optional makes parts of a filter of an argument that may be missing, so that no value is taken for its absence.
func Optional(v *string) string {
	if v == nil {
		return ""
	}
	return "=" + *v
}

// Seal makes the cursor of a place.
func (l List) Seal(place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(l.tag(place), place...))
}

// Open gives the place that a cursor of this list says. Anything else is refused without a reason, which would help a forger alone.
func (l List) Open(cursor string) (place []byte, ok bool) {
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	// The decoder passes over new lines and unused bits: only the one form that Seal gives is a cursor.
	if err != nil || len(sealed) < tagSize || base64.RawURLEncoding.EncodeToString(sealed) != cursor {
		return nil, false
	}
	tag, place := sealed[:tagSize], sealed[tagSize:]
	if !hmac.Equal(tag, l.tag(place)) {
		return nil, false
	}
	return place, true
}

// tag authenticates a place in this list. The length of the name comes first, so that no part of it passes for one of the place.
func (l List) tag(place []byte) []byte {
	mac := hmac.New(sha256.New, l.key)
	mac.Write(binary.AppendUvarint(nil, uint64(len(l.name))))
	mac.Write(l.name)
	mac.Write(place)
	return mac.Sum(nil)[:tagSize]
}

// Encode gives what makes the cursors of a page's items; P is what their places are, and has a form in JSON.
func Encode[T, P any](l List, place func(*T) P) func(*T) string {
	return func(item *T) string {
		text, err := json.Marshal(place(item))
		if err != nil {
			panic(err) // a place is made of strings and numbers
		}
		return l.Seal(text)
	}
}

// Decode gives what reads the cursors that Encode makes.
func Decode[P any](l List) func(cursor string) (P, bool) {
	return func(cursor string) (place P, ok bool) {
		text, ok := l.Open(cursor)
		return place, ok && json.Unmarshal(text, &place) == nil
	}
}
