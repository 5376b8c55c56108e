package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/internal/problem"
)

// maxJSONDepth is how deep the JSON of a request may nest.
const maxJSONDepth = 32

// parseJSON reads exactly one JSON value. Stricter than encoding/json: it refuses duplicate keys, which two readers
// can understand differently, trailing data, invalid UTF-8, NUL, which Postgres cannot store, and deep nesting.
func parseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parseValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

func parseValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("it nests deeper than %d", maxJSONDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			return parseArray(dec, depth)
		}
		return parseObject(dec, depth)
	case string:
		if strings.ContainsRune(tok, 0) {
			return nil, errors.New("a string holds NUL")
		}
	}
	return tok, nil
}

func parseArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	return list, nil
}

func parseObject(dec *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, errors.New("it is not well-formed JSON")
		}
		key, _ := tok.(string) // the decoder gives nothing else here
		if strings.ContainsRune(key, 0) {
			return nil, errors.New("a key holds NUL")
		}
		if _, twice := object[key]; twice {
			return nil, errors.New("an object has the same key twice")
		}
		if object[key], err = parseValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("it is not well-formed JSON")
	}
	return object, nil
}

// parseParams reads the JSON of a GraphQL request. Unknown members are ignored, as the protocol wants.
func parseParams(body []byte) (*graphql.RawParams, error) {
	v, err := parseJSON(body)
	if err != nil {
		return nil, problem.New(problem.InvalidInput, "The request body cannot be read: %s.", err)
	}
	if _, batch := v.([]any); batch {
		return nil, problem.New(problem.InvalidInput, "The request body must be one object; batches are not supported.")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, problem.New(problem.InvalidInput, "The request body must be a JSON object.")
	}
	return paramsFrom(object)
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
