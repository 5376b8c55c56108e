package server

import (
	"testing"

	"github.com/99designs/gqlgen/graphql"
)

// What a request costs before it is executed: a document that was seen before, one that was not, and the dearest.
func BenchmarkPrepare(b *testing.B) {
	ordinary := &graphql.RawParams{Query: `query ($t: ID!) { providerAccounts(tenantId: $t, first: 20) { nodes { id name bootstraps(first: 2) { nodes { id status } } } } }`,
		Variables: map[string]any{"t": "demo"}}
	for _, c := range []struct {
		name   string
		params *graphql.RawParams
		fresh  bool
	}{
		{"cached", ordinary, false},
		{"fresh", ordinary, true},
		{"unknown fields", hostile()["unknown fields"], true},
		{"equal fields", hostile()["1,900 equal fields"], true},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := newTestEngine(b, Config{})
			b.ReportAllocs()
			for b.Loop() {
				if c.fresh {
					e.documents.Purge()
				}
				e.prepare(b.Context(), &graphql.RawParams{Query: c.params.Query, Variables: c.params.Variables})
			}
		})
	}
}

// FuzzPrepare looks for documents that panic or are dear. `go test -fuzz=FuzzPrepare` goes on from the
// hostile ones.
func FuzzPrepare(f *testing.F) {
	for _, params := range hostile() {
		f.Add(params.Query)
	}
	e := newTestEngine(f, Config{Introspection: true, Suggestions: true})
	f.Fuzz(func(t *testing.T, document string) {
		e.documents.Purge()
		start := cpuTime(t)
		e.prepare(t.Context(), &graphql.RawParams{Query: document})
		if cpu := cpuTime(t) - start; cpu > 200e6 {
			t.Errorf("%d bytes take %v of CPU", len(document), cpu)
		}
	})
}
