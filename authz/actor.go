package authz

import (
	"context"
	"strings"
	"time"

	"better/compute/audit/journal"
	"better/compute/internal/problem"
)

// Subject is who a binding is for: "user:<sub>", "service:<name>" or "group:<name>". The typed prefix is what keeps a
// user whose name is that of a role or a group from being it.
type Subject = string

const (
	userPrefix    = "user:"
	servicePrefix = "service:"
	groupPrefix   = "group:"
)

const maxSubjectName = 256

// Actor is the authenticated caller. Groups holds whole subjects ("group:<name>"); an entry of any other form counts
// for nothing, so that a group claim "user:root" gives no one root's rights.
type Actor struct {
	Subject    Subject
	Groups     []Subject
	Expires    time.Time // when the credential ends, with what is allowed for its issuer's clock; zero: never
	Credential string    // the id of the API token that the caller came with; empty: another kind of credential
	// Withdrawn is closed when the credential counts no more for another reason: what vouched for it was taken away. Nil: that does not happen.
	Withdrawn <-chan struct{}
}

// subjects are those whose bindings count for the actor.
func (a Actor) subjects() []Subject {
	s := make([]Subject, 1, 1+len(a.Groups))
	s[0] = a.Subject
	for _, g := range a.Groups {
		if strings.HasPrefix(g, groupPrefix) {
			s = append(s, g)
		}
	}
	return s
}

// authenticated reports whether the actor is a caller at all, as far as it tells by itself: a user or a service whose credential has not
// ended. An API token may have been revoked all the same.
func (a Actor) authenticated(now time.Time) bool {
	if !strings.HasPrefix(a.Subject, userPrefix) && !strings.HasPrefix(a.Subject, servicePrefix) {
		return false
	}
	return !a.Ended(now)
}

// Ended reports whether the credential has expired or was withdrawn. It does not tell of an API token that was revoked.
func (a Actor) Ended(now time.Time) bool {
	select {
	case <-a.Withdrawn: // never, when it is nil
		return true
	default:
		return !a.Expires.IsZero() && !now.Before(a.Expires)
	}
}

// question asks for all that decides about the actor.
func (a Actor) question() question { return question{subjects: a.subjects(), credential: a.Credential} }

func authenticatedAt(ctx context.Context, now time.Time) (Actor, error) {
	actor, ok := ActorFrom(ctx)
	if !ok || !actor.authenticated(now) {
		return Actor{}, errUnauthenticated()
	}
	return actor, nil
}

func errUnauthenticated() error {
	return problem.New(problem.Unauthenticated, "This needs a credential that has not expired.")
}

// validSubject holds the form that bindings are made for: printable ASCII without white space, so that no look-alike
// passes for another.
func validSubject(s Subject) bool {
	kind, name, ok := strings.Cut(s, ":")
	if !ok || name == "" || len(name) > maxSubjectName {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	kind += ":"
	return kind == userPrefix || kind == servicePrefix || kind == groupPrefix
}

type (
	actorKey     struct{}
	requestIDKey struct{}
)

// WithActor gives the context its caller. Only authentication calls it.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom finds the caller; false when nobody authenticated.
func ActorFrom(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}

// WithRequestID gives the context the id that audit rows and responses carry.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id of the request, empty outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Caller is what the audit log says of who acts: the subject, the API token with which it came if it is the caller of the context, and the
// request.
func Caller(ctx context.Context, subject Subject) journal.Caller {
	c := journal.Caller{Actor: subject, RequestID: RequestID(ctx)}
	if actor, ok := ActorFrom(ctx); ok && actor.Subject == subject {
		c.APIToken = actor.Credential
	}
	return c
}
