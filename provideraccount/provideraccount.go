// Package provideraccount owns the accounts that connect a tenant to a provider, and the clients that speak through them.
//
// It refuses to know what a pool, an instance or a bootstrap does; they hold an account back by their foreign keys. The
// invariant: a config that is stored holds references to secrets and never a secret, and a call to the provider uses
// a client made from the config as it is stored now.
package provideraccount

import (
	"context"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/internal/slots"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
)

// Deps are what the service works with.
type Deps struct {
	DB       *postgres.DB
	Authz    *authz.Decider
	Registry *provider.Registry
	Secrets  *secret.Service
	Cursors  *cursor.Sealer
	Log      *slog.Logger
	// Fault, when not nil, is called with a name between a call to a provider and the write that it leads to. Tests end the process there.
	Fault func(point string)
}

// Service is safe for concurrent use.
type Service struct {
	db       *postgres.DB
	authz    *authz.Decider
	registry *provider.Registry
	cursors  *cursor.Sealer
	clients  *clients
	calls    *slots.Set    // of those that callers of the API wait for
	deadline time.Duration // of each
	fault    func(point string)
}

// New makes the service. Close it when no call is running any more.
func New(d Deps) *Service {
	return &Service{
		db:       d.DB,
		authz:    d.Authz,
		registry: d.Registry,
		cursors:  d.Cursors,
		clients:  newClients(d.DB, d.Registry, d.Secrets, d.Log),
		calls:    newCalls(),
		deadline: callDeadline,
		fault:    d.Fault,
	}
}

func (s *Service) reach(point string) {
	if s.fault != nil {
		s.fault(point)
	}
}

// Close ends the clients.
func (s *Service) Close() { s.clients.close() }

// Providers lists the providers that this server has a driver for, sorted by name, to any caller. UNAUTHENTICATED.
func (s *Service) Providers(ctx context.Context) ([]*model.Provider, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	return s.registry.Providers(), nil
}

// Provider is one of Providers, for an account that the caller was shown; nil when the server has no driver of that name any more.
func (s *Service) Provider(name string) *model.Provider { return s.registry.Provider(name) }

// Manifest finds what a driver says of itself, for other services.
func (s *Service) Manifest(providerName string) (provider.Manifest, bool) {
	return s.registry.Manifest(providerName)
}

// Open gives the client for the account as it is in the row that the caller has read; Unavailable when that is behind. It decides
// nothing, and makes no call to the provider. The client is shared and closes by itself; calls on it after the account was updated
// fail as Unavailable. It is also a Bootstrapper and an Orderer when the driver's is. INVALID_CONFIG when the server has no driver
// for it.
func (s *Service) Open(ctx context.Context, account *model.ProviderAccount) (provider.Client, error) {
	e, err := s.clients.get(ctx, account)
	if err != nil {
		return nil, err
	}
	if isNewer(e.account, account) {
		// A run that believes to be at the older version's project must not order at the newer one's.
		return nil, provider.Errorf(provider.Unavailable, "The account was changed just now.")
	}
	return e.guarded(), nil
}

// Account reads an account for another service that has decided already. NOT_FOUND when the tenant has none of that id.
func (s *Service) Account(ctx context.Context, idb bun.IDB, tenantID, accountID string) (*model.ProviderAccount, error) {
	return selectAccount(ctx, idb, tenantID, accountID)
}

// LockForUse keeps the account from being deleted until tx ends, for another service that is about to refer to it. NOT_FOUND when
// the tenant has none of that id.
func (s *Service) LockForUse(ctx context.Context, tx bun.IDB, tenantID, accountID string) error {
	return lockAccountForUse(ctx, tx, tenantID, accountID)
}

func notFound() error {
	return problem.New(problem.NotFound, "The tenant has no such provider account.")
}
