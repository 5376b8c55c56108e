package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"better/compute/internal/guard"
	"better/compute/internal/problem"
)

const notAReference = "must hold a secret reference: secret://name, vault://path#field or env://NAME"

// secretEndings are the ends of the names of members that must hold a secret reference.
var secretEndings = []string{"token", "secret", "password", "key"}

// configRules are the rules of one provider's configs.
type configRules struct {
	schema    *jsonschema.Schema
	secrets   []pattern
	endpoints []string
}

func newConfigRules(schema *jsonschema.Schema, m Manifest) (*configRules, error) {
	r := &configRules{schema: schema, endpoints: m.Endpoints}
	for _, pointer := range m.SecretFields {
		field, ok := parsePattern(pointer)
		if !ok {
			return nil, fmt.Errorf("secret field %q is not a JSON pointer", pointer)
		}
		r.secrets = append(r.secrets, field)
	}
	return r, nil
}

// check judges the form first, because a malformed document has no members to speak of; and what the schema says only as long as there is room to
// tell it.
func (r *configRules) check(config json.RawMessage) problem.Issues {
	root, issues := parseConfig(config)
	if len(issues) > 0 {
		return issues
	}
	f := &findings{}
	r.walk(f, nil, root)
	if f.done() {
		return f.all()
	}
	f.onlyOfOthers()
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](r.schema.Validate(root)); ok {
		schemaIssues(f, invalid)
	}
	return f.all()
}

// walk applies the rules that no schema can switch off.
func (r *configRules) walk(f *findings, at path, v any) {
	if r.isSecretField(at) {
		checkReference(f, at, v)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if f.done() {
				return
			}
			r.walkMember(f, at.member(name), name, v[name])
		}
	case []any:
		for i, item := range v {
			r.walk(f, at.item(i), item)
		}
	case string:
		if holdsURLPassword(v) {
			f.add(at, "must not hold a URL with a password in it; use a secret reference")
		}
	}
}

func (r *configRules) walkMember(f *findings, at path, name string, v any) {
	folded := foldName(name)
	switch {
	case holdsURLPassword(name):
		f.add(at, "must not be named by a URL with a password in it")
	case slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(folded, end) }):
		checkReference(f, at, v)
	case folded == "endpoint":
		r.checkEndpoint(f, at, v)
	default:
		r.walk(f, at, v)
	}
}

func (r *configRules) isSecretField(at path) bool {
	return slices.ContainsFunc(r.secrets, func(field pattern) bool { return field.matches(at) })
}

func checkReference(f *findings, at path, v any) {
	s, ok := v.(string)
	if _, err := ParseReference(s); !ok || err != nil {
		f.add(at, notAReference)
	}
}

// checkEndpoint takes https://host[:port][/path] of a host on the manifest's list. An entry that has a scheme of its own allows
// that one instead of https.
func (r *configRules) checkEndpoint(f *findings, at path, v any) {
	s, _ := v.(string)
	u, err := url.Parse(s)
	plain := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && !u.ForceQuery
	if !plain || !slices.ContainsFunc(r.endpoints, func(allowed string) bool { return guard.Allows(allowed, u) }) {
		f.add(at, "must be an endpoint that the provider's manifest lists")
	}
}

// holdsURLPassword looks for `//user:password@` where a URL has its authority, also as sloppy parsers read it.
func holdsURLPassword(s string) bool {
	for i := 1; i < len(s); i++ {
		if !isSlash(s[i-1]) || !isSlash(s[i]) {
			continue
		}
		authority := s[i+1:]
		if end := strings.IndexAny(authority, "/\\?# \t\r\n\v\f"); end >= 0 {
			authority = authority[:end]
		}
		user := authority[:max(strings.LastIndexByte(authority, '@'), 0)]
		if strings.Contains(user, ":") || strings.Contains(strings.ToLower(user), "%3a") {
			return true
		}
		i += len(authority)
	}
	return false
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// foldName drops case and everything but letters and digits, so that API-KEY, api_key and apiKey are one name. Case is folded as
// Unicode does it: U+212A is a k.
func foldName(name string) string {
	if ascii(name) {
		return foldASCII(name)
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\u017f': // these two alone fold to a letter of ASCII
			return 's'
		case r == '\u212a':
			return 'k'
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// foldASCII spares the look into Unicode's tables: a config can be thousands of names.
func foldASCII(name string) string {
	folded := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			folded = append(folded, c+'a'-'A')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			folded = append(folded, c)
		}
	}
	return string(folded)
}
