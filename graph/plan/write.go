package plan

import (
	"context"
	"io"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
)

// Writer takes one value as JSON. What writes to it reports false, and nothing more is written, when the value is not as it should be.
type Writer struct {
	buf     []byte
	ctx     context.Context // of the field whose value is written; only an open selection has it go along
	holes   []hole
	take    func(bytes int) error
	counted int // bytes that were taken
	full    error
}

// hole is a field in an answer that the executor is to fill.
type hole struct {
	from   int // in the Writer's bytes
	ctx    context.Context
	at     *place
	object any
	value  graphql.Marshaler
}

// write writes a value of the field. Whatever goes wrong, a panic included, is the executor's to find and to tell.
func (w *Writer) write(f *Field, s *Selection, v any) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return f.Value(w, s, v) && w.count(1)
}

// count takes what was written from the room of the answer, once it is so much.
func (w *Writer) count(atLeast int) bool {
	n := len(w.buf) - w.counted
	if n < atLeast {
		return true
	}
	w.counted = len(w.buf)
	w.full = w.take(n)
	return w.full == nil
}

// countedAtOnce is how many bytes may be written before they are counted.
const countedAtOnce = 4 << 10

// Object writes what is selected of an object.
func (w *Writer) Object(s *Selection, object any) bool {
	w.buf = append(w.buf, '{')
	for i := range s.fields {
		f := &s.fields[i]
		w.buf = append(w.buf, f.text...)
		switch {
		case f.at == nil:
		case f.at.field.Plain == nil:
			w.holes = append(w.holes, hole{from: len(w.buf), ctx: w.ctx, at: f.at, object: object})
		case !w.plain(f.at, object) || !w.count(countedAtOnce):
			return false
		}
	}
	w.buf = append(w.buf, '}')
	return true
}

func (w *Writer) plain(at *place, object any) bool {
	if !at.below.isOpen() {
		return at.field.Plain(w, at.below, object)
	}
	outer := w.ctx
	w.ctx = graphql.WithFieldContext(outer, &graphql.FieldContext{Object: at.object, Field: at.collected})
	defer func() { w.ctx = outer }()
	return at.field.Plain(w, at.below, object)
}

// List writes the items of a list.
func List[T any](w *Writer, s *Selection, items []T, write func(*Writer, *Selection, T) bool) bool {
	list := w.ctx
	w.buf = append(w.buf, '[')
	for i, item := range items {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		if s.isOpen() {
			w.ctx = graphql.WithFieldContext(list, &graphql.FieldContext{Index: &i}) //nolint:fatcontext // each is of the list's
		}
		if !write(w, s, item) {
			return false
		}
	}
	w.buf = append(w.buf, ']')
	return true
}

// Together lets batch resolvers behind fields of a list's items find what they need for all of them.
func (w *Writer) Together(s *Selection, typeName string, items any) {
	if s.isOpen() {
		w.ctx = graphql.WithBatchParents(w.ctx, typeName, items, nil)
	}
}

// Null writes null where it may be.
func (w *Writer) Null() bool {
	w.buf = append(w.buf, "null"...)
	return true
}

// Int writes a number.
func (w *Writer) Int(i int64) bool {
	w.buf = strconv.AppendInt(w.buf, i, 10)
	return true
}

// Bool writes true or false.
func (w *Writer) Bool(b bool) bool {
	w.buf = strconv.AppendBool(w.buf, b)
	return true
}

// String writes a string with the escapes of the executor.
func (w *Writer) String(s string) bool {
	const hex = "0123456789ABCDEF"
	w.buf = append(w.buf, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		w.buf = append(append(w.buf, s[start:i]...), '\\')
		start = i + 1
		switch c {
		case '\t':
			w.buf = append(w.buf, 't')
		case '\r':
			w.buf = append(w.buf, 'r')
		case '\n':
			w.buf = append(w.buf, 'n')
		case '\\', '"':
			w.buf = append(w.buf, c)
		default:
			w.buf = append(w.buf, 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
	}
	w.buf = append(append(w.buf, s[start:]...), '"')
	return true
}

// Append writes a value that appends itself.
func Append[T interface{ AppendJSON(b []byte) []byte }](w *Writer, v T) bool {
	w.buf = v.AppendJSON(w.buf)
	return true
}

// Marshal writes a value as its marshaler does.
func (w *Writer) Marshal(m graphql.Marshaler) bool {
	m.MarshalGQL(w)
	return true
}

// MarshalContext writes a value whose marshaler can fail.
func (w *Writer) MarshalContext(m graphql.ContextMarshaler) bool {
	return m.MarshalGQLContext(w.ctx, w) == nil
}

// Write is for marshalers.
func (w *Writer) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}

var _ io.Writer = (*Writer)(nil)
