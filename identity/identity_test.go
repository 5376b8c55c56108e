package identity

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"better/compute/apitoken"
	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// The form of a credential says which kind judges it, and no other kind is asked then.
func TestEachCredentialIsJudgedByItsKind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens := apitoken.New(apitoken.Deps{DB: db, Authz: decider, Cursors: cursor.NewSealer(db), Log: slog.New(slog.DiscardHandler)})
	made, err := apitoken.Issue(t.Context(), db, "service:test", model.CreateAPITokenInput{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	// The fixed list has each of them, to show that it is not asked.
	signed := key.sign(t, i.claims(nil), nil)
	asked := ""
	static := func(_ context.Context, token string) (authz.Actor, error) {
		asked = token
		if token == "wrong" {
			return authz.Actor{}, errors.New("anything")
		}
		return authz.Actor{Subject: "user:fixed"}, nil
	}
	for name, c := range map[string]struct {
		deps  Deps
		token string
		want  string
		err   error
	}{
		"an API token":             {Deps{OIDC: v.OIDC, Static: static}, made.Token, "service:ci", nil},
		"an API token with a typo": {Deps{OIDC: v.OIDC, Static: static}, made.Token + "0", "", Malformed},
		"an API token with dots":   {Deps{OIDC: v.OIDC, Static: static}, "bct_a.b.c", "", Malformed},
		"of the issuer":            {Deps{OIDC: v.OIDC, Static: static}, signed, "user:ada", nil},
		"three parts":              {Deps{OIDC: v.OIDC, Static: static}, "a.b.c", "", Malformed},
		"no issuer":                {Deps{Static: static}, signed, "user:fixed", nil},
		"fixed":                    {Deps{OIDC: v.OIDC, Static: static}, "fixed", "user:fixed", nil},
		"encrypted":                {Deps{OIDC: v.OIDC}, "a.b.c.d.e", "", Unknown},
		"wrong":                    {Deps{OIDC: v.OIDC, Static: static}, "wrong", "", Unknown},
		"nothing is fixed":         {Deps{}, "fixed", "", Unknown},
	} {
		asked = ""
		registry := prometheus.NewRegistry()
		c.deps.Tokens, c.deps.Metrics = tokens, registry
		a, err := New(c.deps)
		if err != nil {
			t.Fatal(err)
		}
		actor, err := a.Authenticate(t.Context(), c.token)
		if actor.Subject != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", name, actor, err)
		}
		if other := asked != "" && c.want != "user:fixed" && name != "wrong"; other {
			t.Errorf("%s: the fixed list was asked", name)
		}
		if families, err := registry.Gather(); err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
			t.Errorf("%s: %v, %v", name, families, err)
		}
	}
}

// An end that nobody could tell the caller about is no refusal.
func TestWhatCannotBeToldNowIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{problem.New(problem.Unavailable, "x"), context.DeadlineExceeded, context.Canceled} {
		if got := reasonOf(err); got != notNow {
			t.Errorf("%v is %q", err, got)
		}
	}
	if got := reasonOf(errors.New("anything")); got != otherReason {
		t.Errorf("%q", got)
	}
}
