package provider

import (
	"context"
	"errors"
	"math"
	"strings"
	"unicode"

	"better/compute/internal/problem"
)

// reasons are the words of PROVIDER_ERROR's details.reason. A class that is not here is `unavailable`.
var reasons = map[Class]string{
	Auth:             "credentials",
	Forbidden:        "credentials",
	SSHAuth:          "credentials",
	RateLimited:      "rate_limited",
	OutOfStock:       "out_of_stock",
	Quota:            "quota",
	Payment:          "payment",
	NotFound:         "not_found",
	OfferGone:        "not_found",
	Conflict:         "conflict",
	IdentityChanged:  "conflict",
	SSHHostKey:       "conflict",
	Timeout:          "timeout",
	UnknownOutcome:   "timeout",
	InvalidResponse:  "invalid_response",
	SecretUnresolved: "secret_unresolved",
}

const (
	maxMessage = 500
	maxCode    = 128
)

// Problem says what a failed provider call means to the caller of the API: PROVIDER_ERROR with the details provider, reason, retryable
// and, where known, retryAfterSeconds, providerCode and requestId; UNSUPPORTED for what the provider cannot do. An error that no
// driver has classed shows nothing of its text. A problem, nil and a call that its caller gave up come back as they are.
func Problem(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return err
	}
	e, classed := errors.AsType[*Error](err)
	switch {
	case !classed && errors.Is(err, context.Canceled):
		return err
	case !classed && errors.Is(err, context.DeadlineExceeded):
		e = Errorf(Timeout, "The provider did not answer in time.")
	case !classed:
		e = Errorf(Unavailable, "The provider cannot be reached right now.")
	case e.Class == Unsupported:
		return problem.New(problem.Unsupported, "%s: %s", name, clean(e.Message, maxMessage)).With("provider", name).Because(err)
	}
	reason, ok := reasons[e.Class]
	if !ok {
		reason = "unavailable"
	}
	p := problem.New(problem.ProviderError, "%s: %s", name, clean(e.Message, maxMessage)).
		With("provider", name).With("reason", reason).With("retryable", e.Class.Retryable()).Because(err)
	if e.RetryAfter > 0 {
		p = p.With("retryAfterSeconds", int(math.Ceil(e.RetryAfter.Seconds())))
	}
	if e.Code != "" {
		p = p.With("providerCode", clean(e.Code, maxCode))
	}
	if e.RequestID != "" {
		p = p.With("requestId", clean(e.RequestID, maxCode))
	}
	return p
}

// Clean makes a short text of a provider's safe to show: one line without control or invisible characters.
func Clean(s string) string { return clean(s, maxMessage) }

// clean makes a provider's text safe to show: no control or invisible characters, and not longer than max characters.
func clean(s string, max int) string {
	out := make([]rune, 0, min(len(s), max))
	for _, r := range strings.ToValidUTF8(s, "") {
		if len(out) == max {
			break
		}
		if r == '\t' || r == '\n' {
			r = ' '
		}
		if unicode.IsPrint(r) {
			out = append(out, r)
		}
	}
	return strings.TrimSpace(string(out))
}
