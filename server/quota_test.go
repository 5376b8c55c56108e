package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
	"better/compute/internal/slots"
)

func TestTenantsOf(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t, Config{})
	for name, c := range map[string]struct {
		document  string
		variables map[string]any
		want      []string
	}{
		"none":           {`{ viewer { subject } }`, nil, nil},
		"literal":        {`{ pool(tenantId: "a", poolId: "p") { id } }`, nil, []string{"a"}},
		"a number":       {`{ pool(tenantId: 7, poolId: "p") { id } }`, nil, []string{"7"}},
		"several, once":  {`{ a: pool(tenantId: "a", poolId: "p") { id } b: pool(tenantId: "b", poolId: "p") { id } c: pool(tenantId: "a", poolId: "p") { id } }`, nil, []string{"a", "b"}},
		"variable":       {`query ($t: ID!) { pool(tenantId: $t, poolId: "p") { id } }`, map[string]any{"t": "a"}, []string{"a"}},
		"its default":    {`query ($t: ID! = "d") { pool(tenantId: $t, poolId: "p") { id } }`, nil, []string{"d"}},
		"fragments":      {`{ ...F ... { b: pool(tenantId: "b", poolId: "p") { id } } } fragment F on Query { pool(tenantId: "a", poolId: "p") { id } }`, nil, []string{"a", "b"}},
		"input":          {`mutation { archivePool(input: {tenantId: "a", poolId: "p"}) { pool { id } } }`, nil, []string{"a"}},
		"input, in part": {`mutation ($t: ID!) { archivePool(input: {tenantId: $t, poolId: "p"}) { pool { id } } }`, map[string]any{"t": "a"}, []string{"a"}},
		"input, whole":   {`mutation ($i: ArchivePoolInput!) { archivePool(input: $i) { pool { id } } }`, map[string]any{"i": map[string]any{"tenantId": "a", "poolId": "p"}}, []string{"a"}},
		"subscription":   {watch("a", 1), nil, []string{"a"}},
		"no tenant's id": {`{ pool(tenantId: "` + strings.Repeat("a", 129) + `", poolId: "p") { id } }`, nil, nil},
	} {
		op, refused := e.prepare(t.Context(), &graphql.RawParams{Query: c.document, Variables: c.variables})
		if refused != nil {
			t.Errorf("%s: %v", name, refused.Errors)
			continue
		}
		if diff := cmp.Diff(c.want, op.tenants); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for body, want := range map[string][]string{
		`{"tenantId":"a"}`: {"a"}, `{"\u0074enantId":"a"}`: {"a"}, `{"tenantId":7}`: nil, `{"input":{"tenantId":"a"}}`: nil, `[]`: nil, `{`: nil, ``: nil,
	} {
		if diff := cmp.Diff(want, tenantsOfBody([]byte(body))); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// The callers of a tenant share its points over every transport; another tenant's are not touched, and no stranger takes any.
func TestRateLimitOfATenant(t *testing.T) {
	t.Parallel()
	w := setupMetered(t, func(c *Config) { c.Limits.TenantPointsPerSecond, c.Limits.TenantPointsAtMost = 1, 150 })
	list := func(tenant string) string {
		return `{ providerAccounts(tenantId: "` + tenant + `", first: 99) { nodes { id } } }` // 100 points
	}
	bob := []string{"Authorization", "Bearer " + tokenBob}
	for range 5 {
		if resp, body := w.post(t, list("alice-1"), bob...); resp.StatusCode != 200 {
			t.Fatalf("a stranger is held to the tenant's limit: %d %s", resp.StatusCode, body)
		}
	}
	if resp, body := w.post(t, list("alice-1")); resp.StatusCode != 200 {
		t.Fatalf("a stranger used up the tenant's points: %d %s", resp.StatusCode, body)
	}
	w.post(t, list("shared"), bob...)
	w.call(t, "POST", "/api/compute/x", `{"tenantId":"shared"}`)
	resp, body := w.post(t, list("shared"))
	code, _, details := firstError(t, body)
	if resp.StatusCode != 429 || code != "RATE_LIMITED" || details["limit"] != "tenant" || details["rule"] != "tenant_points" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the tenant's other caller: %d %s %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := w.post(t, list("alice-2")); resp.StatusCode != 200 {
		t.Errorf("another tenant: %d %s", resp.StatusCode, body)
	}
	mixed := `{ a: providerAccounts(tenantId: "alice-3", first: 50) { nodes { id } } b: providerAccounts(tenantId: "shared", first: 48) { nodes { id } } }`
	if resp, _ := w.post(t, mixed); resp.StatusCode != 429 {
		t.Errorf("one of two tenants is over its limit: %d", resp.StatusCode)
	}
	if resp, body := w.post(t, list("alice-3")); resp.StatusCode != 200 {
		t.Errorf("what was refused for one tenant was charged to the other: %d %s", resp.StatusCode, body)
	}
	eventually(t, "REST calls are refused", func() bool {
		resp, body := w.call(t, "POST", "/api/compute/x", `{"tenantId":"shared"}`)
		return resp.StatusCode == 429 && strings.Contains(body, `"limit":"tenant"`)
	})
	c := w.connect(t, tokenAlice)
	c.subscribe("1", list("shared"))
	c.expect(`{"id":"1","type":"error","payload":[{"message":"The callers of this tenant have used up what one tenant may ask for in a short time."…`)
	expectLines(t, w.events(t, list("shared"), tokenAlice), "event: next", `data: {"errors":[{"message":"The callers of this tenant have used up`, "event: complete", "data:")
	if _, metrics := w.call(t, "GET", "/metrics", ""); !strings.Contains(metrics, `compute_limit_refusals_total{rule="tenant_points"} 5`) {
		t.Errorf("refusals are not counted: %s", metrics)
	}
}

// What is executed with each event is paid for with each event, unless it is cheap; and calls no provider.
func TestDearSubscriptionsPayForEachEvent(t *testing.T) {
	t.Parallel()
	const dear = `subscription { bootstrapStatusChanged(tenantId: "alice-1", after: "50") { cursor bootstrap { account { bootstraps(first: 90) { nodes { id } } } } } }`
	w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 250 })
	var text string
	for line := range w.events(t, dear, tokenAlice) {
		text += line + "\n"
	}
	if events := strings.Count(text, "event: next"); events != 3 || !strings.Contains(text, "RATE_LIMITED") || !strings.Contains(text, "event: complete") {
		t.Errorf("after %d events: %s", events, text)
	}
	live := `subscription { bootstrapStatusChanged(tenantId: "a") { bootstrap { account { offers { id } } } } }`
	op, refused := newTestEngine(t, Config{}).prepare(t.Context(), &graphql.RawParams{Query: live})
	if op != nil || refused == nil || refused.Errors[0].Extensions["code"] != "INVALID_INPUT" {
		t.Errorf("a provider is called for each event: %+v", refused)
	}
}

