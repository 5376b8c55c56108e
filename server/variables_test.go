package server

import (
	"encoding/json"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
)

func TestTypeVariables(t *testing.T) {
	t.Parallel()
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `
		scalar JSON
		input In { name: String n: Int f: Float id: ID b: Boolean any: JSON in: In list: [Int!] }
		type Query { q(in: In, n: Int, ids: [ID!]): Int }`})
	doc, err := parser.ParseQuery(&ast.Source{Input: `query($in: In, $n: Int, $ids: [ID!]) { q(in: $in, n: $n, ids: $ids) }`})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		variables string
		want      map[string]any
		wrong     []string
	}{
		{`{}`, map[string]any{}, nil},
		{
			`{"in": {"name": "a", "n": 2, "f": 1, "id": 7, "b": true, "any": {"x": 1.50}, "list": [1, 2], "in": {"n": null}}, "ids": "one"}`,
			map[string]any{"in": map[string]any{
				"name": "a", "n": int64(2), "f": 1.0, "id": int64(7), "b": true, "any": map[string]any{"x": json.Number("1.50")},
				"list": []any{int64(1), int64(2)}, "in": map[string]any{"n": nil},
			}, "ids": "one"},
			nil,
		},
		{`{"n": "2"}`, nil, []string{"variables.n"}},
		{`{"n": 1.5}`, nil, []string{"variables.n"}},
		{`{"in": {"name": 55}}`, nil, []string{"variables.in.name"}},
		{`{"in": {"f": "1", "in": {"b": 1, "list": [1, "2"]}}}`, nil, []string{"variables.in.f", "variables.in.in.b", "variables.in.in.list[1]"}},
		{`{"ids": ["a", 5.5]}`, nil, []string{"variables.ids[1]"}},
	} {
		parsed, err := strictjson.Parse([]byte(c.variables))
		if err != nil {
			t.Fatal(err)
		}
		params := &graphql.RawParams{Variables: parsed.(map[string]any)} //nolint:forcetypeassert // it is an object
		err = typeVariables(schema, doc, params)
		var wrong []string
		if p := problem.From(err); p != nil {
			for _, i := range p.Details["issues"].([]problem.Issue) { //nolint:forcetypeassert // a test
				wrong = append(wrong, i.Path)
			}
		}
		if diff := cmp.Diff(set(c.wrong), set(wrong)); diff != "" {
			t.Errorf("%s: wrong variables (-want +got):\n%s", c.variables, diff)
		}
		if diff := cmp.Diff(c.want, params.Variables); c.want != nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.variables, diff)
		}
	}
}

// set forgets the order, since that of an object's members is none.
func set(list []string) map[string]bool {
	members := map[string]bool{}
	for _, s := range list {
		members[s] = true
	}
	return members
}
