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
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may nest.
const MaxDepth = 32

// MaxValues is how many values, keys left out, one text may hold: a body of 256 KiB could be 130,000 of them, which cost 25 MiB before anything could be said
// about them.
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
	shape := ShapeOf(data)
	if shape.Depth > MaxDepth {
		return nil, fmt.Errorf("it nests deeper than %d", MaxDepth)
	}
	if shape.Values > MaxValues {
		return nil, fmt.Errorf("it holds more than %d values", MaxValues)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	members, err := check(v)
	if err == nil && members < shape.Members {
		err = errors.New("an object has the same key twice")
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Shape is how large a JSON text is before it is read: what the reader of well-formed JSON would come to.
type Shape struct {
	Depth   int // of objects and arrays in one another
	Values  int // keys left out
	Members int // of all objects, repeated ones counted again
}

// ShapeOf looks at each byte once, which costs a hundredth of reading the JSON token by token.
func ShapeOf(data []byte) Shape {
	shape := Shape{Values: 1}
	depth, opened := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			continue
		}
		if opened && c != ']' && c != '}' {
			shape.Values++ // the first of its array or object
		}
		opened = false
		switch c {
		case '"':
			i = endOfString(data, i)
		case '[', '{':
			depth++
			shape.Depth = max(shape.Depth, depth)
			opened = true
		case ']', '}':
			depth--
		case ',':
			shape.Values++
		case ':':
			shape.Members++
		}
	}
	return shape
}

// Member is the text of an object's member, as far as one look at each byte tells it: the first such, and nil for none. What it gives may be no JSON.
func Member(data []byte, name string) []byte {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '"':
			end := endOfString(data, i)
			if depth == 1 && spells(data[i+1:min(end, len(data))], name) {
				if value, ok := bytes.CutPrefix(bytes.TrimLeft(data[min(end+1, len(data)):], " \t\r\n"), []byte(":")); ok {
					return bytes.TrimLeft(value, " \t\r\n")
				}
			}
			i = end
		}
	}
	return nil
}

// spells reports whether a text between quotes stands for the name, each letter of which may be an escape.
func spells(text []byte, name string) bool {
	const escape = len(`\u0000`)
	if len(text) > escape*len(name) || bytes.IndexByte(text, '\\') < 0 {
		return string(text) == name
	}
	var spelt string
	err := json.Unmarshal(slices.Concat([]byte(`"`), text, []byte(`"`)), &spelt)
	return err == nil && spelt == name
}

// endOfString is where the string ends that begins at i.
func endOfString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

// check refuses what Postgres could not store, and counts the members of all objects.
func check(v any) (members int, err error) {
	switch v := v.(type) {
	case map[string]any:
		members = len(v)
		for key, member := range v {
			if strings.ContainsRune(key, 0) {
				return 0, errors.New("a key holds NUL")
			}
			n, err := check(member)
			if err != nil {
				return 0, err
			}
			members += n
		}
	case []any:
		for _, item := range v {
			n, err := check(item)
			if err != nil {
				return 0, err
			}
			members += n
		}
	case string:
		if strings.ContainsRune(v, 0) {
			return 0, errors.New("a string holds NUL")
		}
	case json.Number:
		if f, err := v.Float64(); err != nil || math.IsInf(f, 0) || len(v) > 64 {
			return 0, errors.New("a number is too large")
		}
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
