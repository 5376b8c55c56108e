// Package identity owns who a credential says the caller is: which kind of credential a text is, and what tokens of the OpenID
// Connect issuer are worth.
//
// It refuses to know what anybody may do, transports, and how API tokens are kept. The invariant: a text is judged by one kind of
// credential alone, and one that is refused by it is nobody's.
package identity

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"better/compute/apitoken"
	"better/compute/authz"
	"better/compute/internal/problem"
)

// maxToken is more than any issuer makes, and little enough to look at.
const maxToken = 16 << 10

// Reason is why a credential is nobody's. It is for logs and metrics: callers hear the same for each. It says nothing of what the
// credential holds.
type Reason string

// The reasons.
const (
	TooLarge      Reason = "too large"
	Malformed     Reason = "malformed"
	Unknown       Reason = "unknown"
	Ended         Reason = "ended"
	BadHeader     Reason = "a header that is not allowed"
	OtherIssuer   Reason = "another issuer"
	OtherAudience Reason = "another audience"
	UnknownKey    Reason = "an unknown key"
	BadSignature  Reason = "a signature that does not fit"
	Expired       Reason = "expired"
	NotYet        Reason = "not valid yet"
	BadSubject    Reason = "a subject that cannot be granted anything"
	BadGroups     Reason = "groups that cannot be read, are left out, or are too many"

	otherReason Reason = "other"
	notNow      Reason = "unavailable"
	accepted    Reason = "accepted"
)

// The kinds of credentials.
const (
	apiTokenKind = "api_token"
	openIDKind   = "oidc"
	staticKind   = "static"
)

func (r Reason) Error() string { return string(r) }

// Deps is what an Authenticator needs.
type Deps struct {
	Tokens  *apitoken.Service
	OIDC    *OIDC                                                        // nil: tokens of no issuer are taken
	Static  func(ctx context.Context, token string) (authz.Actor, error) // nil: none
	Metrics prometheus.Registerer
}

// Authenticator tells whose a credential is. Safe for concurrent use.
type Authenticator struct {
	deps    Deps
	results *prometheus.CounterVec
}

// New makes an Authenticator.
func New(d Deps) (*Authenticator, error) {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "compute_authentications_total", Help: "Credentials that were looked at, by kind and by what came of it.",
	}, []string{"kind", "result"})
	if err := d.Metrics.Register(results); err != nil {
		return nil, err
	}
	return &Authenticator{deps: d, results: results}, nil
}

// Run keeps up with the issuer's keys until ctx ends. Call it once.
func (a *Authenticator) Run(ctx context.Context) {
	if a.deps.OIDC != nil {
		a.deps.OIDC.Run(ctx)
	}
}

// Authenticate tells who comes with the token, which kind it is being seen from its form. A Reason, or UNAVAILABLE when it cannot be told
// now.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (authz.Actor, error) {
	kind, judge := a.judge(token)
	actor, err := judge(ctx, token)
	reason := reasonOf(err)
	a.results.WithLabelValues(kind, string(reason)).Inc()
	switch reason {
	case accepted:
		return actor, nil
	case notNow:
		return authz.Actor{}, err
	default:
		return authz.Actor{}, reason
	}
}

func (a *Authenticator) judge(token string) (kind string, judge func(context.Context, string) (authz.Actor, error)) {
	switch {
	case strings.HasPrefix(token, apitoken.Prefix):
		return apiTokenKind, a.deps.Tokens.Authenticate
	case a.deps.OIDC != nil && strings.Count(token, ".") == 2:
		return openIDKind, a.deps.OIDC.Authenticate
	default:
		return staticKind, a.static
	}
}

func (a *Authenticator) static(ctx context.Context, token string) (authz.Actor, error) {
	if a.deps.Static == nil {
		return authz.Actor{}, Unknown
	}
	actor, err := a.deps.Static(ctx, token)
	if err != nil {
		return authz.Actor{}, Unknown
	}
	return actor, nil
}

// reasonOf makes a closed set of what the kinds answer.
func reasonOf(err error) Reason {
	if err == nil {
		return accepted
	}
	if reason, ok := errors.AsType[Reason](err); ok {
		return reason
	}
	switch {
	case problem.Is(err, problem.Unavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return notNow
	case errors.Is(err, apitoken.ErrMalformed):
		return Malformed
	case errors.Is(err, apitoken.ErrUnknown):
		return Unknown
	case errors.Is(err, apitoken.ErrEnded):
		return Ended
	default:
		return otherReason
	}
}
