package server

import (
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
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
		`{"tenantId":"a"}`: {"a"}, `{"tenantId":7}`: nil, `{"input":{"tenantId":"a"}}`: nil, `[]`: nil, `{`: nil, ``: nil,
	} {
		if diff := cmp.Diff(want, tenantsOfBody([]byte(body))); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// The callers of a tenant share its points over every transport; another tenant's are not touched, and no stranger takes any.
func TestRateLimitOfATenant(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.TenantPointsPerSecond, c.Limits.TenantPointsAtMost = 1, 150 })
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
		w.quota.streams.mu.Lock()
		defer w.quota.streams.mu.Unlock()
		return w.quota.streams.open["shared"] == 1
	})
	one.subscribe("3", watch("shared", -1))
	one.expect(`{"id":"3","type":"next"…`)
}
