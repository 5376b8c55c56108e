// Package problem owns the one error type that callers of the API can act on.
//
// It knows the closed set of codes, their HTTP statuses and how details are attached. It refuses to know any noun,
// transport or database. The invariant: an error that carries no Code is INTERNAL, and what it says is never
// shown to a caller.
package problem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// Code is one of the closed set of error codes, the same on REST, GraphQL and the command line.
type Code string

// The closed set of codes.
const (
	Unauthenticated Code = "UNAUTHENTICATED"
	Forbidden       Code = "FORBIDDEN"
	InvalidInput    Code = "INVALID_INPUT"
	NotFound        Code = "NOT_FOUND"
	Conflict        Code = "CONFLICT"
	InvalidState    Code = "INVALID_STATE"
	InvalidConfig   Code = "INVALID_CONFIG"
	Unsupported     Code = "UNSUPPORTED"
	ProviderError   Code = "PROVIDER_ERROR"
	RateLimited     Code = "RATE_LIMITED"
	PayloadTooLarge Code = "PAYLOAD_TOO_LARGE"
	Unavailable     Code = "UNAVAILABLE"
	Internal        Code = "INTERNAL"
)

// Codes lists every code, in the order of the documentation.
func Codes() []Code {
	return []Code{
		Unauthenticated, Forbidden, InvalidInput, NotFound, Conflict, InvalidState, InvalidConfig,
		Unsupported, ProviderError, RateLimited, PayloadTooLarge, Unavailable, Internal,
	}
}

// HTTPStatus is the status that a response with this code carries.
func (c Code) HTTPStatus() int {
	switch c {
	case Unauthenticated:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case InvalidInput:
		return http.StatusBadRequest
	case NotFound:
		return http.StatusNotFound
	case Conflict, InvalidState:
		return http.StatusConflict
	case InvalidConfig:
		return http.StatusNotImplemented
	case Unsupported:
		return http.StatusUnprocessableEntity
	case ProviderError:
		return http.StatusBadGateway
	case RateLimited:
		return http.StatusTooManyRequests
	case PayloadTooLarge:
		return http.StatusRequestEntityTooLarge
	case Unavailable:
		return http.StatusServiceUnavailable
	case Internal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// Error is a failure that the caller can act on. Message is a full sentence fit for people; Details is a JSON
// object whose keys the code defines. Neither ever holds a secret or a provider's raw answer.
type Error struct {
	Code    Code
	Message string
	Details map[string]any
	cause   error
}

// Error is the text for logs: it has the cause, which Message does not show.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// New makes an Error with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy that carries one more detail.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	if c.Details == nil {
		c.Details = map[string]any{}
	}
	c.Details[key] = value
	return &c
}

// Because returns a copy that keeps err for the log and for errors.Is, and never shows it to the caller.
func (e *Error) Because(err error) *Error {
	c := *e
	c.cause = err
	return &c
}

// From finds the Error that err carries. The end of a context, which is that of a call's time or of its caller's patience, is
// UNAVAILABLE; anything else becomes INTERNAL with err as its cause. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return New(Unavailable, "The operation did not finish within its time limit.").Because(err)
	}
	if errors.Is(err, context.Canceled) {
		return New(Unavailable, "The operation was cancelled.").Because(err)
	}
	return New(Internal, "The server failed to handle this request.").Because(err)
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Issue is one broken rule of an input. Path is dotted from the input's root ("query.minGpus"), or a JSON pointer from
// the config's root ("/apiToken") for what a manifest refused.
type Issue struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Issues gathers everything that is wrong with one input, so that the caller hears it all at once.
type Issues []Issue

// Add appends an issue.
func (i *Issues) Add(path, format string, args ...any) {
	*i = append(*i, Issue{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Err is INVALID_INPUT with every issue in details.issues, or nil when there is none.
func (i Issues) Err() error {
	if len(i) == 0 {
		return nil
	}
	if len(i) == 1 && i[0].Path == "" {
		return New(InvalidInput, "%s", sentence(i[0].Message)).With("issues", []Issue(i))
	}
	if len(i) == 1 {
		return New(InvalidInput, "%s: %s", i[0].Path, i[0].Message).With("issues", []Issue(i))
	}
	return New(InvalidInput, "The input breaks %d rules; details.issues lists them.", len(i)).With("issues", []Issue(i))
}

// sentence makes one of a message that says what the whole input must be; a message that is one already stays.
func sentence(message string) string {
	if strings.HasSuffix(message, ".") {
		return message
	}
	return "The input " + message + "."
}
