package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"better/compute/identity"
	"better/compute/server"
)

// maxLeeway is how far apart two clocks can be that anybody looks after.
const maxLeeway = 5 * time.Minute

// callers is what finds out who calls.
func (a *app) callers(metrics prometheus.Registerer) (*identity.Authenticator, error) {
	deps := identity.Deps{Tokens: a.tokens, Static: server.StaticTokens(a.config.staticTokens()), Metrics: metrics}
	if o := a.config.Auth.OIDC; o != nil {
		deps.OIDC = identity.NewOIDC(identity.Options{
			Issuer: o.Issuer, Audience: o.Audience, GroupsClaim: o.GroupsClaim, Leeway: o.Leeway, Log: a.log,
		})
	}
	return identity.New(deps)
}

func (c *config) oidcProblems(add func(key, format string, args ...any)) {
	o := c.Auth.OIDC
	if o == nil {
		return
	}
	if err := identity.CheckURL(o.Issuer); err != nil {
		add("auth.oidc.issuer", "%v", err)
	}
	if o.Audience == "" {
		add("auth.oidc.audience", "must not be empty: any token of the issuer would be taken, also those that are meant for others")
	}
	if o.Leeway < 0 || o.Leeway > maxLeeway {
		add("auth.oidc.leeway", "must be 0s to %s, not %s", maxLeeway, o.Leeway)
	}
}

// productionProblems are those that the development server and admin commands do not have.
func (c *config) productionProblems() configError {
	if len(c.Auth.Tokens) == 0 || c.Auth.AllowStaticTokens {
		return nil
	}
	return configError{fmt.Sprintf("auth.tokens: fixed credentials are for development: make API tokens (compute-api token create), or set "+
		"auth.allowStaticTokens: true; there are %d", len(c.Auth.Tokens))}
}