// A tenant that makes more services has no more points, whatever they ask for.
func TestWhatServicesAskForIsTheirTenants(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(w *world, token string) (status int, body string){
		"a body": func(w *world, token string) (int, string) {
			resp, body := w.call(t, "POST", "/graphql", `{"x":"`+strings.Repeat("x", 13<<10)+`"}`, "Authorization", "Bearer "+token) // 96 points
			return resp.StatusCode, body
		},
		"a wrong document": func(w *world, token string) (int, string) {
			resp, body := w.post(t, `{ nope }`+strings.Repeat(" ", 100*bytesPerPoint), "Authorization", "Bearer "+token)
			return resp.StatusCode, body
		},
		"another tenant's": func(w *world, token string) (int, string) {
			resp, body := w.post(t, `{ providerAccounts(tenantId: "shared", first: 99) { nodes { id } } }`, "Authorization", "Bearer "+token)
			return resp.StatusCode, body
		},
		"its own tenant's": func(w *world, token string) (int, string) {
			resp, body := w.post(t, `{ providerAccounts(tenantId: "alice-1", first: 99) { nodes { id } } }`, "Authorization", "Bearer "+token)
			return resp.StatusCode, body
		},
		"REST": func(w *world, token string) (int, string) {
			resp, body := w.call(t, "POST", "/api/compute/x", `{"x":"`+strings.Repeat("x", 13<<10)+`"}`, "Authorization", "Bearer "+token)
			return resp.StatusCode, body
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupMetered(t, func(c *Config) { c.Limits.TenantPointsPerSecond, c.Limits.TenantPointsAtMost = 1, 300 })
			for n := 0; ; n++ {
				status, body := send(w, tokenService+strconv.Itoa(n))
				if status == 429 && strings.Contains(body, `"limit":"tenant"`) {
					if n < 2 {
						t.Errorf("after %d calls", n)
					}
					break
				}
				if n > 10 {
					t.Fatalf("a service more has points more: %d %s", status, body)
				}
			}
			if resp, body := w.post(t, `{ providerAccounts(tenantId: "alice-2", first: 99) { nodes { id } } }`); resp.StatusCode != 200 {
				t.Errorf("another tenant: %d %s", resp.StatusCode, body)
			}
		})
	}
}

