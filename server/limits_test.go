package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"

	"better/compute/graph"
	"better/compute/internal/problem"
)

// unmetered lets one caller go on for as long as a test does.
const unmetered = 1 << 40

func newTestEngine(t testing.TB, config Config) *engine {
	t.Helper()
	config.Limits.PointsPerSecond, config.Limits.PointsAtMost = unmetered, unmetered
	config.Limits.TenantPointsPerSecond, config.Limits.TenantPointsAtMost = unmetered, unmetered
	var err error
	if config.Limits, err = config.Limits.withDefaults(); err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(graph.NewExecutableSchema(graph.Config{Resolvers: root{}}), config, presenter{slog.New(slog.DiscardHandler)}, m, newQuota(config.Limits, m.running, nil))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// refusal is the code, the rule and the message of what prepare refuses; empty when it does not.
func (e *engine) refusal(t testing.TB, params *graphql.RawParams) (code, rule, message string) {
	t.Helper()
	_, resp := e.prepare(t.Context(), params)
	if resp == nil {
		return "", "", ""
	}
	details, _ := firstDetails(resp)
	rule, _ = details["rule"].(string)
	return firstCode(resp), rule, resp.Errors[0].Message
}

func TestLimits(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t, Config{})
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return b.String()
	}
	for rule, c := range map[string]struct{ over, within string }{
		"document_bytes": {`{ __typename } #` + strings.Repeat("x", 64<<10), `{ __typename } #` + strings.Repeat("x", 60<<10)},
		"tokens":         {"{ viewer {" + strings.Repeat(" subject", 2000) + "}}", "{ viewer {" + strings.Repeat(" subject", 1900) + "}}"},
		"root_fields":    {"{" + many(21, " a%d: __typename") + "}", "{" + many(20, " a%d: __typename") + "}"},
		"aliases":        {"{ viewer {" + many(101, " a%d: subject") + "}}", "{ viewer {" + many(100, " a%d: subject") + "}}"},
		"depth":          {"{ pool(tenantId: \"t\", poolId: \"p\") { account" + strings.Repeat(" { bootstraps(first: 1) { nodes { account", 5) + " { id" + strings.Repeat("}}}", 5) + "}}}", nested(4)},
		"cost":           {`{ a: ` + page(100, page(100, "id")) + `}`, `{ a: ` + page(50, page(20, "id")) + `}`},
	} {
		if code, got, message := e.refusal(t, &graphql.RawParams{Query: c.over}); got != rule || code != "INVALID_INPUT" {
			t.Errorf("over %s: %s %s %q", rule, code, got, message)
		}
		if code, got, message := e.refusal(t, &graphql.RawParams{Query: c.within}); code != "" {
			t.Errorf("within %s: %s %s %q", rule, code, got, message)
		}
	}
	if code, rule, _ := e.refusal(t, &graphql.RawParams{Query: "query { ...A } fragment A on Query { ...B ...B } fragment B on Query {" + many(21, " a%d: __typename") + "}"}); rule != "root_fields" {
		t.Errorf("root fields in fragments: %s %s", code, rule)
	}
}

// page selects from a page of bootstraps of the accounts of a page.
func page(first int, inner string) string {
	if inner == "id" {
		return fmt.Sprintf(`bootstraps(first: %d) { nodes { id } }`, first)
	}
	return fmt.Sprintf(`providerAccounts(tenantId: "t", first: %d) { nodes { %s } }`, first, inner)
}

func nested(n int) string {
	return "{ pool(tenantId: \"t\", poolId: \"p\") { account" + strings.Repeat(" { bootstraps(first: 1) { nodes { account", n) + " { id }" + strings.Repeat("}}}", n) + "}}"
}

