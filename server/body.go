package server

import (
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
)

// parseParams reads the JSON of a GraphQL request. Unknown members are ignored, as the protocol wants.
func parseParams(body []byte) (*graphql.RawParams, error) {
	v, err := strictjson.Parse(body)
	if err != nil {
		return nil, unreadable(err.Error())
	}
	if _, batch := v.([]any); batch {
		return nil, unreadable("it must be one object; batches are not supported")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, unreadable("it must be a JSON object")
	}
	return paramsFrom(object)
}

func unreadable(why string) error {
	return problem.New(problem.InvalidInput, "The request body cannot be read: %s.", why).
		With("issues", []problem.Issue{{Path: "", Message: why}})
}

func paramsFrom(object map[string]any) (*graphql.RawParams, error) {
	var issues problem.Issues
	params := &graphql.RawParams{
		Query:         member[string](object, "query", "a string", &issues),
		OperationName: member[string](object, "operationName", "a string", &issues),
		Variables:     member[map[string]any](object, "variables", "an object", &issues),
		Extensions:    member[map[string]any](object, "extensions", "an object", &issues),
	}
	if strings.ContainsRune(params.Query, 0) {
		issues.Add("query", "holds NUL")
	}
	if err := issues.Err(); err != nil {
		return nil, err
	}
	return params, nil
}

// member reads an optional member; null counts as absent.
func member[T any](object map[string]any, name, kind string, issues *problem.Issues) T {
	v, ok := object[name].(T)
	if !ok && object[name] != nil {
		issues.Add(name, "must be %s", kind)
	}
	return v
}
