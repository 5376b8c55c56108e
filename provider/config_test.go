package provider

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"better/compute/internal/problem"
)

const canary = "canary-5f1d"

// roomy lets every config through that is an object, so that only the rules that no schema can switch off are left.
func roomy(t testing.TB) *Registry {
	t.Helper()
	return mustRegistry(t, Manifest{
		Name: "roomy", ConfigSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"patternProperties":{"":true}}`),
		SecretFields: []string{"/pin", "/machines/*/login", "/a~1b"},
		Endpoints:    []string{"api.example.com", "http://127.0.0.1:9000"},
	})
}

func mustRegistry(t testing.TB, m Manifest) *Registry {
	t.Helper()
	r, err := NewRegistry(paperDriver{m})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func paths(issues problem.Issues) []string {
	found := make([]string, len(issues))
	for i, issue := range issues {
		found[i] = issue.Path
	}
	return found
}

func TestConfigSecrets(t *testing.T) {
	t.Parallel()
	for config, want := range map[string][]string{
		`{}`:                                               nil,
		`{"apiToken":"secret://sim"}`:                      nil,
		`{"apiToken":"env://HCLOUD_TOKEN"}`:                nil,
		`{"apiToken":"vault://cloud/sim#token"}`:           nil,
		`{"apiToken":"` + canary + `"}`:                    {"/apiToken"},
		`{"API-KEY":"` + canary + `"}`:                     {"/API-KEY"},
		`{"api_key":"` + canary + `"}`:                     {"/api_key"},
		`{"apiKEY":"` + canary + `"}`:                      {"/apiKEY"},
		`{"\u212aey":"` + canary + `"}`:                    {"/\u212aey"},
		`{"pa\u017f\u017fword":"` + canary + `"}`:          {"/pa\u017f\u017fword"},
		`{"password ":"` + canary + `"}`:                   {"/password "},
		`{"token_":"` + canary + `"}`:                      {"/token_"},
		`{"monkey":"` + canary + `"}`:                      {"/monkey"},
		`{"secret":""}`:                                    {"/secret"},
		`{"secret":null}`:                                  {"/secret"},
		`{"secret":42}`:                                    {"/secret"},
		`{"secret":true}`:                                  {"/secret"},
		`{"secret":{"value":"` + canary + `"}}`:            {"/secret"},
		`{"secret":["secret://sim"]}`:                      {"/secret"},
		`{"a":{"b":[{"c":[{"token":"` + canary + `"}]}]}}`: {"/a/b/0/c/0/token"},
		`{"a/b~c":{"key":1}}`:                              {"/a~1b~0c/key"},
		`{"authorizedKeys":["ssh-ed25519 AAAA"]}`:          nil,
		`{"hostFingerprint":"SHA256:x"}`:                   nil,
		`{"keys":"x","tokens":"x","keyName":"x"}`:          nil,
		`{"pin":1234}`:                                     {"/pin"},
		`{"pin":"secret://pin"}`:                           nil,
		`{"sub":{"pin":1234}}`:                             nil,
		`{"machines":[{"login":"root"},{"login":"secret://x"},{"user":"root"}]}`: {"/machines/0/login"},
		`{"a/b":"x"}`: {"/a~1b"},
		`{"token":"secret://sim ","key":"SECRET://sim","password":"secret:sim","secret":" env://A"}`: {
			"/key", "/password", "/secret", "/token",
		},
		`{"url":"https://user:` + canary + `@example.com/"}`:    {"/url"},
		`{"deep":[["ssh://root:` + canary + `@10.0.0.1:22"]]}`:  {"/deep/0/0"},
		`{"url":"see //u:` + canary + `@host for more"}`:        {"/url"},
		`{"url":"https://u%3A` + canary + `@host"}`:             {"/url"},
		`{"url":"https:\\\\u:` + canary + `@host"}`:             {"/url"},
		`{"url":"https://:` + canary + `@host"}`:                {"/url"},
		`{"https://u:` + canary + `@h":1}`:                      {"/https:~1~1u:" + canary + "@h"},
		`{"url":"https://user@example.com/"}`:                   nil,
		`{"url":"https://example.com:8443/@scope/pkg?a=b:c@d"}`: nil,
		`{"mail":"a:b@example.com"}`:                            nil,
		`{"endpoint":"https://api.example.com"}`:                nil,
		`{"endpoint":"HTTPS://API.example.com/v1"}`:             nil,
		`{"endpoint":"http://127.0.0.1:9000"}`:                  nil,
		`{"endpoint":"https://127.0.0.1:9000"}`:                 {"/endpoint"},
		`{"endpoint":"http://api.example.com"}`:                 {"/endpoint"},
		`{"endpoint":"https://api.example.com:444"}`:            {"/endpoint"},
		`{"endpoint":"https://api.example.com.evil.com"}`:       {"/endpoint"},
		`{"endpoint":"https://evil.com/api.example.com"}`:       {"/endpoint"},
		`{"endpoint":"https://x@api.example.com"}`:              {"/endpoint"},
		`{"endpoint":"https://api.example.com?x=1"}`:            {"/endpoint"},
		`{"endpoint":"api.example.com"}`:                        {"/endpoint"},
		`{"endpoint":["https://api.example.com"]}`:              {"/endpoint"},
		`{"a":{"Endpoint":"https://evil.com"}}`:                 {"/a/Endpoint"},
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			issues := roomy(t).ValidateConfig("roomy", json.RawMessage(config))
			if diff := cmp.Diff(want, paths(issues), cmp.Transformer("sorted", sortedPaths)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			for _, i := range issues {
				if strings.Contains(i.Message, canary) {
					t.Errorf("%s: the message shows the value: %s", i.Path, i.Message)
				}
			}
		})
	}
}

func sortedPaths(paths []string) []string { return slices.Sorted(slices.Values(paths)) }

func TestConfigForm(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat(`{"a":`, n-1) + `{}` + strings.Repeat(`}`, n-1) }
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"nothing":                 {"", []string{""}},
		"null":                    {"null", []string{""}},
		"an array":                {"[]", []string{""}},
		"a string":                {`"x"`, []string{""}},
		"half":                    {`{"a":`, []string{""}},
		"more after it":           {`{} {}`, []string{""}},
		"rubbish after it":        {`{}x`, []string{""}},
		"a comma too many":        {`{"a":1,}`, []string{""}},
		"bad UTF-8":               {"{\"a\":\"\xff\"}", []string{""}},
		"32 deep":                 {nested(32), nil},
		"33 deep":                 {nested(33), []string{""}},
		"10,000 deep":             {nested(10_000), []string{""}},
		"64 KiB":                  {`{"a":"` + strings.Repeat("x", maxConfigBytes-8) + `"}`, nil},
		"more than 64 KiB":        {`{"a":"` + strings.Repeat("x", maxConfigBytes-7) + `"}`, []string{""}},
		"the same member twice":   {`{"a":{"b":1,"b":1}}`, []string{"/a/b"}},
		"the same in other words": {`{"a":1,"\u0061":1}`, []string{"/a"}},
		"NUL":                     {`{"a":["\u0000"]}`, []string{"/a/0"}},
		"NUL in a name":           {`{"a\u0000":1}`, []string{"/a\x00"}},
		"half a surrogate pair":   {`{"a":"\ud800"}`, []string{"/a"}},
		"a surrogate pair":        {`{"a":"\ud83d\ude00"}`, nil},
		"numbers":                 {`{"a":[0,-1,1.50,1e2,1E-30,1e+30,12345678901234567890]}`, nil},
		"a number without end":    {`{"a":1e31}`, []string{"/a"}},
		"a huge exponent":         {`{"a":1e1000000000}`, []string{"/a"}},
		"an endless exponent":     {`{"a":1e99999999999999999999}`, []string{"/a"}},
		"33 digits":               {`{"a":` + strings.Repeat("1", 33) + `}`, []string{"/a"}},
		"all at once":             {`{"a":"\u0000","b":1e99,"c":1,"c":2}`, []string{"/a", "/b", "/c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issues := roomy(t).ValidateConfig("roomy", json.RawMessage(c.config))
			if diff := cmp.Diff(c.want, paths(issues), cmp.Transformer("sorted", sortedPaths)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfigSchema also proves that what the schema refuses is said without the value that it refused.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	r := mustRegistry(t, Manifest{Name: "p", ConfigSchema: json.RawMessage(`{
		"type": "object", "additionalProperties": false, "required": ["apiToken", "zone/1"],
		"properties": {
			"apiToken": {"type": "string", "minLength": 20},
			"zone/1":   {"enum": ["a", "b"]},
			"project":  {"type": "string", "pattern": "^p-[0-9]+$", "maxLength": 4},
			"size":     {"type": "integer", "minimum": 1, "maximum": 4},
			"const":    {"const": "x"},
			"mail":     {"type": "string", "format": "email"},
			"list":     {"type": "array", "maxItems": 2, "uniqueItems": true, "items": {"$ref": "#/$defs/item"}},
			"either":   {"anyOf": [{"type": "string", "const": "q"}, {"type": "integer", "const": 7}]},
			"one":      {"oneOf": [{"type": "string", "const": "q"}, {"type": "integer", "const": 7}]},
			"never":    false,
			"not":      {"not": {"type": "string"}}
		},
		"$defs": {"item": {"type": "object", "additionalProperties": false, "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}}
	}`)})
	for config, want := range map[string][]string{
		`{"apiToken":"secret://abcdefghijklm","zone/1":"a"}`: nil,
		`{}`:                           {"/apiToken", "/zone~11"},
		`{"apiToken":42,"zone/1":"a"}`: {"/apiToken"},
		`{"apiToken":"secret://short","zone/1":"a"}`: {"/apiToken"},
		`{"apiToken":"` + canary + `","zone/1":"` + canary + `","project":"` + canary + `","size":9,"const":"` + canary +
			`","mail":"` + canary + `","list":[{"n":0},{"n":0},{"m":"` + canary + `"}],"either":"` + canary + `","one":"` + canary +
			`","never":"` + canary + `","not":"` + canary + `","more":"` + canary + `"}`: {
			"/apiToken", "/const", "/either", "/list", "/list", "/list/0/n", "/list/1/n", "/list/2/m", "/mail", "/more", "/never", "/not",
			"/one", "/project", "/project", "/size", "/zone~11",
		},
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			issues := r.ValidateConfig("p", json.RawMessage(config))
			if diff := cmp.Diff(want, paths(issues), cmp.Transformer("sorted", sortedPaths)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			for _, i := range issues {
				t.Log(i.Path, i.Message)
				if strings.Contains(i.Message, canary) || i.Message == "" {
					t.Errorf("%s: bad message: %s", i.Path, i.Message)
				}
			}
		})
	}
}

func TestConfigIssuesAreBounded(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"parsing": `{"a":[` + strings.Repeat(`1e99,`, 12_000) + `0]}`,
		"secrets": `{"a":[` + strings.Repeat(`{"key":1},`, 6_000) + `0]}`,
	} {
		if n := len(roomy(t).ValidateConfig("roomy", json.RawMessage(config))); n != maxIssues+1 {
			t.Errorf("%s: %d issues", name, n)
		}
	}
}

// TestPlantedSecretsAreFound plants a value somewhere in a random config, under a name that says what it is.
func TestPlantedSecretsAreFound(t *testing.T) {
	t.Parallel()
	r := roomy(t)
	name := rapid.StringMatching(`[A-Za-z_.-]{0,6}(?i:token|secret|password|key)[ _.-]?`)
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom([]string{`"` + canary + `"`, `42`, `null`, `{"x":"` + canary + `"}`, `["` + canary + `"]`}).Draw(t, "secret")
		config := fmt.Sprintf(`{%q:%s}`, name.Draw(t, "name"), secret)
		for range rapid.IntRange(0, 10).Draw(t, "depth") {
			if rapid.Bool().Draw(t, "array") {
				config = `[1,` + config + `]`
			} else {
				config = `{"x":` + config + `,"y":"secret://fine"}`
			}
		}
		issues := r.ValidateConfig("roomy", json.RawMessage(`{"root":`+config+`}`))
		if len(issues) != 1 {
			t.Fatalf("%s: %d issues", config, len(issues))
		}
		if strings.Contains(issues[0].Message, canary) {
			t.Fatalf("the message shows the value: %s", issues[0].Message)
		}
	})
}