func TestCost(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t, Config{Introspection: true})
	for document, want := range map[string]int{
		`{ __typename }`:         0,
		`{ viewer { subject } }`: 1,
		`{ providers { name } }`: 10,
		`{ providerAccounts(tenantId: "t", first: 7) { nodes { id } pageInfo { hasNextPage } } }`:                                             1 + 7 + 1,
		`{ providerAccounts(tenantId: "t") { nodes { id } } }`:                                                                                1 + 50,
		`{ providerAccounts(tenantId: "t", first: null) { nodes { id } } }`:                                                                   1 + 100,
		`{ providerAccounts(tenantId: "t", first: -5) { nodes { id } } }`:                                                                     1,
		`{ providerAccounts(tenantId: "t", first: 7) { edges { node { id } } } }`:                                                             1 + 7*2,
		`{ providerAccounts(tenantId: "t", first: 7) { nodes { bootstraps(first: 3) { nodes { id history { at } } } } } }`:                    1 + 7*(1+1+3*(1+10)),
		`{ providerAccounts(tenantId: "t", first: 7) { ...P } } fragment P on ProviderAccountConnection { nodes { id } ... { nodes { id } }}`: 1 + 14,
		`{ providerAccounts(tenantId: "t", first: 7) { nodes @skip(if: true) { id } } }`:                                                      1 + 7,
		`{ offers(tenantId: "t", accountId: "a") { id } }`:                                                                                    50 + 10,
		`{ providerAccount(tenantId: "t", accountId: "a") { machines { id } } }`:                                                              1 + 50 + 10,
		`query ($n: Int) { providerAccounts(tenantId: "t", first: $n) { nodes { id } } }`:                                                     1 + 9,
		`query ($m: Int) { providerAccounts(tenantId: "t", first: $m) { nodes { id } } }`:                                                     1 + 50,
		`query ($m: Int = 4) { providerAccounts(tenantId: "t", first: $m) { nodes { id } } }`:                                                 1 + 4,
		`mutation { archivePool(input: {tenantId: "t", poolId: "p"}) { pool { id } } }`:                                                       2 + 20,
		`mutation { resolveClaim(input: {tenantId: "t", bootstrapId: "b", nothingOrdered: true}) { bootstrap { id } } }`:                      2 + 20 + 50,
		`{ __schema { types { name } } }`:                                                                                                     100,
	} {
		variables := map[string]any{}
		if strings.Contains(document, "$n") {
			variables["n"] = 9
		}
		op, resp := e.prepare(t.Context(), &graphql.RawParams{Query: document, Variables: variables})
		if resp != nil {
			t.Errorf("%s: %v", document, resp.Errors)
			continue
		}
		if op.cost != (Cost{want, 5000}) {
			t.Errorf("%s costs %v, want %d", document, op.cost, want)
		}
		if live := strings.Contains(document, "offers") || strings.Contains(document, "machines") || strings.Contains(document, "resolveClaim"); op.usesLive != live {
			t.Errorf("%s: live is %v", document, op.usesLive)
		}
	}
	_, resp := e.prepare(t.Context(), &graphql.RawParams{Query: `{ providerAccounts(tenantId: "t", first: 2000000000) { nodes { id } } }`})
	if resp == nil || resp.Extensions["cost"] != (Cost{5001, 5000}) {
		t.Errorf("an operation over the limit does not say its price: %v", resp)
	}
}

