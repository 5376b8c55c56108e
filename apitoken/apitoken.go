// Package apitoken owns the credentials that administrators make for programs: API tokens.
//
// It refuses to know what a token's subject may do, and whether a token still counts, which package authz decides for every request and
// stream. The invariant: a token is shown once, in the answer that made it; what is stored is its hash, from which nobody gets it back.
package apitoken

import (
	"context"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
)

const (
	idPrefix = "tok"

	cachedTokens = 10_000
	queuedUses   = 1_000

	// How many look-ups of tokens that are not cached run at a time: whoever sends made-up tokens must not take the
	// connections of everybody else.
	lookupsAtOnce = 4
)

// Deps is what a Service needs.
type Deps struct {
	DB      *postgres.DB
	Authz   *authz.Decider
	Cursors *cursor.Sealer
	Log     *slog.Logger
}

// Service makes, lists, revokes and recognises API tokens. Safe for concurrent use.
type Service struct {
	db      *postgres.DB
	authz   *authz.Decider
	cursors *cursor.Sealer
	log     *slog.Logger
	now     func() time.Time

	known   *lru.Cache[hash, facts]
	lookups chan struct{}
	uses    chan string
}

// New makes a Service. Run notes the use of tokens.
func New(d Deps) *Service {
	known, err := lru.New[hash, facts](cachedTokens)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &Service{
		db: d.DB, authz: d.Authz, cursors: d.Cursors, log: d.Log, now: time.Now,
		known: known, lookups: make(chan struct{}, lookupsAtOnce), uses: make(chan string, queuedUses),
	}
}

// everywhere is the scope of what finds out who calls: there is no caller yet whose it could be.
func everywhere(ctx context.Context) context.Context {
	return postgres.WithScope(ctx, postgres.AllTenants())
}
