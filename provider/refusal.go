package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaIssues turns what the schema refused into issues in our own words, since the library's quote the value.
func schemaIssues(f *findings, e *jsonschema.ValidationError) {
	var at path
	for _, name := range e.InstanceLocation {
		at = at.member(name)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			f.add(at.member(name), "is required")
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties {
			if f.done() {
				return
			}
			f.add(at.member(name), "is not a field of this provider's config")
		}
	case *kind.Group, *kind.Schema, *kind.Reference, *kind.AllOf:
		// The validator walks maps; the same config is to get the same answer.
		slices.SortStableFunc(e.Causes, func(a, b *jsonschema.ValidationError) int {
			return slices.Compare(a.InstanceLocation, b.InstanceLocation)
		})
		for _, cause := range e.Causes {
			schemaIssues(f, cause)
		}
	default:
		f.add(at, "%s", refusal(k))
	}
}

func refusal(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		want, _ := json.Marshal(k.Want) // of the schema, not of the config
		return "must be one of " + string(want)
	case *kind.Const:
		want, _ := json.Marshal(k.Want)
		return "must be " + string(want)
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.Format:
		return "must be in the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members", k.Want)
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.UniqueItems:
		return "must not repeat an item"
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be above " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be below " + k.Want.RatString()
	case *kind.DependentRequired:
		return "also needs " + strings.Join(k.Missing, ", ")
	case *kind.Dependency:
		return "also needs " + strings.Join(k.Missing, ", ")
	}
	return "does not fit the provider's config schema"
}
