package server

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"better/compute/model"
)

// room is how many bytes an answer may still have. An operation asks for few objects at most, but for each of their fields as often as it
// has aliases. Nil is room without end.
type room struct{ left atomic.Int64 }

type roomKey struct{}

// withRoom bounds what is executed in the context to so many bytes. Once they are used up no value is taken any more, and the answer is not to be told.
func withRoom(ctx context.Context, bytes int) (context.Context, *room) {
	r := new(room)
	r.left.Store(int64(bytes))
	return context.WithValue(ctx, roomKey{}, r), r
}

func (r *room) take(bytes int) bool { return r == nil || r.left.Add(-int64(bytes)) >= 0 }

func (r *room) exceeded() bool { return r.left.Load() < 0 }

// measure counts what the fields of an answer are worth in bytes. Objects and lists are made of fields.
func measure(ctx context.Context, next graphql.Resolver) (any, error) {
	v, err := next(ctx)
	if err != nil {
		return v, err
	}
	const around = len(`"":"",`)
	r, _ := ctx.Value(roomKey{}).(*room)
	if !r.take(len(graphql.GetFieldContext(ctx).Field.Alias) + around + sizeOf(v)) {
		return nil, errTooLarge
	}
	return v, nil
}

// takeRoom counts what is written by plan.
func takeRoom(ctx context.Context, bytes int) error {
	r, _ := ctx.Value(roomKey{}).(*room)
	if !r.take(bytes) {
		return errTooLarge
	}
	return nil
}

// sizeOf is about how long a scalar is in an answer, as it is written there.
func sizeOf(v any) int {
	const short = 8 // numbers, enums, times, and what is no scalar
	switch v := v.(type) {
	case string:
		return quotedLength(v)
	case *string:
		if v != nil {
			return quotedLength(*v)
		}
	case model.JSON:
		return len(v)
	case []string:
		n := 0
		for _, s := range v {
			n += len(`"",`) + quotedLength(s)
		}
		return n
	}
	return short
}

// quotedLength is how long a text is between its quotes.
func quotedLength(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\t', c == '\r', c == '\n':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// errTooLarge stands in the places of what is not taken any more, in an answer that is not told either.
var errTooLarge = tooMuch("answer_bytes", 0, "The answer is too large.")

// exceptTooLarge keeps errTooLarge, which may stand in a hundred thousand places, from being written down for each.
func exceptTooLarge(present graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		if errors.Is(err, errTooLarge) {
			return nil
		}
		return present(ctx, err)
	}
}

// tooLarge says that instead of the answer.
func (e *engine) tooLarge(kind ast.Operation) error {
	limit := e.config.Limits.AnswerBytes
	if kind == ast.Mutation {
		return tooMuch("answer_bytes", limit, "All was done, but the answer would have more than %d bytes: select less, and send it again with the same idempotency keys.", limit)
	}
	return tooMuch("answer_bytes", limit, "The answer would have more than %d bytes: select less, or read smaller pages.", limit)
}
