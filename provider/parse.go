package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"better/compute/internal/problem"
)

// Bounds of a config, whatever its schema says.
const (
	maxConfigBytes = 256 << 10
	maxConfigDepth = 32
	maxNumberLen   = 32 // characters of a number
	maxExponent    = 30 // of a number; the database writes exponents out
)

// parseConfig reads an object whose numbers and strings the database can hold. What it reads it has bounded, so that nothing that
// comes after has to.
func parseConfig(config json.RawMessage) (map[string]any, problem.Issues) {
	var issues problem.Issues
	switch {
	case len(config) > maxConfigBytes:
		issues.Add("", "must not be larger than %d KiB", maxConfigBytes>>10)
		return nil, issues
	case !utf8.Valid(config):
		issues.Add("", "must be UTF-8")
		return nil, issues
	}
	p := configParser{d: json.NewDecoder(bytes.NewReader(config)), issues: &issues}
	p.d.UseNumber()
	v, err := p.value(nil)
	if err == nil {
		_, err = p.d.Token()
		if errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = errMalformed
		}
	}
	if err != nil {
		issues = nil // what was found before is of no use in a document that cannot be read
		issues.Add("", "%s", parseMessage(err))
		return nil, issues
	}
	root, ok := v.(map[string]any)
	if !ok {
		issues.Add("", "must be an object")
	}
	return root, issues
}

var (
	errMalformed = errors.New("must be JSON")
	errTooDeep   = fmt.Errorf("must not be nested deeper than %d", maxConfigDepth)
)

// parseMessage never shows a decoder's own error, which quotes the input.
func parseMessage(err error) string {
	if errors.Is(err, errTooDeep) {
		return errTooDeep.Error()
	}
	return errMalformed.Error()
}

type configParser struct {
	d      *json.Decoder
	issues *problem.Issues
}

func (p configParser) value(at path) (any, error) {
	token, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if len(at) >= maxConfigDepth {
			return nil, errTooDeep
		}
		if t == '{' {
			return p.object(at)
		}
		return p.array(at)
	case json.Number:
		if !boundedNumber(t.String()) {
			p.issues.Add(at.String(), "must be a number of at most %d characters and an exponent of at most %d", maxNumberLen, maxExponent)
		}
	case string:
		p.checkText(at, t)
	}
	return token, nil
}

func (p configParser) object(at path) (any, error) {
	object := map[string]any{}
	for p.d.More() {
		token, err := p.d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, errMalformed
		}
		member := at.member(name)
		p.checkText(member, name)
		v, err := p.value(member)
		if err != nil {
			return nil, err
		}
		if _, repeated := object[name]; repeated {
			p.issues.Add(member.String(), "must be there only once")
		}
		object[name] = v
	}
	_, err := p.d.Token()
	return object, err
}

func (p configParser) array(at path) (any, error) {
	array := []any{}
	for p.d.More() {
		v, err := p.value(at.item(len(array)))
		if err != nil {
			return nil, err
		}
		array = append(array, v)
	}
	_, err := p.d.Token()
	return array, err
}

// checkText refuses what the database cannot hold. The decoder has made U+FFFD of a half surrogate pair.
func (p configParser) checkText(at path, s string) {
	if strings.ContainsRune(s, 0) || strings.ContainsRune(s, utf8.RuneError) {
		p.issues.Add(at.String(), "must be Unicode text without NUL")
	}
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
