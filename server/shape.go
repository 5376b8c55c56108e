package server

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/internal/problem"
)

// tooMuch is the refusal of an operation that is over a limit. The rule names the limit for the caller and for metrics.
func tooMuch(rule string, limit int, format string, args ...any) *problem.Error {
	return problem.New(problem.InvalidInput, format, args...).With("rule", rule).With("limit", limit)
}

// checkShape holds a parsed document to the limits that need no schema, before validation, which is dearer. Fragments may
// still be missing or cyclic here, so each is looked at once and a cycle ends the walk; validation reports it.
func checkShape(doc *ast.QueryDocument, limits Limits, introspection bool) error {
	s := shape{
		fragments:     map[string]*ast.FragmentDefinition{},
		depths:        map[string]int{},
		introspected:  map[string]bool{},
		introspection: introspection,
	}
	for _, f := range doc.Fragments {
		s.fragments[f.Name] = f
	}
	for _, f := range doc.Fragments {
		s.fragmentDepth(f.Name) // unused ones too: they are validated all the same
	}
	for _, op := range doc.Operations {
		if n := s.rootFields(op.SelectionSet, map[string]bool{}); n > limits.RootFields {
			return tooMuch("root_fields", limits.RootFields, "An operation selects %d root fields; at most %d are allowed.", n, limits.RootFields)
		}
		if op.Operation == ast.Subscription && !s.hasOneEvent(op) {
			return problem.New(problem.InvalidInput, "A subscription selects exactly one field at its top, without @skip and @include there.")
		}
		if d := s.depth(op.SelectionSet); d > limits.Depth {
			return tooMuch("depth", limits.Depth, "The operation nests %d levels deep; at most %d are allowed.", d, limits.Depth)
		}
	}
	if s.aliases > limits.Aliases {
		return tooMuch("aliases", limits.Aliases, "The document has %d aliases; at most %d are allowed.", s.aliases, limits.Aliases)
	}
	return s.refused
}

type shape struct {
	fragments     map[string]*ast.FragmentDefinition
	depths        map[string]int  // by fragment
	introspected  map[string]bool // fragments that were checked as part of introspection
	introspection bool
	aliases       int
	refused       error
}

func (s *shape) rootFields(set ast.SelectionSet, seen map[string]bool) int {
	n := 0
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			n++
		case *ast.InlineFragment:
			n += s.rootFields(sel.SelectionSet, seen)
		case *ast.FragmentSpread:
			if f := s.fragments[sel.Name]; f != nil && !seen[sel.Name] {
				seen[sel.Name] = true
				n += s.rootFields(f.SelectionSet, seen)
			}
		}
	}
	return n
}

// hasOneEvent reports whether each response of a subscription is that of one field. The validator's rule takes what has one name and several aliases
// for one field, and passes over what may be skipped: the executor can do nothing with either.
//
// https://spec.graphql.org/September2025/#sec-Single-root-field
func (s *shape) hasOneEvent(op *ast.OperationDefinition) bool {
	keys := map[string]bool{}
	return s.responseKeys(op.SelectionSet, keys, map[string]bool{}) && len(keys) == 1
}

// responseKeys collects those at the top of an operation; false where one depends on a condition.
func (s *shape) responseKeys(set ast.SelectionSet, keys, seen map[string]bool) (unconditional bool) {
	conditional := func(d ast.DirectiveList) bool { return d.ForName("skip") != nil || d.ForName("include") != nil }
	for _, sel := range set {
		var below ast.SelectionSet
		var directives ast.DirectiveList
		switch sel := sel.(type) {
		case *ast.Field:
			keys[sel.Alias], directives = true, sel.Directives
		case *ast.InlineFragment:
			below, directives = sel.SelectionSet, sel.Directives
		case *ast.FragmentSpread:
			directives = sel.Directives
			if f := s.fragments[sel.Name]; f != nil && !seen[sel.Name] {
				seen[sel.Name] = true
				below = f.SelectionSet
			}
		}
		if conditional(directives) || !s.responseKeys(below, keys, seen) {
			return false
		}
	}
	return true
}

func (s *shape) depth(set ast.SelectionSet) int {
	deepest := 0
	for _, sel := range set {
		d := 0
		switch sel := sel.(type) {
		case *ast.Field:
			d = s.fieldDepth(sel)
		case *ast.InlineFragment:
			d = s.depth(sel.SelectionSet)
		case *ast.FragmentSpread:
			d = s.fragmentDepth(sel.Name)
		}
		deepest = max(deepest, d)
	}
	return deepest
}

func (s *shape) fieldDepth(f *ast.Field) int {
	if f.Alias != f.Name {
		s.aliases++
	}
	if f.Name == "__schema" || f.Name == "__type" {
		// The well-known introspection query is deeper than any limit that suits data, and what it returns is bounded by
		// the schema as long as nothing in it is aliased.
		s.checkIntrospection(f.SelectionSet)
		return 1
	}
	if len(f.SelectionSet) == 0 {
		return 1
	}
	return 1 + s.depth(f.SelectionSet)
}

func (s *shape) fragmentDepth(name string) int {
	d, done := s.depths[name]
	f := s.fragments[name]
	if done || f == nil {
		return d
	}
	s.depths[name] = 0 // for a cycle
	if strings.HasPrefix(f.TypeCondition, "__") {
		return 0 // part of introspection, see fieldDepth
	}
	d = s.depth(f.SelectionSet)
	s.depths[name] = d
	return d
}

func (s *shape) checkIntrospection(set ast.SelectionSet) {
	if !s.introspection {
		s.refused = problem.New(problem.InvalidInput, "Introspection is switched off on this server.")
		return
	}
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			if sel.Alias != sel.Name {
				s.refused = problem.New(problem.InvalidInput, "Introspection fields cannot be aliased.")
				return
			}
			s.checkIntrospection(sel.SelectionSet)
		case *ast.InlineFragment:
			s.checkIntrospection(sel.SelectionSet)
		case *ast.FragmentSpread:
			if f := s.fragments[sel.Name]; f != nil && !s.introspected[sel.Name] {
				s.introspected[sel.Name] = true
				s.checkIntrospection(f.SelectionSet)
			}
		}
	}
}
