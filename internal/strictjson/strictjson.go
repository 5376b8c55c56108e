// Package strictjson owns reading JSON from outside in the one way that this server accepts it.
//
// It is stricter than encoding/json, and refuses to know what the JSON means. The invariant: what it accepts, every other JSON
// reader understands the same way, and Postgres can store.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may nest.
const MaxDepth = 32

// MaxValues is how many values, keys left out, one text may hold: a body of 256 KiB could be 130,000 of them, which cost 60 ms and 25 MiB
// before anything could be said about them.
const MaxValues = 5_000

// Parse reads exactly one JSON value, numbers as json.Number. It refuses duplicate keys, trailing data, invalid UTF-8,
// unpaired surrogates, NUL, numbers beyond a float64, deep nesting and too many values. Its errors are fit for the caller and repeat no value.
func Parse(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	if unpairedSurrogate(data) {
		return nil, errors.New("a string holds half of a surrogate pair")
	}
	r := reader{Decoder: json.NewDecoder(bytes.NewReader(data))}
	r.UseNumber()
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

type reader struct {
	*json.Decoder
	values int
}

// value reads what stands inside depth objects and arrays.
func (r *reader) value(depth int) (any, error) {
	if r.values++; r.values > MaxValues {
		return nil, fmt.Errorf("it holds more than %d values", MaxValues)
	}
	tok, err := r.Token()
	if err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	switch tok := tok.(type) {
	case json.Delim:
		if depth == MaxDepth {
			return nil, fmt.Errorf("it nests deeper than %d", MaxDepth)
		}
		if tok == '[' {
			return r.array(depth)
		}
		return r.object(depth)
	case string:
		if strings.ContainsRune(tok, 0) {
			return nil, errors.New("a string holds NUL")
		}
	case json.Number:
		if f, err := tok.Float64(); err != nil || math.IsInf(f, 0) || len(tok) > 64 {
			return nil, errors.New("a number is too large")
		}
	}
	return tok, nil
}

func (r *reader) array(depth int) (any, error) {
	list := []any{}
	for r.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := r.Token(); err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	return list, nil
}

func (r *reader) object(depth int) (any, error) {
	members := map[string]any{}
	for r.More() {
		tok, err := r.Token()
		if err != nil {
			return nil, errors.New("it is not well-formed JSON")
		}
		key, _ := tok.(string) // the decoder gives nothing else here
		if strings.ContainsRune(key, 0) {
			return nil, errors.New("a key holds NUL")
		}
		if _, twice := members[key]; twice {
			return nil, errors.New("an object has the same key twice")
		}
		if members[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	if _, err := r.Token(); err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	return members, nil
}

// unpairedSurrogate finds \uD800 to \uDFFF escapes that do not come as a pair: encoding/json would silently replace them.
func unpairedSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		unit, ok := escaped(data[i:])
		if !ok {
			i++ // whatever is escaped, it starts no escape of its own
			continue
		}
		i += 5
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := escaped(data[min(i+1, len(data)):])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

// escaped reads \uXXXX at the start of b.
func escaped(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			unit = unit<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			unit = unit<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}
