// Package schematest holds the promises about the schema as a whole: nothing that clients rely on goes away, and everything is
// described. It has no code of its own, and knows no resolver.
package schematest

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"

	"better/compute/graph"
)

const snapshot = "../../schema/schema.graphql"

var update = flag.Bool("update", false, "take the present schema as the released one")

func present() *ast.Schema { return graph.NewExecutableSchema(graph.Config{}).Schema() }

func load(t *testing.T, sdl string) *ast.Schema {
	t.Helper()
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: t.Name(), Input: sdl})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	if *update {
		var b bytes.Buffer
		formatter.NewFormatter(&b, formatter.WithIndent("  ")).FormatSchema(present())
		if err := os.WriteFile(snapshot, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	released, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range breaking(load(t, string(released)), present()) {
		t.Errorf("breaks clients of the released schema: %s", change)
	}
	if t.Failed() {
		t.Log("Deprecate instead. When a break is meant, say why in the commit and run `make snapshot`.")
	}
}

func TestEverythingIsDescribed(t *testing.T) {
	t.Parallel()
	described := 0
	check := func(path, description string) {
		described++
		if strings.TrimSpace(description) == "" {
			t.Errorf("%s has no description", path)
		}
	}
	schema := present()
	for _, name := range slices.Sorted(maps.Keys(schema.Types)) {
		d := schema.Types[name]
		if d.BuiltIn {
			continue
		}
		check(name, d.Description)
		for _, v := range d.EnumValues {
			check(name+"."+v.Name, v.Description)
		}
		for _, f := range d.Fields {
			if strings.HasPrefix(f.Name, "__") {
				continue
			}
			check(name+"."+f.Name, f.Description)
			for _, a := range f.Arguments {
				check(name+"."+f.Name+"("+a.Name+":)", a.Description)
			}
		}
	}
	if described < 100 {
		t.Errorf("only %d elements were looked at", described)
	}
}

const released = `
	type Query { thing(id: ID!, first: Int = 50, tag: String): Thing, other: Any, things: [Thing!]! }
	interface Node { id: ID! }
	type Thing implements Node { id: ID!, name: String, size(unit: Unit): Int! }
	type Other { id: ID! }
	union Any = Thing | Other
	enum Unit { MB GB }
	input Filter { name: String!, max: Int = 5, tags: [String] }
	scalar Time
`

func TestBreakingChangesAreSeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ old, now, want string }{
		{"scalar Time", "", "Time was removed"},
		{"scalar Time", "enum Time { NOW }", "Time was SCALAR and is ENUM"},
		{"name: String,", "", "Thing.name was removed"},
		{"name: String,", "name: Int,", "Thing.name was String and is Int"},
		{"name: String,", "name: [String],", "Thing.name was String and is [String]"},
		{": Int! }", ": Int }", "Thing.size was Int! and is Int"},
		{"[Thing!]!", "[Thing]!", "Query.things was [Thing!]! and is [Thing]!"},
		{", tag: String", "", "Query.thing(tag:) was removed"},
		{", tag: String", ", tag: String!", "Query.thing(tag:) was String and is String!"},
		{", tag: String", ", tag: ID", "Query.thing(tag:) was String and is ID"},
		{", tag: String", ", tag: String, owner: ID!", "Query.thing(owner:) is new and required"},
		{"first: Int = 50", "first: Int = 10", "Query.thing(first:) had the default 50 and has 10"},
		{"first: Int = 50", "first: Int", "Query.thing(first:) had the default 50 and has none"},
		{"MB GB", "MB", "Unit lost the value GB"},
		{"= Thing | Other", "= Thing", "Any does not include Other any more"},
		{" implements Node", "", "Thing does not implement Node any more"},
		{", max: Int = 5", "", "Filter.max was removed"},
		{"tags: [String]", "tags: [String!]", "Filter.tags was [String] and is [String!]"},
		{"tags: [String]", "tags: [String], owner: ID!", "Filter.owner is new and required"},
		{"max: Int = 5", "max: Int = 6", "Filter.max had the default 5 and has 6"},
	} {
		now := replaced(t, tt.old, tt.now)
		if diff := cmp.Diff([]string{tt.want}, breaking(load(t, released), now)); diff != "" {
			t.Errorf("%q for %q (-want +got):\n%s", tt.now, tt.old, diff)
		}
	}
}

func TestAdditionsAreFine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ old, now string }{
		{"scalar Time", "scalar Time scalar JSON"},
		{"name: String,", "name: String!, more: Int,"},
		{"name: String,", "name: String @deprecated(reason: \"Use `id`.\"),"},
		{"id: ID!, first", "id: ID, first"},
		{", tag: String", ", tag: String, owner: ID, limit: Int! = 3"},
		{"MB GB", "MB GB TB"},
		{"= Thing | Other", "= Thing | Other | More type More { id: ID! }"},
		{"name: String!,", "name: String, more: Int,"},
	} {
		if got := breaking(load(t, released), replaced(t, tt.old, tt.now)); len(got) > 0 {
			t.Errorf("%q for %q: %q", tt.now, tt.old, got)
		}
	}
}

// replaced is the released schema with one part of it written anew.
func replaced(t *testing.T, old, now string) *ast.Schema {
	t.Helper()
	if strings.Count(released, old) != 1 {
		t.Fatalf("%q is not there once", old)
	}
	return load(t, strings.Replace(released, old, now, 1))
}
