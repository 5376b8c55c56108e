package provideraccount

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/internal/serverkey"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
)

const cachedClients = 512

// clients keeps one client for each account, made from the newest row that anybody here has read.
type clients struct {
	db       *postgres.DB
	registry *provider.Registry
	secrets  *secret.Service
	stamps   stamps
	breaker  *breaker
	log      *slog.Logger

	mu      sync.Mutex
	entries *simplelru.LRU[string, *entry] // by account id
	closed  bool
}

func newClients(db *postgres.DB, r *provider.Registry, secrets *secret.Service, log *slog.Logger) *clients {
	stamps := stamps{secrets: secrets, key: serverkey.New(db, "account stamp")}
	c := &clients{db: db, registry: r, secrets: secrets, stamps: stamps, breaker: &breaker{db, stamps, log}, log: log}
	c.entries, _ = simplelru.NewLRU(cachedClients, func(_ string, e *entry) { e.retire() }) // fails only on a size below 1
	return c
}

// get gives the entry for the account's row. A row that was read before another call saw a newer one gets the newer client, since
// a call that begins now uses the config as it is now.
func (c *clients) get(ctx context.Context, a *model.ProviderAccount) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, problem.New(problem.Unavailable, "The server is shutting down.")
	}
	if e, ok := c.entries.Get(a.ID); ok && !isNewer(a, e.account) {
		return e, nil
	}
	client, err := c.open(ctx, a)
	if err != nil {
		return nil, err
	}
	e := &entry{account: a, client: client, breaker: c.breaker, log: c.log}
	c.entries.Remove(a.ID) // an Add over it would not retire it
	c.entries.Add(a.ID, e)
	return e, nil
}

// begin is get for a call that starts right away: when another call has just retired the client, there is a newer one to be had.
func (c *clients) begin(ctx context.Context, a *model.ProviderAccount) (*entry, error) {
	for {
		e, err := c.get(ctx, a)
		if err != nil {
			return nil, err
		}
		if err = e.begin(); !errors.Is(err, errRetired) {
			return e, err
		}
	}
}

// isNewer also looks at the birth: an account that was deleted and made again under the same key has the same id, and starts to count
// its versions anew.
func isNewer(a, than *model.ProviderAccount) bool {
	if !a.CreatedAt.Equal(than.CreatedAt.Time) {
		return a.CreatedAt.After(than.CreatedAt.Time)
	}
	return a.Version > than.Version
}

func (c *clients) open(ctx context.Context, a *model.ProviderAccount) (provider.Client, error) {
	driver, known := c.registry.Lookup(a.Provider)
	if !known {
		return nil, noDriver(a.Provider)
	}
	account := provider.Account{
		ID:     a.ID,
		Config: bytes.Clone(a.Config),
		Secret: func(ctx context.Context, reference string) (string, error) {
			value, err := c.secrets.Resolve(ctx, a.TenantID, reference)
			if err != nil {
				return "", err
			}
			if err := c.stamps.keeps(ctx, c.db.DB, a, resolved{reference, value}); err != nil {
				return "", err
			}
			return value.Reveal(), nil
		},
	}
	if m, _ := c.registry.Manifest(a.Provider); m.Capabilities.ClaimMode == model.ClaimLocal {
		account.Inventory = &inventory{db: c.db, accountID: a.ID}
	}
	client, err := driver.Open(ctx, account)
	if err != nil {
		return nil, provider.Problem(a.Provider, err)
	}
	return client, nil
}

func (c *clients) drop(accountID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(accountID)
}

func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.entries.Purge()
}

// entry is the client of one version of an account. It closes when it is retired and its last call has ended.
type entry struct {
	account *model.ProviderAccount
	client  provider.Client
	breaker *breaker
	log     *slog.Logger

	mu      sync.Mutex
	calls   int
	retired bool
}

var errRetired error = provider.Errorf(provider.Unavailable, "The account was changed while it was in use; try again.")

// begin keeps the client open until end.
func (e *entry) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired {
		return errRetired
	}
	e.calls++
	return nil
}

// end takes the error of a call that was made at the stamp; without one nothing is learnt of it.
func (e *entry) end(ctx context.Context, stamp string, err error) {
	if stamp != "" {
		e.breaker.learn(ctx, e.account, stamp, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls--
	e.closeIfDone()
}

func (e *entry) retire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retired = true
	e.closeIfDone()
}

func (e *entry) closeIfDone() {
	if !e.retired || e.calls > 0 {
		return
	}
	if err := e.client.Close(); err != nil {
		e.log.Warn("closing a provider client", "provider", e.account.Provider, "account", e.account.ID, "error", err)
	}
}
