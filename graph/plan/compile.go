package plan

import (
	"context"
	"strconv"
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

// Field is how to answer a field. Either it is plain data of its object, and has Plain, or a resolver stands behind it, and it has the rest.
type Field struct {
	Type      string // of the objects that it gives; empty for a leaf
	NonNull   bool
	KeepsNull bool // a null from below can end within its value: an object or a list element there may be null

	// Plain writes the field of an object.
	Plain func(w *Writer, s *Selection, object any) bool
	// Value writes what the resolver found.
	Value func(w *Writer, s *Selection, v any) bool
	// Resolve has the executor answer the field of an object. The fields of an operation itself have none.
	Resolve func(executor any, ctx context.Context, field graphql.CollectedField, object any) graphql.Marshaler
	// Found gives the result of a batch resolver for the i-th of its parents. Other resolvers have none.
	Found func(results any, i int) (value any, ok bool)
}

// Selection is what an operation asks of an object.
type Selection struct {
	fields []selected
	open   bool // a resolver stands behind a field of it, or below
}

// selected is a field of a selection: its key, with what stands around it, and its place. __typename has no place, and its value behind the key.
type selected struct {
	text string
	at   *place
}

// place is where an operation asks for a field, as it was collected from all over the document.
type place struct {
	object    string // the type that it is a field of
	field     *Field
	collected graphql.CollectedField
	below     *Selection   // of a leaf nil
	compiled  sync.Once    // below, where a resolver stands behind the field: a document can ask for far more than there turns out to be
	refused   bool         // what is asked below is the executor's
	size      atomic.Int64 // of the last value
}

func (s *Selection) isOpen() bool { return s != nil && s.open }

// Plans are those of one document, one for each of its operations and each way in which its conditions turn out. They are safe for concurrent
// use, and live as long as the document is kept. The zero value is ready to use.
type Plans struct {
	fields atomic.Int64 // of all plans
	mu     sync.Mutex
	tops   map[string]map[*ast.Field]*place
}

// maxFields is how many fields the plans of one document may have in all, since few bytes can ask for many. What goes beyond is the executor's.
const maxFields = 1000

func (p *Plans) take(fields int) bool { return p.fields.Add(int64(fields)) <= maxFields }

// top gives the places of the fields at the top of an operation. There are none when the operation is the executor's.
func (p *Plans) top(types Types, op *graphql.OperationContext) map[*ast.Field]*place {
	root := map[ast.Operation]string{ast.Query: "Query", ast.Mutation: "Mutation"}[op.Operation.Operation] // a stream gives something else than its values
	key, ok := keyOf(op)
	if !ok || types[root] == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if top, ok := p.tops[key]; ok {
		return top
	}
	collected := graphql.CollectFields(op, op.Operation.SelectionSet, types[root].Satisfies)
	if !p.take(1 + len(collected)) {
		return nil
	}
	top := map[*ast.Field]*place{}
	for _, f := range collected {
		if field := types[root].Fields[f.Name]; field != nil {
			top[f.Field] = &place{object: root, field: field, collected: f}
		}
	}
	if p.tops == nil {
		p.tops = map[string]map[*ast.Field]*place{}
	}
	p.tops[key] = top
	return top
}

// keyOf tells apart what the operations of a document can ask for, which depends on their conditions alone: those are Boolean variables. Without a
// value of one, which no condition goes without, there is no key.
func keyOf(op *graphql.OperationContext) (key string, ok bool) {
	out := append([]byte(op.Operation.Name), ' ')
	for _, v := range op.Operation.VariableDefinitions {
		if v.Type.NamedType != "Boolean" {
			continue
		}
		value, ok := op.Variables[v.Variable].(bool)
		if !ok {
			return "", false
		}
		out = strconv.AppendBool(out, value)
	}
	return string(out), true
}

// compiler compiles what is asked at one place, in an operation whose conditions are those under which the place was collected.
type compiler struct {
	types   Types
	plans   *Plans
	op      *graphql.OperationContext
	refused bool
}

// below compiles what is asked of what a field gives.
func (c *compiler) below(f *Field, set ast.SelectionSet) *Selection {
	if f.Type == "" {
		return nil
	}
	s := &Selection{}
	of, ok := c.types[f.Type]
	if !ok { // an interface
		c.refused = true
		return s
	}
	// The executor's own function, so that aliases, fragments and conditions mean here what they mean there.
	collected := graphql.CollectFields(c.op, set, of.Satisfies)
	c.refused = c.refused || !c.plans.take(len(collected))
	keys := map[string]bool{}
	for _, field := range collected {
		c.refused = c.refused || keys[field.Alias] || field.IsDeferred()
		if c.refused {
			return s
		}
		keys[field.Alias] = true
		s.add(c.field(f.Type, field))
	}
	c.refused = c.refused || s.open && f.KeepsNull
	return s
}

func (c *compiler) field(object string, f graphql.CollectedField) selected {
	if f.Name == "__typename" {
		return selected{text: `"` + f.Alias + `":"` + object + `"`}
	}
	at := &place{object: object, field: c.types[object].Fields[f.Name], collected: f}
	if at.field.Plain != nil {
		at.below = c.below(at.field, f.Selections)
	}
	return selected{text: `"` + f.Alias + `":`, at: at}
}

func (s *Selection) add(f selected) {
	if len(s.fields) > 0 {
		f.text = "," + f.text
	}
	s.fields = append(s.fields, f)
	s.open = s.open || f.at != nil && (f.at.field.Plain == nil || f.at.below.isOpen())
}
