package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"better/compute/graph"
)

// TestAuditActions holds the page to the actions that the code writes: those of no mutation are listed, and no other name is in use.
func TestAuditActions(t *testing.T) {
	t.Parallel()
	mutations := graph.NewExecutableSchema(graph.Config{}).Schema().Mutation
	var background []string
	for _, name := range actions(t) {
		switch {
		case strings.Contains(name, "."):
			background = append(background, name)
		case mutations.Fields.ForName(name) == nil:
			t.Errorf("the action %s is no mutation", name)
		}
	}
	listed := firsts(table(t, "audit.md", "action", "without a mutation"))
	slices.Sort(background)
	slices.Sort(listed)
	compare(t, "actions without a mutation", background, listed)
}

// actions are the values of the constants that are called something with Action at the end.
func actions(t *testing.T) (values []string) {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, ".generated.") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, name := range spec.Names {
				literal, ok := spec.Values[i].(*ast.BasicLit)
				if !ok || !strings.HasSuffix(name.Name, "Action") {
					continue
				}
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(path, err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	if len(values) < 10 {
		t.Fatalf("found the actions %v only", values)
	}
	return values
}
