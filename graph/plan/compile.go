package plan

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// Types are the object types of a schema, by name.
type Types map[string]*Type

// Type is an object type.
type Type struct {
	Satisfies []string // its name, and those of its interfaces
	Fields    map[string]*Field
}

// Field is how to answer a field. Either it is plain data of its object, or a resolver stands behind it.
type Field struct {
	Types     []string // the object types that it can give; none for a leaf
	NonNull   bool
	KeepsNull bool // a null from below can end within its value: an object or a list element there may be null

	// Write writes a value: of plain data the field of the object v, else v, which the resolver found.
	Write func(w *Writer, s *Selection, v any) bool
	// Resolve has the executor answer the field of an object. Nil for plain data.
	Resolve func(executor any, ctx context.Context, field graphql.CollectedField, object any) graphql.Marshaler
	// Found gives the result of a batch resolver for the i-th of its parents. Nil for any other.
	Found func(results any, i int) (value any, ok bool)
}

// Selection is what one place of an operation asks of an object, or of each type that the object there can have.
type Selection struct {
	fields []selected
	cases  map[string]*Selection
	open   bool // a resolver stands behind a field of it, or below
}

// selected is a field of a selection, as it was collected from all places of the document that ask for it.
type selected struct {
	object    string // the type that it is a field of
	key       string // as in the answer, with what stands around it
	literal   string // the value of __typename
	collected graphql.CollectedField
	field     *Field
	below     *Selection
	place     *place // where a resolver stands behind the field
}

// place is where an operation asks for a field that a resolver stands behind. What it asks of the field's value is compiled with the first
// one, since a document can ask for far more than there turns out to be.
type place struct {
	field     *Field
	collected graphql.CollectedField
	compile   sync.Once
	below     *Selection
	refused   bool         // what is asked is the executor's
	size      atomic.Int64 // of the last answer
}

// maxFields is how many fields a place may ask for in all, so that no document of a few bytes becomes a large plan.
const maxFields = 2000

// selection gives what is asked at the place. The operation is one with the conditions under which the place was collected.
func (p *place) selection(types Types, op *graphql.OperationContext) (s *Selection, ok bool) {
	p.compile.Do(func() {
		c := compiler{types: types, op: op, left: maxFields}
		p.below = c.below(p.field, p.collected.Selections)
		p.refused = c.refused
	})
	return p.below, !p.refused
}

type compiler struct {
	types   Types
	op      *graphql.OperationContext
	left    int
	refused bool
}

func (c *compiler) below(f *Field, set ast.SelectionSet) *Selection {
	switch len(f.Types) {
	case 0:
		return nil
	case 1:
		return c.object(f.Types[0], set)
	}
	s := &Selection{cases: make(map[string]*Selection, len(f.Types))}
	for _, name := range f.Types {
		s.cases[name] = c.object(name, set)
		s.open = s.open || s.cases[name].open
	}
	return s
}

// object compiles a selection of an object type. The executor's own function collects the fields, so that aliases, fragments and conditions
// mean here what they mean there.
func (c *compiler) object(name string, set ast.SelectionSet) *Selection {
	s := &Selection{}
	keys := map[string]bool{}
	for _, f := range graphql.CollectFields(c.op, set, c.types[name].Satisfies) {
		c.left--
		if c.left < 0 || keys[f.Alias] || f.IsDeferred() {
			c.refused = true
		}
		if c.refused {
			return s
		}
		keys[f.Alias] = true
		s.add(c.field(name, f))
	}
	return s
}

func (c *compiler) field(typeName string, f graphql.CollectedField) selected {
	out := selected{object: typeName, key: `"` + f.Alias + `":`, collected: f, field: c.types[typeName].Fields[f.Name]}
	switch {
	case f.Name == "__typename":
		out.literal = `"` + typeName + `"`
	case out.field.Resolve != nil:
		out.place = &place{field: out.field, collected: f}
	default:
		out.below = c.below(out.field, f.Selections)
		c.refused = c.refused || out.below.isOpen() && out.field.KeepsNull
	}
	return out
}

func (s *Selection) add(f selected) {
	if len(s.fields) > 0 {
		f.key = "," + f.key
	}
	s.fields = append(s.fields, f)
	s.open = s.open || f.place != nil || f.below.isOpen()
}

func (s *Selection) isOpen() bool { return s != nil && s.open }

// Plans are those of one document, one for each of its operations and each way in which its conditions turn out. They live as long as the
// document is kept, and are safe for concurrent use. The zero value is not usable.
type Plans struct {
	conditions []string // the variables that decide what is skipped and included

	mu    sync.Mutex
	plans map[string]map[*ast.Field]*place
}

// maxPlans is how many plans a document may have. What goes beyond is compiled each time.
const maxPlans = 16

// For gives the plans of a document.
func For(doc *ast.QueryDocument) *Plans {
	p := &Plans{plans: map[string]map[*ast.Field]*place{}}
	seen := map[string]bool{}
	for _, op := range doc.Operations {
		p.findConditions(op.SelectionSet, seen)
	}
	for _, f := range doc.Fragments {
		p.findConditions(f.SelectionSet, seen)
	}
	return p
}

func (p *Plans) findConditions(set ast.SelectionSet, seen map[string]bool) {
	for _, sel := range set {
		var directives ast.DirectiveList
		switch sel := sel.(type) {
		case *ast.Field:
			directives = sel.Directives
			p.findConditions(sel.SelectionSet, seen)
		case *ast.InlineFragment:
			directives = sel.Directives
			p.findConditions(sel.SelectionSet, seen)
		case *ast.FragmentSpread:
			directives = sel.Directives
		}
		for _, d := range directives {
			for _, arg := range d.Arguments {
				if arg.Value.Kind == ast.Variable && !seen[arg.Value.Raw] {
					seen[arg.Value.Raw] = true
					p.conditions = append(p.conditions, arg.Value.Raw)
				}
			}
		}
	}
}

// places finds the fields at the top of an operation, or nothing when its conditions have no answer.
func (p *Plans) places(types Types, op *graphql.OperationContext) map[*ast.Field]*place {
	key, ok := p.key(op)
	root := types[rootOf(op.Operation.Operation)]
	if !ok || root == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if places, ok := p.plans[key]; ok {
		return places
	}
	places := map[*ast.Field]*place{}
	for _, f := range graphql.CollectFields(op, op.Operation.SelectionSet, root.Satisfies) {
		if field := root.Fields[f.Name]; field != nil {
			places[f.Field] = &place{field: field, collected: f}
		}
	}
	if len(p.plans) < maxPlans {
		p.plans[key] = places
	}
	return places
}

// key tells apart what the operations of the document can ask for.
func (p *Plans) key(op *graphql.OperationContext) (key string, ok bool) {
	out := append([]byte(op.Operation.Name), ' ')
	for _, name := range p.conditions {
		value, isBoolean := op.Variables[name].(bool)
		switch {
		case op.Operation.VariableDefinitions.ForName(name) == nil:
			out = append(out, '-')
		case !isBoolean:
			return "", false
		case value:
			out = append(out, '1')
		default:
			out = append(out, '0')
		}
	}
	return string(out), true
}

func rootOf(kind ast.Operation) string {
	switch kind {
	case ast.Query:
		return "Query"
	case ast.Mutation:
		return "Mutation"
	default:
		return "" // the values of a stream are not what its resolver gives
	}
}
