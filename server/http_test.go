package server

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"better/compute/graph"
	"better/compute/internal/problem"
)

// call sends a request and gives the answer with its body.
func (w *world) call(t testing.TB, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tokenAlice)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// post sends a GraphQL document.
func (w *world) post(t testing.TB, document string, header ...string) (*http.Response, string) {
	t.Helper()
	return w.call(t, "POST", "/graphql", requestFor(document), header...)
}

func requestFor(document string) string {
	data, _ := json.Marshal(map[string]string{"query": document})
	return string(data)
}

// firstError reads the first error of a GraphQL response.
func firstError(t testing.TB, body string) (code, message string, details map[string]any) {
	t.Helper()
	var resp struct {
		Errors []struct {
			Message    string
			Path       []any
			Extensions struct {
				Code    string
				Details map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &resp); err != nil || len(resp.Errors) == 0 {
		t.Fatalf("no error in %s (%v)", body, err)
	}
	e := resp.Errors[0]
	return e.Extensions.Code, e.Message, e.Extensions.Details
}

func TestQueryOverPostAndGet(t *testing.T) {
	t.Parallel()
	w := setup(t)
	want := `{"data":{"viewer":{"subject":"user:alice"}},"extensions":{"cost":{"requested":1,"limit":5000}}}`
	_, byPost := w.post(t, `{ viewer { subject } }`)
	_, byGet := w.call(t, "GET", "/graphql?query="+url.QueryEscape(`{ viewer { subject } }`), "")
	for _, got := range []string{byPost, byGet} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestStatusAndMediaType(t *testing.T) {
	t.Parallel()
	w := setup(t)
	mutation := `mutation { archivePool(input: {tenantId: "t", poolId: "p"}) { pool { id } } }`
	graphQL := "application/graphql-response+json"
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		code               string // empty: none looked for
		media              string
	}{
		"validation error in application/json":   {"POST", "/graphql", requestFor(`{ nope }`), nil, 200, "INVALID_INPUT", "application/json"},
		"validation error in its own media type": {"POST", "/graphql", requestFor(`{ nope }`), []string{"Accept", graphQL}, 400, "INVALID_INPUT", graphQL},
		"syntax error":                           {"POST", "/graphql", requestFor(`{`), []string{"Accept", graphQL}, 400, "INVALID_INPUT", graphQL},
		"field error":                            {"POST", "/graphql", requestFor(mutation), []string{"Accept", graphQL}, 200, "FORBIDDEN", graphQL},
		"no query":                               {"POST", "/graphql", `{}`, nil, 400, "INVALID_INPUT", "application/json"},
		"not JSON":                               {"POST", "/graphql", `{"query":`, nil, 400, "INVALID_INPUT", "application/json"},
		"batch":                                  {"POST", "/graphql", `[{"query":"{ viewer { subject } }"}]`, nil, 400, "INVALID_INPUT", "application/json"},
		"duplicate key":                          {"POST", "/graphql", `{"query":"{ __typename }","query":"{ __typename }"}`, nil, 400, "INVALID_INPUT", ""},
		"trailing data":                          {"POST", "/graphql", `{"query":"{ __typename }"} {}`, nil, 400, "INVALID_INPUT", ""},
		"NUL in a variable":                      {"POST", "/graphql", `{"query":"{ __typename }","variables":{"a":"\u0000"}}`, nil, 400, "INVALID_INPUT", ""},
		"invalid UTF-8":                          {"POST", "/graphql", "{\"query\":\"{ __typename }\xff\"}", nil, 400, "INVALID_INPUT", ""},
		"variables of the wrong type":            {"POST", "/graphql", `{"query":"{ __typename }","variables":[]}`, nil, 400, "INVALID_INPUT", ""},
		"deep variables":                         {"POST", "/graphql", `{"query":"{ __typename }","variables":{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`, nil, 400, "INVALID_INPUT", ""},
		"mutation by GET":                        {"GET", "/graphql?query=" + url.QueryEscape(mutation), "", nil, 405, "INVALID_INPUT", ""},
		"subscription by plain POST":             {"POST", "/graphql", requestFor(watch("t", 1)), nil, 200, "INVALID_INPUT", ""},
		"subscription by plain POST, own type":   {"POST", "/graphql", requestFor(watch("t", 1)), []string{"Accept", graphQL}, 400, "INVALID_INPUT", ""},
		"urlencoded":                             {"POST", "/graphql", `query={viewer{subject}}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "INVALID_INPUT", ""},
		"multipart":                              {"POST", "/graphql", `x`, []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, "INVALID_INPUT", ""},
		"text/plain":                             {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Content-Type", "text/plain"}, 415, "INVALID_INPUT", ""},
		"unacceptable":                           {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Accept", "text/html"}, 406, "INVALID_INPUT", ""},
		"method":                                 {"PUT", "/graphql", requestFor(`{ viewer { subject } }`), nil, 405, "INVALID_INPUT", ""},
		"no credential":                          {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Authorization", ""}, 401, "UNAUTHENTICATED", "application/json"},
		"wrong credential":                       {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Authorization", "Bearer nobody"}, 401, "UNAUTHENTICATED", ""},
		"another scheme":                         {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Authorization", "Basic " + tokenAlice}, 401, "UNAUTHENTICATED", ""},
		"credential in the query string":         {"GET", "/graphql?access_token=" + tokenAlice + "&query=%7B__typename%7D", "", nil, 401, "UNAUTHENTICATED", ""},
		"large body":                             {"POST", "/graphql", strings.Repeat(" ", 256<<10+1), nil, 413, "PAYLOAD_TOO_LARGE", ""},
		"page of another origin":                 {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Origin", "https://evil.example.com"}, 403, "FORBIDDEN", ""},
		"page of no origin":                      {"POST", "/graphql", requestFor(`{ viewer { subject } }`), []string{"Origin", "null"}, 403, "FORBIDDEN", ""},
		"variable that is missing":               {"POST", "/graphql", requestFor(`query ($t: ID!) { pool(tenantId: $t, poolId: "p") { id } }`), []string{"Accept", graphQL}, 400, "INVALID_INPUT", ""},
		"operation that is not there":            {"POST", "/graphql", `{"query":"query A { __typename }","operationName":"B"}`, []string{"Accept", graphQL}, 400, "INVALID_INPUT", ""},
		"GET with variables that are no JSON":    {"GET", "/graphql?query=%7B__typename%7D&variables=x", "", nil, 400, "INVALID_INPUT", ""},
		"mutation as an event stream by GET":     {"GET", "/graphql?query=" + url.QueryEscape(mutation), "", []string{"Accept", "text/event-stream"}, 405, "INVALID_INPUT", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, body := w.call(t, c.method, c.path, c.body, c.header...)
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			if code, _, _ := firstError(t, body); code != c.code {
				t.Errorf("code %s, want %s: %s", code, c.code, body)
			}
			if media := resp.Header.Get("Content-Type"); c.media != "" && media != c.media+"; charset=utf-8" {
				t.Errorf("media type %q, want %q", media, c.media)
			}
			if c.status != 200 && strings.Contains(body, `"data"`) {
				t.Errorf("a request that was not executed has data: %s", body)
			}
		})
	}
}

// A page of another site can make a browser send any of these, the credential included if it were a cookie. Only a POST of JSON from
// an origin that is allowed may change anything.
func TestNothingIsChangedByWhatABrowserCanBeMadeToSend(t *testing.T) {
	t.Parallel()
	w := setup(t)
	document := `mutation { archivePool(input: {tenantId: "t", poolId: "p"}) { pool { id } } }`
	form := url.Values{"query": {document}}.Encode()
	want := int64(0)
	for _, origin := range []string{"", w.url, "https://console.example.com", "https://evil.example.com", "null", "http://console.example.com", "https://console.example.com:444"} {
		for _, media := range []string{"application/json", "application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/graphql", ""} {
			for _, method := range []string{"POST", "GET", "PUT", "PATCH", "DELETE", "HEAD"} {
				for _, accept := range []string{"*/*", "text/event-stream"} {
					w.call(t, method, "/graphql?"+form, requestFor(document), "Origin", origin, "Content-Type", media, "Accept", accept)
					trusted := origin == "" || origin == w.url || origin == "https://console.example.com"
					if method == "POST" && trusted && strings.HasPrefix(media, "application/json") {
						want++
					}
					if got := w.mutations.Load(); got != want {
						t.Fatalf("%s from %q as %q for %q: %d mutations executed, want %d", method, origin, media, accept, got, want)
					}
				}
			}
		}
	}
}

func TestAllowedOriginGetsCORS(t *testing.T) {
	t.Parallel()
	w := setup(t)
	origin := "https://console.example.com"
	resp, _ := w.call(t, "OPTIONS", "/graphql", "", "Origin", origin, "Authorization", "")
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != origin {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	resp, body := w.post(t, `{ viewer { subject } }`, "Origin", origin)
	if resp.StatusCode != 200 || resp.Header.Get("Access-Control-Allow-Origin") != origin {
		t.Errorf("request: %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.post(t, `{ viewer { subject } }`, "Origin", w.url); resp.StatusCode != 200 {
		t.Errorf("the server's own origin: %d", resp.StatusCode)
	}
}

func TestErrorsShowWhatTheyMay(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.OperationTime = 2 * time.Second })
	for tenant, want := range map[string]struct{ code, message string }{
		"panic":  {"INTERNAL", "The server failed to handle this request."},
		"broken": {"INTERNAL", "The server failed to handle this request."},
		"slow":   {"UNAVAILABLE", "The operation did not finish within its time limit."},
		"taken":  {"CONFLICT", "The name is taken."},
	} {
		resp, body := w.post(t, `{ pool(tenantId: "`+tenant+`", poolId: "p") { id } viewer { subject } }`, "X-Request-Id", "request-"+tenant)
		code, message, details := firstError(t, body)
		if code != want.code || message != want.message {
			t.Errorf("%s: %s %q, want %s %q", tenant, code, message, want.code, want.message)
		}
		if code == "INTERNAL" && details["requestId"] != "request-"+tenant {
			t.Errorf("%s: details %v", tenant, details)
		}
		if strings.Contains(body, "secret-in") {
			t.Errorf("%s: the cause is shown: %s", tenant, body)
		}
		if !strings.Contains(body, `"path":["pool"]`) || !strings.Contains(body, `"viewer":{"subject":"user:alice"}`) {
			t.Errorf("%s: %s", tenant, body)
		}
		if id := resp.Header.Get("X-Request-Id"); id != "request-"+tenant {
			t.Errorf("request id %q", id)
		}
	}
	for _, cause := range []string{"secret-in-panic", "secret-in-error"} {
		if n := strings.Count(w.log.String(), cause); n != 1 {
			t.Errorf("%s is logged %d times", cause, n)
		}
	}
}

func TestVariableErrorNamesTheVariable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, body := w.call(t, "POST", "/graphql", `{"query":"query ($q: OfferQuery) { offers(tenantId: \"t\", accountId: \"a\", query: $q) { id } }","variables":{"q":{"kind":"x"}}}`)
	code, _, details := firstError(t, body)
	want := map[string]any{"issues": []any{map[string]any{"path": "variables.q.kind", "message": "The value is not a valid MachineKind"}}}
	if diff := cmp.Diff(want, details); code != "INVALID_INPUT" || diff != "" {
		t.Errorf("%s: %s", code, diff)
	}
}

// A scalar that refuses its value is reported by gqlgen under the field's path with the argument's appended.
func TestArgumentErrorNamesTheArgument(t *testing.T) {
	t.Parallel()
	ctx := graphql.WithFieldContext(t.Context(), &graphql.FieldContext{Field: graphql.CollectedField{Field: &ast.Field{Alias: "createPool"}}})
	at := ast.Path{ast.PathName("createPool"), ast.PathName("input"), ast.PathName("config"), ast.PathName("sizes"), ast.PathIndex(1)}
	got := presenter{}.present(ctx, gqlerror.WrapPath(at, errors.New("must be a number")))
	want := &gqlerror.Error{
		Message: "config.sizes[1]: must be a number",
		Path:    ast.Path{ast.PathName("createPool")},
		Extensions: map[string]any{"code": "INVALID_INPUT", "details": map[string]any{
			"issues": []problem.Issue{{Path: "config.sizes[1]", Message: "must be a number"}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(gqlerror.Error{})); diff != "" {
		t.Error(diff)
	}
}

func TestLogHasNoQueryStringAndNoVariables(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.call(t, "GET", "/graphql?query="+url.QueryEscape(`{ viewer { subject } }`)+"&variables="+url.QueryEscape(`{"canary":"one"}`), "")
	w.call(t, "POST", "/graphql", `{"query":"{ viewer { subject } }","variables":{"canary":"two"}}`)
	log := w.log.String()
	if strings.Contains(log, "canary") || strings.Contains(log, tokenAlice) {
		t.Errorf("the log has what a request carries: %s", log)
	}
	if strings.Count(log, `"subject":"user:alice"`) != 2 || !strings.Contains(log, `"path":"/graphql"`) {
		t.Errorf("the log does not say who called what: %s", log)
	}
}

func TestPanicOfAHandler(t *testing.T) {
	t.Parallel()
	w := setup(t)
	resp, body := w.call(t, "POST", "/api/compute/panic", "{}", "X-Request-Id", "request-id")
	want := `{"error":{"code":"INTERNAL","details":{"requestId":"request-id"},"message":"The server failed to handle this request."}}` + "\n"
	if resp.StatusCode != 500 || body != want {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if n := strings.Count(w.log.String(), "secret-in-panic"); n != 1 {
		t.Errorf("the panic is logged %d times", n)
	}
}

func TestWhatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.notReady = errors.New("secret-in-error")
	for path, header := range map[string]string{"/readyz": tokenAlice, "/graphql?query=%7B__typename%7D": tokenNoProvider, "/api/compute/x": tokenNoProvider} {
		resp, body := w.call(t, "GET", path, "", "Authorization", "Bearer "+header)
		if resp.StatusCode != 503 || !strings.Contains(body, `"code":"UNAVAILABLE"`) || strings.Contains(body, "secret-in") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// Strangers have no points, so none of them can use up the points of all.
func TestUpgradesOfStrangersAreChargedToNobody(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.PointsAtMost, c.Limits.PointsPerSecond = 100, 1 })
	for range 5 {
		resp, body := w.call(t, "GET", "/graphql?x="+strings.Repeat("x", 10<<10), "", "Authorization", "", "Upgrade", "websocket", "Connection", "Upgrade")
		if resp.StatusCode != 400 && resp.StatusCode != 426 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}

func TestBodiesThatCannotBeReadSayWhy(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, body := range []string{`{`, `[]`, `7`, `{"query":"a","query":"b"}`, `{"query":"\u0000"}`, "{\"query\":\"\xff\"}", `{"query":` + strings.Repeat("[", 40)} {
		_, got := w.call(t, "POST", "/graphql", body)
		if !strings.Contains(got, `"code":"INVALID_INPUT"`) || !strings.Contains(got, `"issues":[{"path":`) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// A WebSocket is let through to its first message, but a header that asks for one opens nothing else.
func TestUpgradeHeaderIsNoWayAroundTheCredential(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for path, want := range map[string]int{"/api/compute/providerAccounts/get": 401, "/graphql": 426, "/graphql/": 404, "//graphql": 404} {
		for _, upgrade := range []string{"websocket", "h2c", "x"} {
			resp, body := w.call(t, "POST", path, requestFor(`{ viewer { subject } }`), "Authorization", "", "Upgrade", upgrade, "Connection", "Upgrade")
			if resp.StatusCode != want && (path != "/graphql" || resp.StatusCode < 400) {
				t.Errorf("%s as %s: %d %s", path, upgrade, resp.StatusCode, body)
			}
			if strings.Contains(body, `"data"`) || strings.Contains(body, "user:") {
				t.Errorf("%s as %s is executed: %s", path, upgrade, body)
			}
		}
	}
}

func TestOfferOfAnotherProtocolIsDeclined(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, upgrade := range []string{"h2c", "h2c, foo", "websockets"} {
		resp, body := w.post(t, `{ viewer { subject } }`, "Upgrade", upgrade, "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
		if resp.StatusCode != 200 || !strings.Contains(body, `"subject":"user:alice"`) {
			t.Errorf("%s: %d %s", upgrade, resp.StatusCode, body)
		}
	}
	for _, upgrade := range []string{"websocket", "WebSocket", "h2c, websocket"} {
		if resp, body := w.post(t, `{ viewer { subject } }`, "Upgrade", upgrade, "Connection", "Upgrade"); resp.StatusCode < 400 {
			t.Errorf("%s: %d %s", upgrade, resp.StatusCode, body)
		}
	}
}

func TestConsoleTakesWhatNobodyElseDoes(t *testing.T) {
	t.Parallel()
	srv, err := New(Deps{
		Schema: graph.NewExecutableSchema(graph.Config{Resolvers: root{}}), Authenticate: StaticTokens(nil), Log: slog.New(slog.DiscardHandler),
		Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "console "+r.URL.Path) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "console /", "/accounts/1": "console /accounts/1", "/healthz": "{\"status\":\"ok\"}\n"} {
		rec := httptest.NewRecorder()
		srv.Handler().ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		if rec.Body.String() != want {
			t.Errorf("%s: %q", path, rec.Body.String())
		}
	}
}

func TestOtherRoutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		contains           string
	}{
		{"GET", "/healthz", "", nil, 200, "ok"},
		{"GET", "/readyz", "", nil, 200, "ready"},
		{"GET", "/metrics", "", nil, 200, "compute_http_requests_total"},
		{"GET", "/", "", nil, 200, "compute-api"},
		{"GET", "/graphiql", "", nil, 302, ""},
		{"GET", "/graphiql/", "", nil, 200, "graphiql.min.js"},
		{"GET", "/graphiql/page.js", "", nil, 200, "ReactDOM.createRoot"},
		{"GET", "/nowhere", "", nil, 404, `"code":"NOT_FOUND"`},
		{"POST", "/healthz", "{}", nil, 405, `"code":"INVALID_INPUT"`},
		{"POST", "/api/compute/providerAccounts/get", "{}", nil, 200, "user:alice /api/compute/providerAccounts/get 2"},
		{"POST", "/api/compute/providerAccounts/get", "{}", []string{"Authorization", ""}, 401, `{"error":{"code":"UNAUTHENTICATED"`},
		{"POST", "/api/compute/providerAccounts/get", strings.Repeat("x", 256<<10+1), nil, 413, `"code":"PAYLOAD_TOO_LARGE"`},
	} {
		resp, body := w.call(t, c.method, c.path, c.body, c.header...)
		if resp.StatusCode != c.status || !strings.Contains(body, c.contains) {
			t.Errorf("%s %s: %d %.200s", c.method, c.path, resp.StatusCode, body)
		}
		if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s %s lacks headers: %v", c.method, c.path, resp.Header)
		}
		if c.status == 401 && resp.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("no WWW-Authenticate: %v", resp.Header)
		}
	}
}

// One line for each request, whatever a client puts into it.
func TestNoRequestWritesALogLineOfItsOwn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const forged = `%0d%0a{"level":"ERROR","msg":"forged"}`
	for _, path := range []string{"/x" + forged, "/graphql" + forged, "/api/compute/x" + forged, "/graphql?query=" + forged, "/%2e%2e/x%00%1b[31m" + forged} {
		for _, id := range []string{"a-request-id", "forged\tid", "%0aforged-id-in-a-header"} {
			before := strings.Count(w.log.String(), "\n")
			w.call(t, "GET", path, "", "X-Request-Id", id, "User-Agent", forged)
			eventually(t, "the request is logged", func() bool { return strings.Count(w.log.String(), "\n") > before })
			if lines := strings.Count(w.log.String(), "\n") - before; lines != 1 {
				t.Errorf("%q with %q: %d lines", path, id, lines)
			}
		}
	}
	for line := range strings.Lines(w.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] != "request" {
			t.Errorf("%v: %s", err, line)
		}
	}
}
