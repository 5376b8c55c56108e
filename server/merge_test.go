package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
	"pgregory.net/rapid"
)

var petSchema = gqlparser.MustLoadSchema(&ast.Source{Input: `
	type Query { pet: Pet dog: Dog cat: Cat any: Any }
	interface Pet { name(short: Boolean): String friend: Pet }
	type Dog implements Pet { name(short: Boolean): String friend: Pet volume: Int size: String! tags: [String] mother: Dog }
	type Cat implements Pet { name(short: Boolean): String friend: Pet volume: Int! size: String! tags: [String!] mother: Cat }
	union Any = Dog | Cat`})

// conflicts reports whether a rule refuses a document.
func conflicts(t fataler, document string, rule core.Rule) bool {
	doc, err := parser.ParseQuery(&ast.Source{Input: document})
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return len(validator.ValidateWithRules(petSchema, doc, rules.NewRules(rule))) > 0
}

type fataler interface{ Fatalf(string, ...any) }

func TestMergeRule(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]bool{
		`{ dog { name name } }`:                                                                          false,
		`{ dog { name volume: name } }`:                                                                  false,
		`{ dog { x: name x: size } }`:                                                                    true,
		`{ dog { name(short: true) name } }`:                                                             true,
		`{ dog { name(short: true) name(short: true) } }`:                                                false,
		`{ pet { ... on Dog { x: name } ... on Cat { x: size } } }`:                                      true, // nullable and not
		`{ pet { ... on Dog { x: size } ... on Cat { x: size } } }`:                                      false,
		`{ pet { ... on Dog { x: name } ... on Cat { x: name(short: true) } } }`:                         false, // never one object
		`{ pet { x: name ... on Cat { x: name(short: true) } } }`:                                        true,
		`{ pet { ... on Dog { volume } ... on Cat { volume } } }`:                                        true,
		`{ pet { ... on Dog { mother { x: volume } } ... on Cat { mother { x: volume } } } }`:            true,
		`{ pet { ... on Dog { mother { x: name } } ... on Cat { mother { x: friend { name } } } } }`:     true,
		`{ dog { friend { x: name } ...F } } fragment F on Dog { friend { ... on Cat { x: size } } }`:    true,
		`{ dog { friend { ...F } } cat { friend { ...F } } } fragment F on Pet { name friend { name } }`: false,
	} {
		if got := conflicts(t, document, mergeRule()); got != want {
			t.Errorf("%s: conflict is %v, want %v", document, got, want)
		}
	}
}

// Against the validator's own rule, which compares every pair.
func TestMergeRuleAgreesWithThePairwiseRule(t *testing.T) {
	t.Parallel()
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		document := drawDocument(t)
		want, got := conflicts(t, document, rules.OverlappingFieldsCanBeMergedRule), conflicts(t, document, mergeRule())
		seen[want]++
		if got != want {
			t.Fatalf("conflict is %v, want %v:\n%s", got, want, document)
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("the documents are of one kind only: %v", seen)
	}
}

// fragmentTypes are the types that fragments F0, F1, ... are on.
var fragmentTypes = []string{"Pet", "Dog", "Cat"}

func drawDocument(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("{ " + drawSet(t, "Query", 3, 0) + " pet { ...F0 } dog { ...F1 } cat { ...F2 } }")
	for i, on := range fragmentTypes {
		fmt.Fprintf(&b, " fragment F%d on %s { %s }", i, on, drawSet(t, on, 2, i+1))
	}
	return b.String()
}

// drawSet draws selections on a type. Fragments before spread are not spread, so that there is no cycle.
func drawSet(t *rapid.T, on string, depth, spread int) string {
	var parts []string
	for range rapid.IntRange(1, 4).Draw(t, "selections") {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			if to := rapid.SampledFrom([]string{"Dog", "Cat", "Pet"}).Draw(t, "on"); depth > 0 && on != "Query" {
				parts = append(parts, fmt.Sprintf("... on %s { %s }", to, drawSet(t, to, depth-1, spread)))
			}
		case 1:
			if spread < len(fragmentTypes) && on != "Query" {
				parts = append(parts, fmt.Sprintf("...F%d", rapid.IntRange(spread, len(fragmentTypes)-1).Draw(t, "fragment")))
			}
		default:
			parts = append(parts, drawField(t, on, depth, spread))
		}
	}
	return strings.Join(append(parts, "__typename"), " ")
}

func drawField(t *rapid.T, on string, depth, spread int) string {
	fields := petSchema.Types[on].Fields
	f := fields[rapid.IntRange(0, len(fields)-1).Draw(t, "field")]
	if strings.HasPrefix(f.Name, "__") {
		return "__typename"
	}
	alias := rapid.SampledFrom([]string{"", "", "", "x: ", "name: "}).Draw(t, "alias")
	to := petSchema.Types[f.Type.Name()]
	if !to.IsCompositeType() {
		arguments := ""
		if f.Name == "name" {
			arguments = rapid.SampledFrom([]string{"", "", "(short: true)"}).Draw(t, "arguments")
		}
		return alias + f.Name + arguments
	}
	if depth == 0 {
		return "__typename"
	}
	if to.Kind == ast.Union {
		return fmt.Sprintf("%s%s { ... on Dog { %s } }", alias, f.Name, drawSet(t, "Dog", depth-1, spread))
	}
	return fmt.Sprintf("%s%s { %s }", alias, f.Name, drawSet(t, to.Name, depth-1, spread))
}
