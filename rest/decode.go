package rest

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
	"better/compute/model"
)

// decode reads a body into In, and finds every unknown field and wrong type, not just the first. Missing fields, and those of a wrong
// type, are left at zero.
func decode[In any](body []byte) (in In, issues problem.Issues, err error) {
	v, err := strictjson.Parse(body)
	if err != nil {
		return in, nil, problem.New(problem.InvalidInput, "The body cannot be read: %s.", err).
			With("issues", []problem.Issue{{Path: "", Message: err.Error()}})
	}
	object, ok := v.(map[string]any)
	if !ok {
		return in, nil, problem.New(problem.InvalidInput, "The body must be a JSON object.").
			With("issues", []problem.Issue{{Path: "", Message: "must be a JSON object"}})
	}
	fill(reflect.ValueOf(&in).Elem(), object, "", &issues)
	return in, issues, nil
}

// merge adds what else is wrong with the form of an input to what is wrong with its types, once for each field.
func merge(types, form problem.Issues) problem.Issues {
	if len(types) == 0 {
		return nil // the service says all there is
	}
	all := slices.Clone(types)
	for _, i := range form {
		if !slices.ContainsFunc(types, func(t problem.Issue) bool { return t.Path == i.Path }) {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b problem.Issue) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// maxIssues is how many fields that are wrong one answer lists.
const maxIssues = 100

// fill sets the struct's fields from the members of the object.
func fill(target reflect.Value, object map[string]any, prefix string, issues *problem.Issues) {
	fields := map[string]reflect.Value{}
	for i := range target.NumField() {
		name, _, _ := strings.Cut(target.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = target.Field(i)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		v := object[name]
		field, known := fields[name]
		if len(*issues) >= maxIssues {
			issues.Add("", "breaks more rules than these %d", maxIssues)
			return
		}
		if !known {
			issues.Add(prefix+name, "is not a field of this method")
			continue
		}
		set(field, v, prefix+name, issues)
	}
}

// set gives one field its value. Null counts as absent where the field is optional.
func set(field reflect.Value, v any, path string, issues *problem.Issues) {
	_, isJSON := reflect.TypeAssert[model.JSON](field)
	if v == nil && (isJSON || field.Kind() == reflect.Pointer) {
		return
	}
	if isJSON {
		text, err := json.Marshal(v)
		if err != nil {
			issues.Add(path, "must be JSON")
			return
		}
		field.SetBytes(text)
		return
	}
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	switch field.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			issues.Add(path, "must be a string")
			return
		}
		field.SetString(s)
	case reflect.Int:
		n, ok := v.(json.Number)
		i, err := n.Int64()
		if !ok || err != nil || i < math.MinInt32 || i > math.MaxInt32 {
			issues.Add(path, "must be an integer")
			return
		}
		field.SetInt(i)
	case reflect.Struct:
		members, ok := v.(map[string]any)
		if !ok {
			issues.Add(path, "must be an object")
			return
		}
		fill(field, members, path+".", issues)
	default:
		// Inputs hold nothing else; a new kind of field must be thought of here.
		issues.Add(path, "cannot be given here")
	}
}
