package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// A document whose conditions can turn out in thousands of ways keeps no more fields than any other, and the executor does the rest.
func TestPlansOfADocumentAreBounded(t *testing.T) {
	t.Parallel()
	const conditions = 12
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: "type Query { name: String! }"})
	types := Types{"Query": {Satisfies: []string{"Query"}, Fields: map[string]*Field{"name": {NonNull: true}}}}
	var declared, fields strings.Builder
	for i := range conditions {
		fmt.Fprintf(&declared, "$c%d: Boolean! ", i)
		fmt.Fprintf(&fields, "f%d: name @include(if: $c%d) ", i, i)
	}
	doc := gqlparser.MustLoadQueryWithRules(schema, "query("+declared.String()+") { "+fields.String()+"}", nil)
	plans, answered := &Plans{}, 0
	for bits := range 1 << conditions {
		op := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0], Variables: map[string]any{}}
		for i := range conditions {
			op.Variables[fmt.Sprintf("c%d", i)] = bits>>i&1 == 1
		}
		if top := plans.top(types, op); top != nil {
			answered++
		}
	}
	kept := 0
	for _, top := range plans.tops {
		kept += 1 + len(top)
	}
	if kept > maxFields || kept < maxFields/2 || answered != len(plans.tops) {
		t.Errorf("%d fields are kept in %d plans, %d operations have one; at most %d may be kept", kept, len(plans.tops), answered, maxFields)
	}
}
