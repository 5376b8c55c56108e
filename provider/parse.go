package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
)

// Bounds of a config, whatever its schema says.
const (
	maxConfigBytes = 64 << 10 // a page of a hundred accounts has them all
	maxConfigDepth = 32
	maxNumberLen   = 32 // characters of a number
	maxExponent    = 30 // of a number; the database writes exponents out
)

// parseConfig reads an object whose numbers and strings the database can hold. What it reads it has bounded, so that nothing that
// comes after has to.
func parseConfig(config json.RawMessage) (map[string]any, problem.Issues) {
	f := findings{}
	switch {
	case len(config) > maxConfigBytes:
		f.add(nil, "must not be larger than %d KiB", maxConfigBytes>>10)
		return nil, f.issues
	case !utf8.Valid(config):
		f.add(nil, "must be UTF-8")
		return nil, f.issues
	}
	shape := strictjson.ShapeOf(config)
	if shape.Depth > maxConfigDepth {
		f.add(nil, "must not be nested deeper than %d", maxConfigDepth)
		return nil, f.issues
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	err := d.Decode(&v)
	if err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) { // whose text quotes the input
		f.add(nil, "must be JSON")
		return nil, f.issues
	}
	if members, storable := measure(v); !storable || members < shape.Members {
		checkValue(&f, nil, v)
		repeatedMembers(&f, config)
	}
	root, ok := v.(map[string]any)
	if !ok {
		f.add(nil, "must be an object")
	}
	return root, f.all()
}

// measure counts the members of all objects, and reports whether the database can hold what there is. In which order it looks does not
// matter.
func measure(v any) (members int, storable bool) {
	storable = true
	switch v := v.(type) {
	case map[string]any:
		members = len(v)
		for name, member := range v {
			n, ok := measure(member)
			members, storable = members+n, storable && ok && storableText(name)
		}
	case []any:
		for _, item := range v {
			n, ok := measure(item)
			members, storable = members+n, storable && ok
		}
	case json.Number:
		return 0, boundedNumber(v.String())
	case string:
		return 0, storableText(v)
	}
	return members, storable
}

// checkValue says what the database cannot hold.
func checkValue(f *findings, at path, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			checkText(f, at.member(name), name)
			checkValue(f, at.member(name), v[name])
		}
	case []any:
		for i, item := range v {
			checkValue(f, at.item(i), item)
		}
	case json.Number:
		if !boundedNumber(v.String()) {
			f.add(at, "must be a number of at most %d characters and an exponent of at most %d", maxNumberLen, maxExponent)
		}
	case string:
		checkText(f, at, v)
	}
}

func checkText(f *findings, at path, s string) {
	if !storableText(s) {
		f.add(at, "must be Unicode text without NUL")
	}
}

// storableText reports whether the database can hold the text. The decoder has made U+FFFD of a half surrogate pair.
func storableText(s string) bool {
	return !strings.ContainsRune(s, 0) && !strings.ContainsRune(s, utf8.RuneError)
}

func boundedNumber(s string) bool {
	if len(s) > maxNumberLen {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(s), "e")
	if !found {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && -maxExponent <= n && n <= maxExponent
}

// repeatedMembers names the members that are there more than once, in JSON that is well-formed.
func repeatedMembers(f *findings, config json.RawMessage) {
	r := repeats{json.NewDecoder(bytes.NewReader(config)), f}
	r.UseNumber() // any number will do
	r.value(nil)
}

type repeats struct {
	*json.Decoder
	f *findings
}

func (r repeats) value(at path) {
	token, _ := r.Token()
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for r.More() {
			token, _ := r.Token()
			name, _ := token.(string)
			if seen[name] {
				r.f.add(at.member(name), "must be there only once")
			}
			seen[name] = true
			r.value(at.member(name))
		}
		_, _ = r.Token()
	case json.Delim('['):
		for i := 0; r.More(); i++ {
			r.value(at.item(i))
		}
		_, _ = r.Token()
	}
}
