package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"better/compute/internal/problem"
)

// Bounds of a config, whatever its schema says.
const (
	maxConfigBytes = 256 << 10
	maxConfigDepth = 32
	maxNumberLen   = 32 // characters of a number
	maxExponent    = 30 // of a number; jsonb writes exponents out
	maxPathMember  = 64 // characters of a member's name that a path repeats
)

const notAReference = "must hold a secret reference: secret://name, vault://path#field or env://NAME"

// urlPassword finds `//user:password@` in the place of a URL's authority, also as sloppy parsers see it.
var urlPassword = regexp.MustCompile(`[/\\]{2}[^/\\?#\s]*(?::|%3[aA])[^/\\?#\s]*@`)

// secretEndings are the ends of the names of members that must hold a secret reference.
var secretEndings = []string{"token", "secret", "password", "key"}

// configRules are the rules of one provider's configs.
type configRules struct {
	schema    *jsonschema.Schema
	secrets   [][]string // pointers in parts
	endpoints []string
}

func newConfigRules(schema *jsonschema.Schema, m Manifest) (*configRules, error) {
	r := &configRules{schema: schema, endpoints: m.Endpoints}
	for _, pointer := range m.SecretFields {
		if !strings.HasPrefix(pointer, "/") {
			return nil, fmt.Errorf("secret field %q is not a JSON pointer", pointer)
		}
		r.secrets = append(r.secrets, strings.Split(pointer[1:], "/"))
	}
	return r, nil
}

// check judges the form first, because a malformed document has no members to speak of.
func (r *configRules) check(config json.RawMessage) problem.Issues {
	root, issues := parseConfig(config)
	if len(issues) > 0 {
		return issues
	}
	r.walk(&issues, nil, root)
	secretPaths := len(issues)
	var invalid *jsonschema.ValidationError
	if errors.As(r.schema.Validate(root), &invalid) {
		schemaIssues(&issues, invalid)
	}
	return withoutRepeats(issues, secretPaths)
}

// withoutRepeats keeps what the schema says of a field only when no other rule has spoken of that field.
func withoutRepeats(issues problem.Issues, first int) problem.Issues {
	spoken := map[string]bool{}
	for _, i := range issues[:first] {
		spoken[i.Path] = true
	}
	rest := slices.DeleteFunc(issues[first:], func(i problem.Issue) bool { return spoken[i.Path] })
	return slices.Compact(append(issues[:first:first], rest...))
}

// walk applies the rules that no schema can switch off.
func (r *configRules) walk(issues *problem.Issues, path []string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			r.member(issues, append(path[:len(path):len(path)], escape(name)), name, v[name])
		}
	case []any:
		for i, item := range v {
			r.element(issues, append(path[:len(path):len(path)], strconv.Itoa(i)), item)
		}
	case string:
		if urlPassword.MatchString(v) {
			issues.Add(pointer(path), "must not hold a URL with a password in it; use a secret reference")
		}
	}
}

func (r *configRules) member(issues *problem.Issues, path []string, name string, v any) {
	if urlPassword.MatchString(name) {
		issues.Add(pointer(path), "must not be named by a URL with a password in it")
		return
	}
	folded := foldName(name)
	secret := slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(folded, end) })
	switch {
	case secret || r.isSecretField(path):
		checkReference(issues, path, v)
	case folded == "endpoint":
		r.checkEndpoint(issues, path, v)
	default:
		r.walk(issues, path, v)
	}
}

func (r *configRules) element(issues *problem.Issues, path []string, v any) {
	if r.isSecretField(path) {
		checkReference(issues, path, v)
		return
	}
	r.walk(issues, path, v)
}

func (r *configRules) isSecretField(path []string) bool {
	return slices.ContainsFunc(r.secrets, func(field []string) bool {
		return slices.EqualFunc(field, path, func(want, got string) bool { return want == "*" || want == got })
	})
}

func checkReference(issues *problem.Issues, path []string, v any) {
	s, ok := v.(string)
	if !ok {
		issues.Add(pointer(path), notAReference)
		return
	}
	if _, err := ParseReference(s); err != nil {
		issues.Add(pointer(path), notAReference)
	}
}

