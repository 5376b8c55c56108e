package apitest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"better/compute/internal/problem"
)

// TestBodies sends what no reader of JSON should have to guess about. None of it may store anything.
func TestBodies(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	token := d.caller(fleetAdmin, "fleet-admin compute-fleet")
	s := d.serve(t)
	const start = `{"tenantId":"bodies","provider":"ssh","name":"a","config":`
	nested := func(levels int) string {
		return start + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "}"
	}
	// The others are refused before anybody looks at a field.
	aboutFields := map[string]bool{"an unknown field": true, "a field in another case": true, "256 KiB of config, and wrong": true}
	for name, c := range map[string]struct {
		body string
		code problem.Code
	}{
		"nothing":                      {"", problem.InvalidInput},
		"no JSON":                      {"tenantId=a", problem.InvalidInput},
		"half of it":                   {`{"tenantId":"bodies"`, problem.InvalidInput},
		"an array":                     {`[{"tenantId":"bodies"}]`, problem.InvalidInput},
		"a string":                     {`"bodies"`, problem.InvalidInput},
		"null":                         {`null`, problem.InvalidInput},
		"something behind":             {start + `{"machines":[]}} {}`, problem.InvalidInput},
		"a comment":                    {start + `{"machines":[]} /* */}`, problem.InvalidInput},
		"a trailing comma":             {start + `{"machines":[]},}`, problem.InvalidInput},
		"a byte order mark":            {"\xef\xbb\xbf" + start + `{"machines":[]}}`, problem.InvalidInput},
		"a key twice":                  {start + `{"machines":[]},"name":"b"}`, problem.InvalidInput},
		"a key twice, escaped":         {start + `{"machines":[]},"n\u0061me":"b"}`, problem.InvalidInput},
		"a key twice in the config":    {start + `{"machines":[],"user":"a","user":"b"}}`, problem.InvalidInput},
		"an unknown field":             {start + `{"machines":[]},"surplus":1}`, problem.InvalidInput},
		"a field in another case":      {start + `{"machines":[]},"TenantId":"x"}`, problem.InvalidInput},
		"NUL":                          {start + "{\"user\":\"a\x00\"}}", problem.InvalidInput},
		"NUL, escaped":                 {start + `{"user":"a\u0000"}}`, problem.InvalidInput},
		"NUL in a key":                 {start + `{"a\u0000":1}}`, problem.InvalidInput},
		"half a surrogate pair":        {start + `{"user":"\ud800"}}`, problem.InvalidInput},
		"the other half":               {start + `{"user":"\udc00"}}`, problem.InvalidInput},
		"two first halves":             {start + `{"user":"\ud800\ud800"}}`, problem.InvalidInput},
		"invalid UTF-8":                {start + "{\"user\":\"\xff\"}}", problem.InvalidInput},
		"overlong UTF-8":               {start + "{\"user\":\"\xc0\xaf\"}}", problem.InvalidInput},
		"33 levels":                    {nested(33), problem.InvalidInput},
		"ten thousand levels":          {nested(10_000), problem.InvalidInput},
		"a number without bounds":      {start + `{"port":1e400000}}`, problem.InvalidInput},
		"a negative one":               {start + `{"port":-1e400000}}`, problem.InvalidInput},
		"a number of 1000 digits":      {start + `{"port":` + strings.Repeat("9", 1000) + `}}`, problem.InvalidInput},
		"NaN":                          {start + `{"port":NaN}}`, problem.InvalidInput},
		"256 KiB of config, and wrong": {padded(start+`{"a":"`, `"}}`, 256<<10), problem.InvalidInput},
		"256 KiB and a byte":           {padded(start+`{"a":"`, `"}}`, 256<<10+1), problem.PayloadTooLarge},
		"a MiB of white space":         {strings.Repeat(" ", 1<<20) + start + `{"machines":[]}}`, problem.PayloadTooLarge},
	} {
		t.Run("REST/"+name, func(t *testing.T) {
			t.Parallel()
			a := s.send(t, http.MethodPost, restPath+"create", token, typeJSON, []byte(c.body))
			got := readREST(t, a)
			if got.Code != c.code || got.Code == problem.InvalidInput && !aboutFields[name] && !strings.HasPrefix(got.Message, "The body ") {
				t.Errorf("got %+v, want %s that speaks of the body", got, c.code)
			}
		})
		if strings.HasPrefix(c.body, start) && !strings.Contains(name, "behind") && !strings.Contains(name, "in another case") {
			t.Run("GraphQL/"+name, func(t *testing.T) {
				t.Parallel()
				body := `{"query":"mutation($input: CreateProviderAccountInput!) { createProviderAccount(input: $input) { replayed } }","variables":{"input":` + c.body + `}}`
				a := s.send(t, http.MethodPost, graphqlPath, token, typeJSON, []byte(body))
				got := readGraphQL(t, a)
				tooLarge := got.Code == problem.PayloadTooLarge && strings.HasPrefix(name, "256") // by what stands around it
				aboutBody := aboutFields[name] || strings.HasPrefix(got.Message, "The request body ")
				if (got.Code != c.code || !aboutBody) && !tooLarge {
					t.Errorf("got %+v, want %s that speaks of the body", got, c.code)
				}
			})
		}
	}
	t.Cleanup(func() {
		var n int
		if err := d.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM provider_accounts").Scan(&n); err == nil && n > 0 {
			t.Errorf("%d accounts were stored", n)
		}
	})
	t.Run("openapi.json", func(t *testing.T) {
		want, err := os.ReadFile(openapiFile)
		if err != nil {
			t.Fatal(err)
		}
		if a := s.send(t, http.MethodGet, "/api/compute/openapi.json", token, "", nil); a.status != http.StatusOK || string(a.body) != string(want) {
			t.Errorf("got %d and %d bytes, want the file's %d", a.status, len(a.body), len(want))
		}
	})
	t.Run("requests", func(t *testing.T) { testRequests(t, s, token) })
	t.Run("literals", func(t *testing.T) { testLiterals(t, s, token) })
	t.Run("request ids", func(t *testing.T) { testEveryAnswerHasARequestID(t, s, token) })
}