func TestIntrospectionAndSuggestions(t *testing.T) {
	t.Parallel()
	closed, open := newTestEngine(t, Config{}), newTestEngine(t, Config{Introspection: true, Suggestions: true})
	for _, document := range []string{`{ __schema { types { name } } }`, `{ __type(name: "Pool") { name } }`, `{ ...F } fragment F on Query { __schema { queryType { name } } }`} {
		if code, _, _ := closed.refusal(t, &graphql.RawParams{Query: document}); code != "INVALID_INPUT" {
			t.Errorf("%s: %q", document, code)
		}
		if code, _, message := open.refusal(t, &graphql.RawParams{Query: document}); code != "" {
			t.Errorf("%s: %q %s", document, code, message)
		}
	}
	if code, _, _ := closed.refusal(t, &graphql.RawParams{Query: `{ __typename viewer { __typename } }`}); code != "" {
		t.Errorf("__typename: %s", code)
	}
	if code, _, message := open.refusal(t, &graphql.RawParams{Query: `{ __schema { a: types { name } b: types { name } } }`}); code != "INVALID_INPUT" {
		t.Errorf("aliased introspection: %s %s", code, message)
	}
	for _, document := range []string{
		`{ viewe { subject } }`, `{ pool(tenantI: "t", poolId: "p") { id } }`, `{ viewer }`, `{ ...F } fragment F on Quer { __typename }`,
		`{ offers(tenantId: "t", accountId: "a", query: {kind: VP}) { id } }`, `{ offers(tenantId: "t", accountId: "a", query: {minVcp: 1}) { id } }`,
	} {
		_, resp := closed.prepare(t.Context(), &graphql.RawParams{Query: document})
		for _, err := range resp.Errors {
			if strings.Contains(err.Message, "ean") || strings.Contains(err.Message, "VPS") || strings.Contains(err.Message, "minVcpu") {
				t.Errorf("%s tells of the schema: %s", document, err.Message)
			}
		}
	}
	if _, _, message := open.refusal(t, &graphql.RawParams{Query: `{ viewe { subject } }`}); !strings.Contains(message, `"viewer"`) {
		t.Errorf("no suggestion: %s", message)
	}
}

