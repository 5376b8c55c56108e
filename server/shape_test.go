package server

import (
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"better/compute/internal/problem"
)

// Each response of a subscription is that of one field, however the document spells it.
func TestASubscriptionHasOneField(t *testing.T) {
	t.Parallel()
	for document, fits := range map[string]bool{
		`subscription { f { to } }`:                                                              true,
		`subscription { a: f { to } a: f { at } }`:                                               true,
		`subscription { ...F } fragment F on Subscription { f { to } }`:                          true,
		`subscription { f { to @skip(if: true) } }`:                                              true,
		`{ a: f { to } b: f { to } }`:                                                            true,
		`subscription { a: f { to } b: f { to } }`:                                               false,
		`subscription { f { to } g { to } }`:                                                     false,
		`subscription { f { to } ... { b: f { to } } }`:                                          false,
		`subscription { f { to } ...F } fragment F on Subscription { b: f { to } }`:              false,
		`subscription { f @skip(if: true) { to } }`:                                              false,
		`subscription($yes: Boolean!) { f @include(if: $yes) { to } }`:                           false,
		`subscription { ... @skip(if: false) { f { to } } }`:                                     false,
		`subscription { ...F @include(if: true) } fragment F on Subscription { f { to } }`:       false,
		`subscription { ...F } fragment F on Subscription { ...F }`:                              false,
		`subscription { ...F } fragment F on Subscription { ... { f @include(if: true) {to} } }`: false,
	} {
		doc, err := parser.ParseQuery(&ast.Source{Input: document})
		if err != nil {
			t.Fatal(err)
		}
		switch err := checkShape(doc, defaultLimits(), true); {
		case fits && err != nil:
			t.Errorf("%s: %v", document, err)
		case !fits && !problem.Is(err, problem.InvalidInput):
			t.Errorf("%s: %v, want INVALID_INPUT", document, err)
		}
	}
}
