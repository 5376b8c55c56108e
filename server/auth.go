package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"better/compute/authz"
	"better/compute/internal/problem"
)

// Authenticator tells whose credential a token is. Any error means nobody's, and is logged and not shown to the caller, so it must say
// nothing of the token; a problem.Error with the code UNAVAILABLE says that it cannot be told now.
type Authenticator func(ctx context.Context, token string) (authz.Actor, error)

// StaticToken is a credential from the configuration.
type StaticToken struct {
	Token   string
	Subject authz.Subject
	Groups  []authz.Subject
}

var errUnknownToken = errors.New("unknown token")

// StaticTokens authenticates by a fixed list. Only hashes are kept, and looking one up takes no longer for a token that
// begins like a real one.
func StaticTokens(tokens []StaticToken) Authenticator {
	actors := map[[sha256.Size]byte]authz.Actor{}
	for _, t := range tokens {
		actors[sha256.Sum256([]byte(t.Token))] = authz.Actor{Subject: t.Subject, Groups: t.Groups}
	}
	return func(_ context.Context, token string) (authz.Actor, error) {
		actor, ok := actors[sha256.Sum256([]byte(token))]
		if !ok || token == "" {
			return authz.Actor{}, errUnknownToken
		}
		return actor, nil
	}
}

// authenticate gives the caller of a token, or UNAUTHENTICATED, the same for every reason.
func (s *Server) authenticate(ctx context.Context, token string) (authz.Actor, error) {
	refused := problem.New(problem.Unauthenticated, "A valid credential is required: send it as `Authorization: Bearer <token>`.")
	if token == "" {
		return authz.Actor{}, refused
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Limits.OperationTime)
	defer cancel()
	actor, err := s.deps.Authenticate(ctx, token)
	if problem.Is(err, problem.Unavailable) {
		return authz.Actor{}, err
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelInfo, "a credential was refused", slog.String("reason", err.Error()), slog.String("requestId", authz.RequestID(ctx)))
		return authz.Actor{}, refused.Because(err)
	}
	if actor.Ended(s.now()) {
		return authz.Actor{}, refused
	}
	return actor, nil
}

// requireActor lets only authenticated requests through, with their actor in the context.
func (s *Server) requireActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUpgrade(r) {
			next.ServeHTTP(w, r) // authenticated by its first message
			return
		}
		actor, err := s.authenticate(r.Context(), bearer(r.Header.Get("Authorization"), false))
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		requestOf(r.Context()).subject = actor.Subject
		next.ServeHTTP(w, r.WithContext(authz.WithActor(r.Context(), actor)))
	})
}

// bearer takes the token out of an Authorization value; bare says whether the scheme may be left out.
func bearer(value string, bare bool) string {
	scheme, token, ok := strings.Cut(strings.TrimSpace(value), " ")
	if ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	if bare && !ok {
		return scheme
	}
	return ""
}

// credentialParameters are query parameters that people put tokens into.
var credentialParameters = []string{"access_token", "authorization", "token", "api_key", "apikey"}

// refuseQueryTokens refuses a credential in the query string, where proxies and browsers would keep it.
func (s *Server) refuseQueryTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			for name := range r.URL.Query() {
				for _, refused := range credentialParameters {
					if strings.EqualFold(name, refused) {
						s.refuse(w, r, problem.New(problem.Unauthenticated, "A credential in the query string is not accepted: send it in the Authorization header."))
						return
					}
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
