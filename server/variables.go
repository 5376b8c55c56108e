package server

import (
	"encoding/json"
	"fmt"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/internal/problem"
)

// typeVariables holds the variables of the operation to the kind of their types, as REST does with its fields, and gives numbers the Go type
// that the library's own coercion tells from text: to it a json.Number is a string, and a string of digits an Int. What
// stands below a scalar of ours stays as it was read. INVALID_INPUT with every variable that is wrong.
func typeVariables(schema *ast.Schema, doc *ast.QueryDocument, params *graphql.RawParams) error {
	op := doc.Operations.ForName(params.OperationName)
	if op == nil {
		return nil // it is refused later
	}
	t := typing{schema: schema}
	for _, def := range op.VariableDefinitions {
		if v := params.Variables[def.Variable]; v != nil {
			params.Variables[def.Variable] = t.value(def.Type, v, "variables."+def.Variable)
		}
	}
	return t.issues.Err()
}

// maxIssues is how many wrong variables one answer lists: a path for each of thousands would be many times as long as the request.
const maxIssues = 100

type typing struct {
	schema *ast.Schema
	issues problem.Issues
}

func (t *typing) value(typ *ast.Type, v any, path string) any {
	if len(t.issues) >= maxIssues {
		return v
	}
	if v == nil {
		return nil // whether it may be is judged by the library
	}
	if typ.Elem != nil {
		list, ok := v.([]any)
		if !ok {
			return t.value(typ.Elem, v, path) // one value stands for a list of it
		}
		for i := range list {
			list[i] = t.value(typ.Elem, list[i], fmt.Sprintf("%s[%d]", path, i))
		}
		return list
	}
	def := t.schema.Types[typ.NamedType]
	if def == nil || def.Kind != ast.InputObject {
		return t.scalar(typ.NamedType, v, path)
	}
	members, _ := v.(map[string]any)
	for name := range members {
		if field := def.Fields.ForName(name); field != nil {
			members[name] = t.value(field.Type, members[name], path+"."+name)
		}
	}
	return v
}

func (t *typing) scalar(typ string, v any, path string) any {
	number, isNumber := v.(json.Number)
	_, isText := v.(string)
	switch typ {
	case "Int":
		if n, err := number.Int64(); isNumber && err == nil {
			return n
		}
		t.refuse(isNumber || isText, path, "must be an integer")
	case "Float":
		if f, err := number.Float64(); isNumber && err == nil {
			return f
		}
		t.refuse(isNumber || isText, path, "must be a number")
	case "ID":
		if n, err := number.Int64(); isNumber && err == nil {
			return n
		}
		t.refuse(isNumber, path, "must be a string")
	case "String":
		t.refuse(isNumber, path, "must be a string")
	case "Boolean":
		t.refuse(isNumber, path, "must be true or false")
	}
	return v
}

func (t *typing) refuse(wrong bool, path, message string) {
	if wrong {
		t.issues.Add(path, "%s", message)
	}
}
