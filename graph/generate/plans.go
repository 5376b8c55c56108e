package main

import (
	_ "embed"
	"fmt"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/codegen"
	"github.com/99designs/gqlgen/codegen/config"
	"github.com/99designs/gqlgen/codegen/templates"
)

//go:embed plans.gotpl
var plansTemplate string

// plans is a plugin of gqlgen that writes, for each object type, how its fields are answered by plan, and for each Go type of a field how a value is
// written. The writers mirror the executor's own, see type.gotpl of gqlgen.
type plans struct{}

// Name is for gqlgen's messages.
func (plans) Name() string { return "plans" }

// GenerateCode writes the file.
func (plans) GenerateCode(data *codegen.Data) error {
	t := &tables{data: data, writers: map[string]*writer{}}
	for _, o := range data.Objects {
		if o.IsReserved() || o.Stream {
			continue
		}
		known, err := t.object(o)
		if err != nil {
			return err
		}
		t.Objects = append(t.Objects, known)
	}
	return templates.Render(templates.Options{
		PackageName:     data.Config.Exec.Package,
		Filename:        filepath.Join(data.Config.Exec.Dir(), "plans.generated.go"),
		Template:        plansTemplate,
		GeneratedHeader: true,
		Data:            t,
		Packages:        data.Config.Packages,
		PruneOptions:    data.Config.GetPruneOptions(),
	})
}

// tables are what the template tells.
type tables struct {
	Objects []*object
	data    *codegen.Data
	writers map[string]*writer
}

type object struct {
	*codegen.Object
	Fields []*field
}

type field struct {
	*codegen.Field
	Plain  bool
	Writer *writer // none for interfaces and unions
}

// object takes in an object type and the types of its fields.
func (t *tables) object(o *codegen.Object) (*object, error) {
	out := &object{Object: o}
	for _, f := range o.Fields {
		if strings.HasPrefix(f.Name, "__") {
			continue
		}
		known := &field{Field: f}
		if !f.TypeReference.Definition.IsAbstractType() {
			w, err := t.writer(f.TypeReference)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", o.Name, f.Name, err)
			}
			known.Writer = w
			known.Plain = !o.Root && isPlain(f)
		}
		out.Fields = append(out.Fields, known)
	}
	return out, nil
}

// isPlain reports whether a field is read from its object and cannot fail.
func isPlain(f *codegen.Field) bool {
	simple := f.IsVariable() || f.IsMethod() && f.NoErr && !f.MethodHasContext && !f.VOkFunc
	return simple && !f.IsResolver && !f.HasHaser && !f.HasDirectives() && len(f.Args) == 0
}

// Composite is the type of the objects that the field gives; empty for a leaf.
func (f *field) Composite() string {
	if f.TypeReference.Definition.IsLeafType() {
		return ""
	}
	return f.TypeReference.Definition.Name
}

// KeepsNull reports whether a null from below can end within the field's value: what a resolver gives may be null itself, and is then
// answered as a whole.
func (f *field) KeepsNull() bool {
	t := f.TypeReference.GQL
	if !f.Plain {
		t = t.Elem
	}
	for ; t != nil; t = t.Elem {
		if !t.NonNull {
			return true
		}
	}
	return false
}

// writer is a function that writes values of one Go type as one GraphQL type has them.
type writer struct {
	*config.TypeReference
	Elem    *writer
	Batched bool // items of a list have fields that are resolved for all of them at once
}

// Writers are the functions, sorted by name.
func (t *tables) Writers() []*writer {
	var all []*writer
	for _, name := range slices.Sorted(maps.Keys(t.writers)) {
		all = append(all, t.writers[name])
	}
	return all
}

func (t *tables) writer(ref *config.TypeReference) (*writer, error) {
	w := &writer{TypeReference: ref}
	if known := t.writers[w.Name()]; known != nil {
		return known, nil
	}
	if ref.IsPtrToSlice() || ref.IsPtrToIntf() || ref.IsPtrToPtr() || ref.IsMap() || ref.IsOmittable {
		return nil, fmt.Errorf("there is no writer for %s as %s", ref.GO, ref.GQL)
	}
	t.writers[w.Name()] = w
	if !w.IsSlice() {
		return w, nil
	}
	var err error
	w.Elem, err = t.writer(ref.Elem())
	w.Batched = ref.Elem().IsPtr() && t.data.HasBatchFields(ref.Definition.Name)
	return w, err
}

// Name is that of the executor's function, with another verb.
func (w *writer) Name() string { return "write" + strings.TrimPrefix(w.MarshalFunc(), "marshal") }

// Value is the value itself, where v may point to it.
func (w *writer) Value() string {
	if w.IsPtr() && !w.IsTargetNilable() {
		return "*v"
	}
	return "v"
}

// Pointer points to the object v.
func (w *writer) Pointer() string {
	if w.IsNilable() {
		return "v"
	}
	return "&v"
}

// Appends reports whether a value appends itself.
func (w *writer) Appends() bool {
	found, _, _ := types.LookupFieldOrMethod(w.Target, false, nil, "AppendJSON")
	_, isMethod := found.(*types.Func)
	return isMethod
}

// Method is what writes the executor's own scalars; empty for any other.
func (w *writer) Method() string {
	switch w.Marshaler.FullName() {
	case "github.com/99designs/gqlgen/graphql.MarshalString", "github.com/99designs/gqlgen/graphql.MarshalID":
		return "String"
	case "github.com/99designs/gqlgen/graphql.MarshalInt", "github.com/99designs/gqlgen/graphql.MarshalInt64":
		return "Int"
	case "github.com/99designs/gqlgen/graphql.MarshalBoolean":
		return "Bool"
	}
	return ""
}
