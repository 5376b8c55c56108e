// Package resolvers owns the translation between GraphQL and the services: a resolver reads its arguments, calls one service method
// and wraps the answer.
//
// It refuses to know rules, SQL, authorization and providers. The invariant: a resolver that would need to decide
// something belongs into a service.
package resolvers

import (
	"better/compute/apitoken"
	"better/compute/audit"
	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/host"
	"better/compute/pool"
	"better/compute/provideraccount"
	"better/compute/secret"
)

// Resolver holds the services that fields are answered by.
type Resolver struct {
	Accounts   *provideraccount.Service
	Bootstraps *bootstrap.Service
	Watcher    *bootstrap.Watcher
	Hosts      *host.Service
	Pools      *pool.Service
	Secrets    *secret.Service
	Authz      *authz.Decider
	Tokens     *apitoken.Service
	Audit      *audit.Service
	Version    string // of this server
}
