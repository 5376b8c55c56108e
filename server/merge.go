package server

import (
	"encoding/binary"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// mergeBudget bounds the fields that one document may have looked at by mergeRule: some 5 ms of CPU. Documents within the
// token limit need a small part of it unless they are made to need more.
const mergeBudget = 30_000

// mergeRule replaces the validator's OverlappingFieldsCanBeMerged, which compares every pair of fields: 1,000 equal fields
// cost it 55 ms, and nesting multiplies that. Here fields of one response name are compared with the first of them, since
// being mergeable is an equivalence, and a set of fields that was looked at is not looked at again.
func mergeRule() core.Rule {
	name := rules.OverlappingFieldsCanBeMergedRule.Name
	return core.Rule{Name: name, RuleFunc: func(observers *core.Events, addError core.AddErrFunc) {
		m := merger{budget: mergeBudget, ids: map[*ast.Field]uint32{}}
		observers.OnOperation(func(w *core.Walker, op *ast.OperationDefinition) {
			if m.failed {
				return
			}
			m.schema = w.Schema
			m.fail = func(f *ast.Field, format string, args ...any) {
				m.failed = true
				addError(core.Message(format, args...), core.At(f.Position))
			}
			root := m.collect(nil, op.SelectionSet, map[string]bool{})
			m.seen = map[string]bool{}
			m.each(root, m.sameShape)
			m.seen = map[string]bool{}
			m.each(root, m.sameField)
		})
	}}
}

type merger struct {
	schema *ast.Schema
	budget int
	ids    map[*ast.Field]uint32
	next   uint32
	seen   map[string]bool // sets of fields, by the ids in them
	failed bool
	fail   func(f *ast.Field, format string, args ...any)
}

// collect adds the fields of a selection set to fields, those of its fragments included, each fragment once.
func (m *merger) collect(fields []*ast.Field, set ast.SelectionSet, fragments map[string]bool) []*ast.Field {
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			fields = append(fields, sel)
		case *ast.InlineFragment:
			fields = m.collect(fields, sel.SelectionSet, fragments)
		case *ast.FragmentSpread:
			if sel.Definition != nil && !fragments[sel.Name] {
				fragments[sel.Name] = true
				fields = m.collect(fields, sel.Definition.SelectionSet, fragments)
			}
		}
	}
	return fields
}

// each calls check for the fields of every response name, until something failed or the budget is spent.
func (m *merger) each(fields []*ast.Field, check func([]*ast.Field)) {
	var names []string
	groups := map[string][]*ast.Field{}
	for _, f := range fields {
		if groups[f.Alias] == nil {
			names = append(names, f.Alias)
		}
		groups[f.Alias] = append(groups[f.Alias], f)
	}
	for _, name := range names {
		if m.failed || m.spend(groups[name]) {
			return
		}
		check(groups[name])
	}
}

func (m *merger) spend(group []*ast.Field) (failed bool) {
	m.budget -= len(group)
	if m.budget < 0 {
		m.fail(group[0], "The document selects too many fields of the same names in too many places to be checked.")
	}
	return m.failed
}

// children are the fields below a group, as if it were one field.
func (m *merger) children(group []*ast.Field) []*ast.Field {
	var fields []*ast.Field
	fragments := map[string]bool{}
	for _, f := range group {
		fields = m.collect(fields, f.SelectionSet, fragments)
	}
	return fields
}

// sameShape holds what even fields of different object types must have in common: results of one shape.
func (m *merger) sameShape(group []*ast.Field) {
	if m.visited(group) {
		return
	}
	first := group[0]
	for _, f := range group[1:] {
		if first.Definition == nil || f.Definition == nil {
			return // not in the schema, which another rule reports
		}
		if !m.shapesAgree(first.Definition.Type, f.Definition.Type) {
			m.fail(f, `Fields "%s" conflict because they return conflicting types "%s" and "%s". Use different aliases on the fields to fetch both if this was intentional.`,
				f.Alias, first.Definition.Type, f.Definition.Type)
			return
		}
	}
	m.each(m.children(group), m.sameShape)
}

func (m *merger) shapesAgree(a, b *ast.Type) bool {
	if a.NonNull != b.NonNull || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil {
		return m.shapesAgree(a.Elem, b.Elem)
	}
	if a.NamedType == b.NamedType {
		return true
	}
	da, db := m.schema.Types[a.NamedType], m.schema.Types[b.NamedType]
	return da != nil && db != nil && da.IsCompositeType() && db.IsCompositeType()
}

// sameField holds fields that can apply to one object to be the same field with the same arguments. Those of two
// different object types never apply to one object, so each type is looked at apart, with the abstract ones.
func (m *merger) sameField(group []*ast.Field) {
	var abstract []*ast.Field
	var types []string
	concrete := map[string][]*ast.Field{}
	for _, f := range group {
		if f.ObjectDefinition == nil || f.ObjectDefinition.Kind != ast.Object {
			abstract = append(abstract, f)
			continue
		}
		name := f.ObjectDefinition.Name
		if concrete[name] == nil {
			types = append(types, name)
		}
		concrete[name] = append(concrete[name], f)
	}
	if len(types) == 0 {
		m.oneField(abstract)
	}
	for _, name := range types {
		m.oneField(append(concrete[name], abstract...))
	}
}

func (m *merger) oneField(group []*ast.Field) {
	if m.failed || m.visited(group) || m.spend(group) {
		return
	}
	first := group[0]
	for _, f := range group[1:] {
		if f.Name != first.Name {
			m.fail(f, `Fields "%s" conflict because "%s" and "%s" are different fields. Use different aliases on the fields to fetch both if this was intentional.`,
				f.Alias, first.Name, f.Name)
			return
		}
		if !sameArguments(first.Arguments, f.Arguments) {
			m.fail(f, `Fields "%s" conflict because they have differing arguments. Use different aliases on the fields to fetch both if this was intentional.`, f.Alias)
			return
		}
	}
	m.each(m.children(group), m.sameField)
}

func sameArguments(a, b ast.ArgumentList) bool {
	if len(a) != len(b) {
		return false
	}
	for _, arg := range a {
		other := b.ForName(arg.Name)
		if other == nil || other.Value.String() != arg.Value.String() {
			return false
		}
	}
	return true
}

// visited reports whether this very set was looked at before, and remembers it.
func (m *merger) visited(group []*ast.Field) bool {
	key := make([]byte, 0, 4*len(group))
	for _, f := range group {
		id, known := m.ids[f]
		if !known {
			id = m.next
			m.ids[f] = id
			m.next++
		}
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	if m.seen[string(key)] {
		return true
	}
	m.seen[string(key)] = true
	return false
}