// checkEndpoint takes https://host[:port][/path] of a host on the manifest's list. An entry that has a scheme of its own allows
// that one instead of https.
func (r *configRules) checkEndpoint(issues *problem.Issues, path []string, v any) {
	s, _ := v.(string)
	u, err := url.Parse(s)
	plain := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && !u.ForceQuery
	if !plain || !slices.ContainsFunc(r.endpoints, func(allowed string) bool { return allowsEndpoint(allowed, u) }) {
		issues.Add(pointer(path), "must be an endpoint that the provider's manifest lists")
	}
}

func allowsEndpoint(allowed string, u *url.URL) bool {
	scheme, host, found := strings.Cut(allowed, "://")
	if !found {
		scheme, host = "https", allowed
	}
	return strings.EqualFold(u.Scheme, scheme) && strings.EqualFold(u.Host, host)
}

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

func (p configParser) value(path []string) (any, error) {
	token, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if len(path) >= maxConfigDepth {
			return nil, errTooDeep
		}
		if t == '{' {
			return p.object(path)
		}
		return p.array(path)
	case json.Number:
		if !boundedNumber(t.String()) {
			p.issues.Add(pointer(path), "must be a number of at most %d characters and an exponent of at most %d", maxNumberLen, maxExponent)
		}
	case string:
		p.checkText(path, t)
	}
	return token, nil
}

func (p configParser) object(path []string) (any, error) {
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
		at := append(path[:len(path):len(path)], escape(name))
		p.checkText(at, name)
		v, err := p.value(at)
		if err != nil {
			return nil, err
		}
		if _, repeated := object[name]; repeated {
			p.issues.Add(pointer(at), "must be there only once")
		}
		object[name] = v
	}
	_, err := p.d.Token()
	return object, err
}

func (p configParser) array(path []string) (any, error) {
	array := []any{}
	for p.d.More() {
		v, err := p.value(append(path[:len(path):len(path)], strconv.Itoa(len(array))))
		if err != nil {
			return nil, err
		}
		array = append(array, v)
	}
	_, err := p.d.Token()
	return array, err
}

// checkText refuses what the database cannot hold. The decoder has made U+FFFD of a half surrogate pair.
func (p configParser) checkText(path []string, s string) {
	if strings.ContainsRune(s, 0) || strings.ContainsRune(s, utf8.RuneError) {
		p.issues.Add(pointer(path), "must be Unicode text without NUL")
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

// schemaIssues turns what the schema refused into issues in our own words, since the library's quote the value.
func schemaIssues(issues *problem.Issues, e *jsonschema.ValidationError) {
	path := make([]string, len(e.InstanceLocation))
	for i, part := range e.InstanceLocation {
		path[i] = escape(part)
	}
	at := pointer(path)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			issues.Add(pointer(append(path[:len(path):len(path)], escape(name))), "is required")
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties {
			issues.Add(pointer(append(path[:len(path):len(path)], escape(name))), "is not a field of this provider's config")
		}
	case *kind.Group, *kind.Schema, *kind.Reference, *kind.AllOf:
		for _, cause := range e.Causes {
			schemaIssues(issues, cause)
		}
	default:
		issues.Add(at, "%s", refusal(k))
	}
}

func refusal(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		want, _ := json.Marshal(k.Want) // of the schema, not of the config
		return "must be one of " + string(want)
	case *kind.Const:
		want, _ := json.Marshal(k.Want)
		return "must be " + string(want)
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.Format:
		return "must be in the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members", k.Want)
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.UniqueItems:
		return "must not repeat an item"
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be above " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be below " + k.Want.RatString()
	case *kind.DependentRequired:
		return "also needs " + strings.Join(k.Missing, ", ")
	case *kind.Dependency:
		return "also needs " + strings.Join(k.Missing, ", ")
	}
	return "does not fit the provider's config schema"
}

// foldName drops case and everything but letters and digits, so that API-KEY, api_key and apiKey are one name. Case is folded as
// Unicode does it: U+212A is a k.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		for folded := unicode.SimpleFold(r); folded != r; folded = unicode.SimpleFold(folded) {
			if 'a' <= folded && folded <= 'z' {
				return folded
			}
		}
		return unicode.ToLower(r)
	}, name)
}

// pointer joins parts that are escaped already.
func pointer(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return "/" + strings.Join(path, "/")
}

// escape makes a member's name a part of a JSON pointer, shortened so that a path cannot carry a secret-sized text back.
func escape(name string) string {
	if runes := []rune(name); len(runes) > maxPathMember {
		name = string(runes[:maxPathMember]) + "..."
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
