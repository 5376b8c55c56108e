package server

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
)

var wrongSeed = flag.Uint64("wrong-seed", 1, "what the wrong queries of TestWrongQueriesTellNothing are made from")

// TestWrongQueriesTellNothing asks what the schema does not have, and looks for words of it that were not in the question.
func TestWrongQueriesTellNothing(t *testing.T) {
	t.Parallel()
	e := newTestEngine(t, Config{})
	random := rand.New(rand.NewPCG(*wrongSeed, 0))
	refused, leaks := 0, 0
	for refused < 2_000 {
		document := spoil(random, wrongFrom[random.IntN(len(wrongFrom))])
		_, resp := e.prepare(t.Context(), &graphql.RawParams{Query: document, Variables: map[string]any{"i": map[string]any{"bad": "x"}}})
		if resp == nil {
			continue
		}
		refused++
		text, err := json.Marshal(resp.Errors)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return r > 127 || !isWordByte(byte(r)) }) {
			// The answer's own keys and sentences are made of plain words.
			if e.words[word] && !plain(word) && !hasWord(document, word) {
				leaks++
				t.Errorf("%s\ntells of %s: %s", document, word, text)
			}
		}
	}
	t.Logf("wrong-queries refused=%d leaks=%d seed=%d", refused, leaks, *wrongSeed)
}

// wrongFrom are right, or nearly.
var wrongFrom = []string{
	`{ viewer { subject groups } }`,
	`{ providers { name capabilities } }`,
	`{ pool(tenantId: "t", poolId: "p") { id name class account { id bootstraps(first: 1) { nodes { id } } } } }`,
	`query ($n: Int) { providerAccounts(tenantId: "t", first: $n, after: "x") { nodes { id } pageInfo { hasNextPage } } }`,
	`{ offers(tenantId: "t", accountId: "a", query: {kind: VPS, minVcpu: 1, region: "fra1"}) { id price { hourly } } }`,
	`mutation ($i: ArchivePoolInput!) { archivePool(input: $i) { pool { id } } }`,
	`mutation { createPool(input: {tenantId: "t", name: "n", class: VPS_HOST, agent: BCD}) { pool { id } } }`,
	`subscription { bootstrapStatusChanged(tenantId: "t") { cursor bootstrap { id status } } }`,
	`{ node(id: "x") { id ... on Pool { name } ... on Host { id } } }`,
	`{ __schema { types { name } } }`,
	`{ bootstraps(tenantId: "t", statuses: [JOINED, FAILED]) { nodes { id history { at } } } }`,
}

// spoil changes a few words of a document: one goes, is written wrong, is put elsewhere, or becomes a value.
func spoil(random *rand.Rand, document string) string {
	words := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ", ":", " : ", ",", " , ", "[", " [ ", "]", " ] ").Replace(document))
	for range 1 + random.IntN(3) {
		i, j := random.IntN(len(words)), random.IntN(len(words))
		switch random.IntN(5) {
		case 0:
			words[i] = ""
		case 1:
			words[i] += "e"
		case 2:
			words[i], words[j] = words[j], words[i]
		case 3:
			words[i] = []string{"7", `"x"`, "x", "null", "[x]", "{x: 1}", "$n", "...", "{ x }", "@x"}[random.IntN(10)]
		case 4:
			words[i] = words[j]
		}
	}
	return strings.Join(words, " ")
}

func TestStrip(t *testing.T) {
	t.Parallel()
	w := words{"Query": true, "viewer": true, "providerAccounts": true, "VPS_HOST": true, "type": true}
	for message, want := range map[string]string{
		`Cannot query field "nope" on type "Query".`: `Cannot query field "nope" on type "…".`,
		`Did you mean "viewer"?`:                     `Did you mean "viewer"?`, // the document has it
		`Expected providerAccounts, not VPS_HOST!`:   `Expected …, not …!`,
		`a "type" "viewers" "[Query!]!"`:             `a "…" "viewers" "[…!]!"`,
		`"`:                                          `"`,
	} {
		if got := w.strip(`{ viewer { nope } providerAccountsX }`, message); got != want {
			t.Errorf("%s: %s, want %s", message, got, want)
		}
	}
}