// What reading a request costs is its caller's, over every transport and whether or not anything comes of it.
func TestReadingABodyTakesPoints(t *testing.T) {
	t.Parallel()
	variables := func(bytes int) string {
		return `{"query":"{ __typename }","variables":{"x":"` + strings.Repeat("x", bytes) + `"}}`
	}
	for name, send := range map[string]func(w *world) bool{
		"JSON": func(w *world) bool {
			resp, _ := w.call(t, "POST", "/graphql", variables(100<<10))
			return resp.StatusCode == 429
		},
		"no JSON": func(w *world) bool {
			resp, _ := w.call(t, "POST", "/graphql", strings.Repeat("{", 100<<10))
			return resp.StatusCode == 429
		},
		"a query": func(w *world) bool {
			resp, _ := w.call(t, "GET", "/graphql?query=%7B__typename%7D&variables="+strings.Repeat("1", 25<<10), "")
			return resp.StatusCode == 429
		},
		"REST": func(w *world) bool {
			resp, _ := w.call(t, "POST", "/api/compute/x", `{"x":"`+strings.Repeat("x", 100<<10)+`"}`)
			return resp.StatusCode == 429
		},
		"a stream": func(w *world) bool {
			resp, _ := w.call(t, "POST", "/graphql", variables(100<<10), "Accept", typeEvents)
			return resp.StatusCode == 429
		},
		"a socket": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.send("%s", `{"id":"1","type":"subscribe","payload":`+variables(100<<10)+`}`)
			return strings.Contains(c.next(), string(problem.RateLimited))
		},
		"no operation on a socket": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.send("%s", `{"id":"1","type":"complete","payload":`+variables(100<<10)+`}`)
			return c.isSentAway()
		},
		"a ping on a socket": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.send("%s", `{"type":"ping","payload":`+variables(100<<10)+`}`)
			return c.isSentAway()
		},
		"small messages on a socket": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			for range 200 {
				if c.isSentAway() {
					return true
				}
			}
			return false
		},
		"small operations that have no place": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.subscribe("1", watch("t", -1))
			if first := c.next(); strings.Contains(first, `"rule":"points"`) {
				return true
			}
			for range 200 {
				_ = c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"2","type":"subscribe","payload":{"query":"{ __typename }"}}`))
				if _, _, err := c.conn.Read(t.Context()); err != nil {
					return websocket.CloseStatus(err) == closeTryLater
				}
			}
			return false
		},
		"no JSON on a socket": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.send("%s", `{"id":{"a":"`+strings.Repeat("x", 100<<10))
			return c.isSentAway()
		},
		"an operation that has no place": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.subscribe("1", watch("t", -1))
			c.expect(`{"id":"1","type":"next"…`)
			c.send("%s", `{"id":"2","type":"subscribe","payload":`+variables(100<<10)+`}`)
			return strings.Contains(c.next(), `"rule":"points"`)
		},
		"an operation under the id of one that runs": func(w *world) bool {
			c := w.connect(t, tokenAlice)
			c.subscribe("1", watch("t", -1))
			c.expect(`{"id":"1","type":"next"…`)
			c.send("%s", `{"id":"1","type":"subscribe","payload":`+variables(100<<10)+`}`)
			return c.isSentAway()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupMetered(t, func(c *Config) {
				c.Limits.PointsPerSecond, c.Limits.PointsAtMost, c.Limits.SocketOperations = 1, 1000, 1
			})
			for n := 1; !send(w); n++ { // 792 points each, or for the query 192
				if n > 10 {
					t.Fatal("reading is free")
				}
			}
		})
	}
	w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 50 })
	for range 30 {
		if resp, body := w.call(t, "POST", "/graphql", variables(700)); resp.StatusCode != 200 {
			t.Fatalf("a small body takes points: %s", body)
		}
	}
}

// A known document with variables that make it too dear is read for nothing each time.
func TestWhatIsTooDearTakesPoints(t *testing.T) {
	t.Parallel()
	w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 60 })
	list := func(first string) (int, string) {
		resp, body := w.call(t, "POST", "/graphql", `{"query":"query ($n: Int) { providerAccounts(tenantId: \"t\", first: $n) { nodes { id } } }","variables":{"n":`+first+`}}`)
		return resp.StatusCode, body
	}
	list("1") // so that the document is known
	for n := 0; ; n++ {
		status, body := list("100000")
		switch {
		case status == 429 && n > 0:
			return
		case n > 20 || !strings.Contains(body, `"rule":"cost"`):
			t.Fatalf("call %d: %d %s", n, status, body)
		}
	}
}