func padded(before, after string, size int) string {
	return before + strings.Repeat("x", size-len(before)-len(after)) + after
}

// testRequests has what is wrong about a request beside its body.
func testRequests(t *testing.T, s *process, token string) {
	body := []byte(`{"tenantId":"bodies"}`)
	for name, c := range map[string]struct {
		method, path, token, contentType string
		status                           int
		code                             problem.Code
	}{
		"no content type":        {http.MethodPost, "list", token, "", 400, problem.InvalidInput},
		"text":                   {http.MethodPost, "list", token, "text/plain", 400, problem.InvalidInput},
		"a form":                 {http.MethodPost, "list", token, "application/x-www-form-urlencoded", 400, problem.InvalidInput},
		"nearly JSON":            {http.MethodPost, "list", token, "application/jsonp", 400, problem.InvalidInput},
		"JSON with a charset":    {http.MethodPost, "list", token, "application/json; charset=utf-8", 200, ""},
		"GET":                    {http.MethodGet, "list", token, typeJSON, 405, problem.InvalidInput},
		"PUT":                    {http.MethodPut, "list", token, typeJSON, 405, problem.InvalidInput},
		"DELETE":                 {http.MethodDelete, "delete", token, typeJSON, 405, problem.InvalidInput},
		"another path":           {http.MethodPost, "lists", token, typeJSON, 404, problem.NotFound},
		"a path below":           {http.MethodPost, "list/a", token, typeJSON, 404, problem.NotFound},
		"a path in another case": {http.MethodPost, "List", token, typeJSON, 404, problem.NotFound},
		"no credential":          {http.MethodPost, "list", "", typeJSON, 401, problem.Unauthenticated},
		"an unknown credential":  {http.MethodPost, "list", "nobody-has-this", typeJSON, 401, problem.Unauthenticated},
		"half a credential":      {http.MethodPost, "list", token[:len(token)/2], typeJSON, 401, problem.Unauthenticated},
		"no credential, no path": {http.MethodPost, "lists", "", typeJSON, 401, problem.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := s.send(t, c.method, restPath+c.path, c.token, c.contentType, body)
			if got := readREST(t, a); a.status != c.status || got.Code != c.code {
				t.Errorf("got %d %+v, want %d %q", a.status, got, c.status, c.code)
			}
			if a.status == http.StatusMethodNotAllowed && a.header.Get("Allow") != http.MethodPost {
				t.Errorf("Allow is %q", a.header.Get("Allow"))
			}
			if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") == "" {
				t.Error("401 without WWW-Authenticate")
			}
		})
	}
}

// testLiterals has inputs that stand in a GraphQL document, where no JSON reader sees them.
func testLiterals(t *testing.T, s *process, token string) {
	for name, literal := range map[string]string{
		"NUL in the config":     `config: {user: \"a\\u0000b\"}`,
		"half a surrogate pair": `config: {user: \"a\\ud800\"}`,
		"NUL in a key":          `idempotencyKey: \"\\u0000\"`,
		"a number too large":    `config: {port: 1e400000}`,
		"deep":                  `config: {a: ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"a key twice":           `config: {machines: [], user: \"a\", user: \"b\"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := fmt.Sprintf(`{"query":"mutation { createProviderAccount(input: {tenantId: \"bodies\", provider: \"ssh\", name: \"a\", %s}) { replayed } }"}`, literal)
			a := s.send(t, http.MethodPost, graphqlPath, token, typeJSON, []byte(body))
			got := readGraphQL(t, a)
			if got.Code != problem.InvalidInput {
				t.Errorf("got %s, want INVALID_INPUT", a.body)
			}
		})
	}
}

func testEveryAnswerHasARequestID(t *testing.T, s *process, token string) {
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/graphql", "/nowhere", restPath, "/api/compute/openapi.json", "/../x"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			for _, token := range []string{token, ""} {
				a := s.send(t, method, path, token, typeJSON, []byte("{}"))
				if a.header.Get("X-Request-Id") == "" {
					t.Errorf("%s %s: no X-Request-Id", method, path)
				}
				if a.status >= 500 {
					t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
				}
			}
		}
	}
}
