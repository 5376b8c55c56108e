package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"better/compute/authz"
	"better/compute/internal/problem"
)

// presenter turns errors into what a GraphQL client sees: a message, a code of the closed set and the code's details.
// Whatever is not a problem.Error and not a fault of the request is INTERNAL: logged here, once, and not shown.
type presenter struct{ log *slog.Logger }

func (p presenter) present(ctx context.Context, err error) *gqlerror.Error {
	out := &gqlerror.Error{Path: pathOf(ctx)}
	located, hasLocation := errors.AsType[*gqlerror.Error](err)
	if hasLocation {
		if located.Extensions["code"] != nil && located.Err == nil && known(located.Extensions["code"]) {
			return located // presented before
		}
		out.Locations = located.Locations
		if located.Path != nil {
			out.Path = located.Path
		}
	}
	prob := p.problemOf(ctx, err, located, out)
	out.Message = prob.Message
	out.Extensions = map[string]any{"code": string(prob.Code)}
	if len(prob.Details) > 0 {
		out.Extensions["details"] = prob.Details
	}
	return out
}

func (p presenter) problemOf(ctx context.Context, err error, located, out *gqlerror.Error) *problem.Error {
	if prob, ok := errors.AsType[*problem.Error](err); ok && (prob.Code != problem.Internal || prob.Details["requestId"] != nil) {
		return prob // what internal made is logged already
	}
	if located != nil && located.Err == nil {
		return badRequest(located, out)
	}
	if located != nil && len(located.Path) > len(pathOf(ctx)) {
		return badArgument(pathOf(ctx), located, out)
	}
	if prob := problem.From(err); prob.Code != problem.Internal {
		return prob
	}
	return p.internal(ctx, err)
}

// badRequest is what the parser, the validator or the coercion of variables said. Where a variable is at fault only the
// path says which, and that is no path of the response.
func badRequest(located, out *gqlerror.Error) *problem.Error {
	if len(located.Path) < 2 || located.Path[0] != ast.PathName("variable") {
		message := withoutValue(located.Message)
		return problem.New(problem.InvalidInput, "%s", message).With("issues", []problem.Issue{{Path: "", Message: message}})
	}
	out.Path = nil
	var issues problem.Issues
	issues.Add("variables."+located.Path[1:].String(), "%s", withoutValue(located.Message))
	return problem.From(issues.Err())
}

// withoutValue takes out of a message of the parser or the validator what it repeats of the request: it may be a secret that was written in the
// wrong place. The error's location still tells where it stands.
func withoutValue(message string) string {
	if head, _, ok := strings.Cut(message, ", found "); ok {
		return head + "."
	}
	if head, _, ok := strings.Cut(message, " value: "); ok {
		return head + " value."
	}
	if i := strings.LastIndex(message, "\" does not exist in "); i >= 0 {
		return "The value" + message[i+1:]
	}
	if i := strings.LastIndex(message, " is not a valid "); i >= 0 {
		return "The value" + message[i:]
	}
	if kind, _, ok := strings.Cut(message, " \""); ok && strings.HasPrefix(kind, "Unexpected ") {
		return kind + "."
	}
	return message
}

// badArgument is the problem with an argument that its type refused. gqlgen reports the field's path with the argument's
// appended, which is no path of the response: the one goes to the error's path, the other to the issue's.
func badArgument(field ast.Path, located, out *gqlerror.Error) *problem.Error {
	out.Path = field
	at := located.Path[len(field):]
	if len(at) > 1 && at[0] == ast.PathName("input") {
		at = at[1:]
	}
	var issues problem.Issues
	issues.Add(strings.TrimPrefix(at.String(), "."), "%s", located.Err.Error())
	return problem.From(issues.Err())
}

// internal logs err and says only the request id, by which an operator finds it.
func (p presenter) internal(ctx context.Context, err error) *problem.Error {
	id := authz.RequestID(ctx)
	p.log.ErrorContext(ctx, "request failed", "error", err, "requestId", id)
	return problem.New(problem.Internal, "The server failed to handle this request.").With("requestId", id)
}

// recovered is what a panic in a resolver becomes: an error for the presenter, which logs it with the stack.
func (p presenter) recovered(_ context.Context, value any) error {
	return fmt.Errorf("panic: %v\n%s", value, debug.Stack())
}

// recover is deferred in a goroutine of its own, where a panic would end the process.
func (p presenter) recover(ctx context.Context) {
	if value := recover(); value != nil {
		_ = p.internal(ctx, p.recovered(ctx, value)) // it is logged, and there is no one left to tell
	}
}

func known(code any) bool {
	for _, c := range problem.Codes() {
		if string(c) == code {
			return true
		}
	}
	return false
}

// pathOf is the path of the field that ctx belongs to; nil outside of one.
func pathOf(ctx context.Context) ast.Path {
	if graphql.GetFieldContext(ctx) == nil {
		return nil
	}
	return graphql.GetPath(ctx)
}