// Whose a node is turns out when it is read.
func TestNodesAreChargedToTheirTenants(t *testing.T) {
	t.Parallel()
	w := setupMetered(t, func(c *Config) { c.Limits.TenantPointsPerSecond, c.Limits.TenantPointsAtMost = 1, 10 })
	both := `{ a: node(id: "pool_shared") { id } b: node(id: "pool_shared") { id } c: node(id: "pool_alice-1") { id } }` // 3 points, of each tenant once
	for range 3 {
		if resp, body := w.post(t, both); resp.StatusCode != 200 || strings.Contains(body, "errors") {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	resp, body := w.post(t, `{ node(id: "pool_shared") { id } a: node(id: "pool_alice-2") { id } viewer { subject } }`)
	code, _, details := firstError(t, body)
	if code != string(problem.RateLimited) || details["limit"] != "tenant" || !strings.Contains(body, `"node":null,"a":{"id":"pool_alice-2"},"viewer":{"subject"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := w.post(t, `{ pool(tenantId: "shared", poolId: "p") { id } b: pool(tenantId: "shared", poolId: "p") { id } }`); resp.StatusCode != 429 {
		t.Errorf("a field that names the tenant: %d %s", resp.StatusCode, body)
	}
}

func TestStreamsOfATenantAreCapped(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.StreamsPerTenant = 2 })
	one, two := w.connect(t, tokenAlice), w.connect(t, tokenBob)
	two.subscribe("1", watch("shared", -1))
	two.expect(`{"id":"1","type":"next"…`)
	lines := w.events(t, watch("shared", -1), tokenAlice)
	expectLines(t, lines, "event: next", `data: {"data"`)
	one.subscribe("1", watch("shared", -1))
	one.expect(`{"id":"1","type":"error","payload":[{"message":"The callers of this tenant have too many open streams.","extensions":{"code":"RATE_LIMITED"…`)
	expectLines(t, w.events(t, watch("shared", -1), tokenAlice), "event: next", `data: {"errors":[{"message":"The callers of this tenant have too many open streams."`, "event: complete", "data:")
	one.subscribe("2", watch("alice-1", -1))
	one.expect(`{"id":"2","type":"next"…`)
	two.send(`{"id":"1","type":"complete"}`)
	eventually(t, "the place is free", func() bool {
		return w.quota.streams.Users(slots.Key{Level: limitTenant, Name: "shared"}) == 1
	})
	one.subscribe("3", watch("shared", -1))
	one.expect(`{"id":"3","type":"next"…`)
}

// What is refused before a document is read takes a point each time, so that it cannot be asked for without end.
func TestWhatIsNotReadTakesPoints(t *testing.T) {
	t.Parallel()
	operations := filepath.Join(t.TempDir(), "operations.json")
	if err := os.WriteFile(operations, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(w *world) int{
		"not on the list":     func(w *world) int { resp, _ := w.post(t, "{__typename}"); return resp.StatusCode },
		"no query":            func(w *world) int { resp, _ := w.call(t, "POST", "/graphql", "{}"); return resp.StatusCode },
		"no JSON":             func(w *world) int { resp, _ := w.call(t, "POST", "/graphql", `{"query":`); return resp.StatusCode },
		"no query in the URL": func(w *world) int { resp, _ := w.call(t, "GET", "/graphql", ""); return resp.StatusCode },
		"no media type": func(w *world) int {
			resp, _ := w.post(t, "{__typename}", "Accept", "image/png")
			return resp.StatusCode
		},
		"another method": func(w *world) int { resp, _ := w.call(t, "PUT", "/graphql", "{}"); return resp.StatusCode },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupMetered(t, func(c *Config) {
				c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 10
				c.PersistedOperations = operations
			})
			for n := 1; ; n++ {
				status := ask(w)
				if status == http.StatusTooManyRequests && n > 5 {
					return
				}
				if status < 400 && status != 200 || n > 100 {
					t.Fatalf("call %d: %d", n, status)
				}
			}
		})
	}
	w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 10 })
	for n := 1; ; n++ {
		resp, _ := w.post(t, "{x}")
		if resp.StatusCode == http.StatusTooManyRequests {
			return
		}
		if n > 100 {
			t.Fatal("short documents are free")
		}
	}
}
