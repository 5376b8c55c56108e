package schematest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// changes collects what breaks programs that were written against an older schema, one line each.
type changes []string

func (c *changes) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// breaking lists what a program written against old may trip over in now. Additions are no such thing; a changed default is, since
// it changes what a call means that was written before.
func breaking(old, now *ast.Schema) []string {
	var c changes
	for _, name := range slices.Sorted(maps.Keys(old.Types)) {
		was := old.Types[name]
		is := now.Types[name]
		switch {
		case was.BuiltIn:
		case is == nil:
			c.add("%s was removed", name)
		case is.Kind != was.Kind:
			c.add("%s was %s and is %s", name, was.Kind, is.Kind)
		default:
			c.definition(was, is)
		}
	}
	return c
}

func (c *changes) definition(was, is *ast.Definition) {
	c.removed(was.Name, "does not implement %s any more", was.Interfaces, is.Interfaces)
	c.removed(was.Name, "does not include %s any more", was.Types, is.Types)
	c.removed(was.Name, "lost the value %s", valueNames(was), valueNames(is))
	for _, f := range was.Fields {
		path := was.Name + "." + f.Name
		present := is.Fields.ForName(f.Name)
		switch {
		case present == nil:
			c.add("%s was removed", path)
		case was.Kind == ast.InputObject:
			c.input(path, f.Type, present.Type, f.DefaultValue, present.DefaultValue)
		default:
			c.output(path, f.Type, present.Type)
			c.arguments(path, f.Arguments, present.Arguments)
		}
	}
	if was.Kind != ast.InputObject {
		return
	}
	for _, f := range is.Fields {
		if was.Fields.ForName(f.Name) == nil && isRequired(f.Type, f.DefaultValue) {
			c.add("%s.%s is new and required", was.Name, f.Name)
		}
	}
}

func (c *changes) arguments(path string, was, is ast.ArgumentDefinitionList) {
	for _, a := range was {
		present := is.ForName(a.Name)
		if present == nil {
			c.add("%s(%s:) was removed", path, a.Name)
			continue
		}
		c.input(fmt.Sprintf("%s(%s:)", path, a.Name), a.Type, present.Type, a.DefaultValue, present.DefaultValue)
	}
	for _, a := range is {
		if was.ForName(a.Name) == nil && isRequired(a.Type, a.DefaultValue) {
			c.add("%s(%s:) is new and required", path, a.Name)
		}
	}
}

func (c *changes) removed(path, format string, was, is []string) {
	for _, name := range was {
		if !slices.Contains(is, name) {
			c.add("%s "+format, path, name)
		}
	}
}

// output lets an answer become stricter: what was never null before was allowed to be.
func (c *changes) output(path string, was, is *ast.Type) {
	if !fits(was, is) {
		c.add("%s was %s and is %s", path, was, is)
	}
}

// input lets a question become laxer: what had to be there may be missing.
func (c *changes) input(path string, was, is *ast.Type, wasDefault, isDefault *ast.Value) {
	if !fits(is, was) {
		c.add("%s was %s and is %s", path, was, is)
	}
	if a, b := text(wasDefault), text(isDefault); a != b {
		c.add("%s had the default %s and has %s", path, a, b)
	}
}

// fits reports whether every value of the strict type is one of the lax type.
func fits(lax, strict *ast.Type) bool {
	if lax.NonNull && !strict.NonNull {
		return false
	}
	if lax.Elem == nil || strict.Elem == nil {
		return lax.NamedType == strict.NamedType && lax.Elem == strict.Elem
	}
	return fits(lax.Elem, strict.Elem)
}

func isRequired(t *ast.Type, value *ast.Value) bool { return t.NonNull && value == nil }

func valueNames(d *ast.Definition) []string {
	names := make([]string, len(d.EnumValues))
	for i, v := range d.EnumValues {
		names[i] = v.Name
	}
	return names
}

func text(v *ast.Value) string {
	if v == nil {
		return "none"
	}
	return v.String()
}