// TestHonestConfigsPass draws configs that hide nothing.
func TestHonestConfigsPass(t *testing.T) {
	t.Parallel()
	r := roomy(t)
	names := rapid.StringMatching(`[a-z]{1,8}(Id|Name|Keys|s|_url|-zone)`)
	scalars := rapid.OneOf(
		rapid.StringMatching(`[ -.0-?A-Z]{0,20}`), // without slashes and @
		rapid.StringMatching(`https://[a-z]{1,9}\.example\.com(:8443)?/[a-z@:]{0,9}`),
		rapid.StringMatching(`[a-z]{1,9}@[a-z]{1,9}\.com`),
	)
	rapid.Check(t, func(t *rapid.T) {
		config := map[string]any{}
		for name, text := range rapid.MapOf(names, scalars).Draw(t, "config") {
			config[name] = []any{text, map[string]any{"apiToken": "secret://fine", name: text}}
		}
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if issues := r.ValidateConfig("roomy", raw); len(issues) > 0 {
			t.Fatalf("%s: %v", raw, issues)
		}
	})
}

// TestURLPasswords compares with an expression that says the same, and is too slow for long texts.
func TestURLPasswords(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`[/\\]{2}[^/\\?#\s]*(?::|%3[aA])[^/\\?#\s]*@`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.SampledFrom([]rune(`//\\::@@%3aAu?# `+"\n")), 0, 20, -1).Draw(t, "s")
		if got, want := holdsURLPassword(s), form.MatchString(s); got != want {
			t.Fatalf("%q: %v", s, got)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{`{}`, `{"apiToken":"secret://a"}`, `{"a":[1e9,{"b":"//u:p@h"}]}`, `{"endpoint":"https://api.example.com"}`, "{\"\xff\":1}"} {
		f.Add([]byte(seed))
	}
	r := roomy(f)
	f.Fuzz(func(t *testing.T, config []byte) {
		issues := r.ValidateConfig("roomy", config)
		if len(issues) == 0 && !json.Valid(config) {
			t.Errorf("took what is no JSON: %q", config)
		}
	})
}
