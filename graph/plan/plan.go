// Package plan answers what an operation asks of plain data in one go, where the executor has a context and a closure for each value, and
// a goroutine for each item of a list. What is asked is compiled once per document into a list of fields; then a loop appends the fields of each
// object as JSON.
//
// It knows no type of the schema: the tables of types are generated. A field that a resolver stands behind is the executor's, which is
// called for that field alone, and so are interfaces.
//
// The invariant: an answer has the very bytes and errors that the executor gives by itself. So nothing that is out of order is decided here: a null
// where none may be, a value that cannot be written or a panic hands the whole value to the executor, which comes upon the same and says
// so. That is seen before any resolver is called for a field below.
package plan

import (
	"context"
	"io"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// run is an operation that is answered by plan.
type run struct {
	plans    *Plans
	types    Types
	executor any
	op       *graphql.OperationContext
	top      map[*ast.Field]*place
	take     Take
}

// Take takes bytes from what an answer may have, or gives some back. An error ends the answer.
type Take func(ctx context.Context, bytes int) error

// Use makes the values that resolvers of the operation give be answered by plan. It comes after all that goes around a resolver, as resolvers
// below are called once that is done. The executor is the one that Field.Resolve wants. Nil plans leave everything to it.
func (p *Plans) Use(types Types, executor any, op *graphql.OperationContext, take Take) {
	if p == nil {
		return
	}
	top := p.top(types, op)
	if top == nil {
		return
	}
	r := &run{plans: p, types: types, executor: executor, op: op, top: top, take: take}
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		value, err := inner(ctx, next)
		if err != nil || value == nil {
			return value, err
		}
		at := r.placeOf(ctx)
		if at == nil {
			return value, nil
		}
		return r.answer(ctx, at, value)
	}
}

type placeKey struct{}

// placeOf is the place of the field of the context, if it is one where the plan goes on.
func (r *run) placeOf(ctx context.Context) *place {
	field := graphql.GetFieldContext(ctx)
	if !field.IsResolver {
		return nil
	}
	if at, ok := ctx.Value(placeKey{}).(*place); ok && at.collected.Field == field.Field.Field {
		return at
	}
	return r.top[field.Field.Field]
}

// selection gives what is asked of what the resolver at the place finds, unless that is the executor's.
func (r *run) selection(at *place) (s *Selection, ok bool) {
	at.compiled.Do(func() {
		c := compiler{plans: r.plans, types: r.types, op: r.op}
		at.below = c.below(at.field, at.collected.Selections)
		at.refused = c.refused
	})
	return at.below, !at.refused
}

// answer gives the value as a marshaler, or as it is where the executor must see to it.
func (r *run) answer(ctx context.Context, at *place, value any) (any, error) {
	s, ok := r.selection(at)
	if !ok {
		return value, nil
	}
	w := r.writer(ctx, int(at.size.Load()))
	if !w.write(at.field, s, value) {
		if w.full != nil {
			return nil, w.full
		}
		return value, r.take(ctx, -w.counted)
	}
	at.size.Store(int64(min(len(w.buf), maxSize)))
	r.fill(w.holes)
	for _, h := range w.holes {
		if h.at.field.NonNull && h.value == graphql.Null { // then so is all up to here, or there would be no hole
			return graphql.Null, nil
		}
	}
	return &answer{w.buf, w.holes}, nil
}

// maxSize is how large a buffer is made for what was as large the last time.
const maxSize = 64 << 10

func (r *run) writer(ctx context.Context, size int) *Writer {
	return &Writer{buf: make([]byte, 0, size), ctx: ctx, take: func(bytes int) error { return r.take(ctx, bytes) }}
}

// answer is a value that is written but for its holes, whose values stand beside.
type answer struct {
	written []byte
	holes   []hole
}

// MarshalGQL writes all of it.
func (a *answer) MarshalGQL(w io.Writer) {
	from := 0
	for _, h := range a.holes {
		_, _ = w.Write(a.written[from:h.from]) // the executor's buffer takes all
		h.value.MarshalGQL(w)
		from = h.from
	}
	_, _ = w.Write(a.written[from:])
}

// fill has the executor fill the holes, all at the same time; but those of one batch whose values are plain data are one piece of work.
func (r *run) fill(holes []hole) {
	var work sync.WaitGroup
	defer work.Wait()
	batches := map[batch][]*hole{}
	var order []batch
	for i := range holes {
		h := &holes[i]
		b := r.batchOf(h)
		if batches[b] == nil {
			order = append(order, b)
		}
		batches[b] = append(batches[b], h)
	}
	for i, b := range order {
		if i < len(order)-1 {
			work.Go(func() { r.together(b, batches[b]) })
			continue
		}
		r.together(b, batches[b]) // the last one needs no goroutine
	}
}

// batch is what the holes have in common that one call of a resolver fills; alone is the only one of any other hole.
type batch struct {
	at      *place
	parents *graphql.BatchParentGroup
	alone   *hole
}

func (r *run) batchOf(h *hole) batch {
	parents := graphql.GetBatchParentGroup(h.ctx, h.at.object)
	isItem := graphql.GetFieldContext(h.ctx).Index != nil // else the parents are of a list further up
	s, ok := r.selection(h.at)
	if h.at.field.Found == nil || parents == nil || !isItem || !ok || s.isOpen() {
		return batch{alone: h}
	}
	return batch{at: h.at, parents: parents}
}

// together fills the holes of a batch. The executor calls the resolver when it fills the first; that it did is sure once it has filled one with
// more than null. The others are filled from what was found for all on that occasion.
func (r *run) together(b batch, holes []*hole) {
	called := false
	for !called && len(holes) > 0 {
		r.resolve(holes[0])
		called = holes[0].value != graphql.Null
		holes = holes[1:]
	}
	if len(holes) == 0 {
		return
	}
	found := b.parents.GetFieldResult(b.at.collected.Alias, func() (any, error) { return nil, nil })
	w := r.writer(holes[0].ctx, len(holes)*int(b.at.size.Load()))
	for _, h := range holes {
		r.fillFrom(found, w, h)
	}
}

// fillFrom fills a hole from what a batch resolver found, where there is nothing out of order.
func (r *run) fillFrom(found *graphql.BatchFieldResult, w *Writer, h *hole) {
	from := len(w.buf)
	value, ok := h.at.field.Found(found.Results, *graphql.GetFieldContext(h.ctx).Index)
	if !ok || found.Err != nil || !w.write(h.at.field, h.at.below, value) {
		w.buf = w.buf[:from]
		r.resolve(h)
		return
	}
	h.value = &answer{written: w.buf[from:]}
}

func (r *run) resolve(h *hole) {
	ctx := context.WithValue(h.ctx, placeKey{}, h.at)
	h.value = h.at.field.Resolve(r.executor, ctx, h.at.collected, h.object)
}

// Found is the Field.Found of a batch resolver that gives values of the type.
func Found[T any](results any, i int) (any, bool) {
	all, ok := results.([]T)
	if !ok || i >= len(all) {
		return nil, false
	}
	return all[i], true
}
