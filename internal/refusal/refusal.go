// Package refusal owns what an error looks like over HTTP outside of GraphQL: its status, its headers and its body.
//
// It refuses to know routes, and logs nothing: who answers decides what the caller is shown. The invariant: one error is answered with the same
// bytes, whichever handler met it.
package refusal

import (
	"encoding/json"
	"net/http"
	"strconv"

	"better/compute/internal/problem"
)

// Write answers with the error, under the status of its code.
func Write(w http.ResponseWriter, p *problem.Error) {
	Headers(w, p)
	WriteStatus(w, p.Code.HTTPStatus(), p)
}

// Headers sets what the error's code brings with it: WWW-Authenticate for UNAUTHENTICATED, Retry-After for RATE_LIMITED.
func Headers(w http.ResponseWriter, p *problem.Error) {
	if p.Code == problem.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if seconds, ok := p.Details["retryAfterSeconds"].(int); ok && p.Code == problem.RateLimited {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
}

// WriteStatus answers with the error under a status that the transport's rules name.
func WriteStatus(w http.ResponseWriter, status int, p *problem.Error) {
	details := p.Details
	if details == nil {
		details = map[string]any{}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]any{"error": map[string]any{"code": p.Code, "message": p.Message, "details": details}}) // the client is gone
}