func TestPersistedOperations(t *testing.T) {
	t.Parallel()
	document := `{ viewer { subject } }`
	path := filepath.Join(t.TempDir(), "operations.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(`{%q: %q}`, documentSum(document), document))
	e := newTestEngine(t, Config{PersistedOperations: path})
	named := func(sum any) map[string]any {
		return map[string]any{"persistedQuery": map[string]any{"version": 1, "sha256Hash": sum}}
	}
	for _, c := range []struct {
		params *graphql.RawParams
		want   string
	}{
		{&graphql.RawParams{Query: document}, ""},
		{&graphql.RawParams{Extensions: named(documentSum(document))}, ""},
		{&graphql.RawParams{Query: document + " "}, "persisted_operations"},
		{&graphql.RawParams{Extensions: named("00")}, "persisted_operations"},
		{&graphql.RawParams{Extensions: named(7)}, "persisted_operations"},
		{&graphql.RawParams{}, "persisted_operations"},
		{&graphql.RawParams{Query: `{ providers { name } }`, Extensions: named(documentSum(document))}, "persisted_operations"},
	} {
		if _, rule, _ := e.refusal(t, c.params); rule != c.want {
			t.Errorf("%v: %q, want %q", c.params, rule, c.want)
		}
	}
	write(fmt.Sprintf(`{%q: %q}`, documentSum(document), document+" "))
	if _, err := loadOperations(path); err == nil {
		t.Error("a list with a wrong sum is taken")
	}
	write(`null`)
	if _, err := loadOperations(path); err == nil {
		t.Error("no list is taken for one that allows every document")
	}
	if _, err := loadOperations(path + ".none"); err == nil {
		t.Error("a missing list is taken")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	wrong := Config{Limits: Limits{Depth: -1, Cost: -1, InitTime: -1}, AllowedOrigins: []string{"a", "https://b", "c"}}
	for _, setting := range []string{"limits.depth", "limits.cost", "limits.initTime", "allowedOrigins[0]", "allowedOrigins[2]"} {
		if err := wrong.Check(); err == nil || !strings.Contains(err.Error(), setting) {
			t.Errorf("error %v does not name %s", err, setting)
		}
	}
	if _, err := New(Deps{Config: wrong}); err == nil {
		t.Error("a server is made of it")
	}
}

func TestAllowedOriginsAreChecked(t *testing.T) {
	t.Parallel()
	for origin, want := range map[string]bool{
		"https://a.example.com": true, "http://localhost:3000": true,
		"*": false, "https://*.example.com": false, "https://a.example.com/": false, "a.example.com": false, "null": false, "ftp://a": false, "https://u@a": false,
	} {
		if err := checkOrigins([]string{origin}); (err == nil) != want {
			t.Errorf("%s: %v", origin, err)
		}
	}
}

func TestLiveFieldsAreFieldsOfTheSchema(t *testing.T) {
	t.Parallel()
	schema := newTestEngine(t, Config{}).schema.Schema()
	for _, name := range liveFields {
		on, field, _ := strings.Cut(name, ".")
		if schema.Types[on] == nil || schema.Types[on].Fields.ForName(field) == nil {
			t.Errorf("the schema has no %s", name)
		}
	}
}

// hostile are documents that are made to be dear, each within the limits of size. Sizes stop where the limits do.
func hostile() map[string]*graphql.RawParams {
	doc := func(text string) *graphql.RawParams { return &graphql.RawParams{Query: text} }
	chain := func(n int, body string) string {
		var b strings.Builder
		b.WriteString("{ ...F0 }")
		for i := range n {
			fmt.Fprintf(&b, " fragment F%d on Query { ", i)
			if i+1 < n {
				fmt.Fprintf(&b, body, i+1, i+1)
			} else {
				b.WriteString("viewer { subject }")
			}
			b.WriteString("}")
		}
		return b.String()
	}
	nestedChain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{ pool(tenantId: "t", poolId: "p") { account { ...F0 } } }`)
		for i := range n {
			next := "id"
			if i+1 < n {
				next = fmt.Sprintf("a: bootstraps(first: 1) { nodes { account { ...F%d } } } b: bootstraps(first: 1) { nodes { account { ...F%d } } }", i+1, i+1)
			}
			fmt.Fprintf(&b, " fragment F%d on ProviderAccount { %s }", i, next)
		}
		return b.String()
	}
	var tree func(depth int) string
	tree = func(depth int) string {
		if depth == 0 {
			return " id"
		}
		kid := tree(depth - 1)
		if depth%2 == 0 {
			return " account {" + kid + "} account {" + kid + "}"
		}
		return " bootstraps(first: 1) { nodes {" + kid + "} nodes {" + kid + "} }"
	}
	var fragments strings.Builder
	fragments.WriteString("{ viewer { ")
	for i := range 180 {
		fmt.Fprintf(&fragments, "...A%d ", i)
	}
	fragments.WriteString("}}")
	for i := range 180 {
		fmt.Fprintf(&fragments, " fragment A%d on Viewer { subject groups}", i)
	}
	deepInput := strings.Repeat("{a:", 600) + "1" + strings.Repeat("}", 600)
	variables := map[string]any{}
	var declared strings.Builder
	for i := range 390 {
		fmt.Fprintf(&declared, "$v%d: ID ", i)
		variables[fmt.Sprintf("v%d", i)] = strings.Repeat("x", 500)
	}
	return map[string]*graphql.RawParams{
		"24 chained fragments":            doc(chain(24, "...F%d ...F%d")),
		"24 chained fragments, by field":  doc(chain(24, "...F%d ... { ...F%d }")),
		"nested chained fragments":        doc(nestedChain(24)),
		"8,000 equal fields":              doc("{ viewer {" + strings.Repeat(" subject", 8000) + "}}"),
		"1,900 equal fields":              doc("{ viewer {" + strings.Repeat(" subject", 1900) + "}}"),
		"640 equal objects":               doc(`{ pool(tenantId: "t", poolId: "p") {` + strings.Repeat(" account{id}", 480) + "}}"),
		"equal fields with arguments":     doc("{" + strings.Repeat(` pool(tenantId: "t", poolId: "p") { id }`, 20) + "}"),
		"tree of equal fields":            doc(`{ pool(tenantId: "t", poolId: "p") { account {` + tree(7) + `}}}`),
		"100,000 directives":              doc("{ __typename " + strings.Repeat("@a", 30_000) + "}"),
		"900 directives":                  doc("{ __typename " + strings.Repeat("@a ", 900) + "}"),
		"deep input":                      doc(`{ offers(tenantId: "t", accountId: "a", query: ` + deepInput + `) { id } }`),
		"deep list":                       doc(`{ offers(tenantId: "t", accountId: "a", query: ` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + `) { id } }`),
		"deep selection":                  doc(strings.Repeat("{a", 900) + strings.Repeat("}", 900)),
		"fragment per field":              doc(fragments.String()),
		"fragments in a circle":           doc("{ ...A } fragment A on Query { ...B ...B } fragment B on Query { ...A ...A }"),
		"unknown fields":                  doc("{ viewer {" + strings.Repeat(" subjec", 1900) + "}}"),
		"variables":                       {Query: "query (" + declared.String() + ") { viewer { subject } }", Variables: variables},
		"long string":                     doc(`{ pool(tenantId: "` + strings.Repeat(`\u0041`, 10_000) + `", poolId: "p") { id } }`),
		"comments":                        doc("{ __typename }" + strings.Repeat("#\n", 32_000)),
		"operations":                      doc(strings.Repeat("query A { __typename } ", 390)),
		"24 chained fragments of nothing": doc(strings.ReplaceAll(chain(24, "...F%d ...F%d"), "viewer { subject }", "__typename")),
		"introspection":                   doc("{ __schema { types { fields { type { fields { type { fields { type { name } } } } } } } } }"),
	}
}

// TestHostileDocuments prints what each costs, and holds the memory, and without the race detector the CPU, to their bounds.
func TestHostileDocuments(t *testing.T) {
	e := newTestEngine(t, Config{Introspection: true, Suggestions: true})
	var worst time.Duration
	var most uint64
	for name, params := range hostile() {
		var code, rule string
		cpu, allocated := e.least(t, func() { code, rule = e.answer(t, &graphql.RawParams{Query: params.Query, Variables: params.Variables}) })
		t.Logf("%-32s %8.2f ms %7.2f MiB  %s %s", name, float64(cpu.Microseconds())/1000, float64(allocated)/(1<<20), code, rule)
		if tooDear(cpu, allocated) {
			t.Errorf("%s takes %v of CPU and %.1f MiB", name, cpu, float64(allocated)/(1<<20))
		}
		worst, most = max(worst, cpu), max(most, allocated)
	}
	printFigure(t, "hostile-documents", worst, most)
}

// answer takes a request to its response, whether it is executed or refused.
func (e *engine) answer(t testing.TB, params *graphql.RawParams) (code, rule string) {
	t.Helper()
	op, resp := e.prepare(t.Context(), params)
	if resp == nil {
		_ = e.run(t.Context(), op, func(r *graphql.Response) error { resp = r; return nil })
	}
	if details, ok := firstDetails(resp); ok {
		rule, _ = details["rule"].(string)
	}
	return firstCode(resp), rule
}

func TestMeter(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := newMeter(Limits{PointsPerSecond: 10, PointsAtMost: 100, TenantPointsPerSecond: 20, TenantPointsAtMost: 150})
	m.now = func() time.Time { return now }
	a, b, tenant := account{limitSubject, "a"}, account{limitSubject, "b"}, account{limitTenant, "a"}
	charge := func(want time.Duration, wantShort account, points int, accounts ...account) {
		t.Helper()
		if wait, short := m.charge(points, accounts...); wait != want || short != wantShort {
			t.Errorf("%d points of %v wait %v for %v, want %v for %v", points, accounts, wait, short, want, wantShort)
		}
	}
	charge(0, account{}, 100, a) // a whole burst
	charge(2*time.Second, a, 20, a)
	charge(2*time.Second, a, 20, a, tenant)
	charge(0, account{}, 100, b, tenant)
	charge(10*time.Second, b, 100, b, tenant) // the tenant waits too, but not as long
	now = now.Add(2 * time.Second)
	charge(0, account{}, 20, a)
	charge(100*time.Millisecond, a, 0, a) // an operation that returns nothing is not free
	now = now.Add(time.Hour)
	charge(0, account{}, 1_000_000, a) // more than can be saved up
	now = now.Add(time.Hour)
	charge(0, account{}, 100, a, tenant)
	charge(2500*time.Millisecond, tenant, 100, b, tenant)
	charge(0, account{}, 100, b) // which the refusal took nothing from
	now = now.Add(time.Hour)
	m.sweep(now)
	if len(m.balances) != 0 {
		t.Errorf("accounts with all their points are remembered: %v", m.balances)
	}
}

// A flood of names that have not got their points back yet costs each of them a constant, not a walk over all.
func TestMeterUnderAFloodOfNames(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := newMeter(Limits{PointsPerSecond: 1, PointsAtMost: 100, TenantPointsPerSecond: 1, TenantPointsAtMost: 100})
	m.now = func() time.Time { return now }
	sweeps := 0
	for i := range 8 * sweepAt {
		before := m.sweepAt
		m.charge(50, account{limitSubject, fmt.Sprint(i)})
		if m.sweepAt != before {
			sweeps++
		}
	}
	if len(m.balances) != 8*sweepAt || sweeps > 4 {
		t.Errorf("%d names are remembered after %d sweeps", len(m.balances), sweeps)
	}
	now = now.Add(time.Hour)
	for i := range 8 * sweepAt {
		m.charge(50, account{limitSubject, fmt.Sprint("again", i)})
	}
	if _, known := m.balances[account{limitSubject, "0"}]; known || m.sweepAt > 16*sweepAt {
		t.Errorf("what was full again is remembered; the next sweep is at %d", m.sweepAt)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	w := setupMetered(t, func(c *Config) { c.Limits.PointsPerSecond, c.Limits.PointsAtMost = 1, 150 })
	w.post(t, `{ providerAccounts(tenantId: "t", first: 100) { nodes { id } } }`) // 101 points, and 3 for the document
	dear := `{ a: providerAccounts(tenantId: "t", first: 60) { nodes { id } } }`
	c := w.connect(t, tokenAlice)
	c.subscribe("1", dear)
	c.expect(`{"id":"1","type":"error","payload":[{"message":"You have used up what one caller may ask for in a short time.","extensions":{"code":"RATE_LIMITED"…`)
	for _, header := range [][]string{nil, {"Accept", typeGraphQL}} {
		resp, body := w.post(t, dear, header...)
		if code, _, _ := firstError(t, body); resp.StatusCode != 429 || code != "RATE_LIMITED" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v: %d %s %v", header, resp.StatusCode, body, resp.Header)
		}
	}
	if resp, body := w.post(t, `{ nope }`+strings.Repeat(" ", 64*bytesPerPoint)); resp.StatusCode != 429 {
		t.Errorf("documents that are refused are free: %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.post(t, dear, "Authorization", "Bearer "+tokenBob); resp.StatusCode != 200 {
		t.Errorf("another caller: %d", resp.StatusCode)
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.post(t, "{ viewer {"+strings.Repeat(" subject", 2000)+"}}")
	w.post(t, `{ viewer { subject } }`)
	_, body := w.call(t, "GET", "/metrics", "")
	for _, want := range []string{
		`compute_limit_refusals_total{rule="tokens"} 1`,
		`compute_graphql_responses_total{code="OK",type="query"} 1`,
		`compute_graphql_responses_total{code="` + string(problem.InvalidInput) + `",type="refused"} 1`,
		`compute_http_requests_total{method="POST",route="/graphql",status="200"} 2`,
		`compute_websockets_open 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}
