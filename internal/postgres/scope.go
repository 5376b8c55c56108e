package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// Scope says whose rows a connection sees. The zero value sees no row of any tenant. Tables that belong to nobody are seen under
// every scope.
type Scope struct {
	// The value of the setting app.tenants, which the policies of the tables read: * or an array of text.
	setting string
}

// everyTenant is no array, so no tenant's id can be mistaken for it.
const everyTenant = "*"

// AllTenants is the scope of what works for every tenant: background work, operators' commands, and a read that must cross tenants
// to find out whose an object is.
func AllTenants() Scope { return Scope{everyTenant} }

// Tenants is the scope that sees the rows of these tenants. Without an id it sees none.
func Tenants(ids ...string) Scope {
	var b strings.Builder
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = arrayEscaper.WriteString(&b, id)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return Scope{b.String()}
}

var arrayEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\x00", "")

func (s Scope) String() string {
	if s.setting == "" {
		return "{}"
	}
	return s.setting
}

type scopeKey struct{}

// WithScope makes what is run with the returned context see the rows of s, whoever calls. It counts for connections that are taken
// from then on: a transaction keeps the scope under which it began.
func WithScope(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, s)
}

// Narrow makes the rest of tx see the rows of s alone: for a transaction that had to look across tenants before it writes for one
// caller.
func Narrow(ctx context.Context, tx bun.Tx, s Scope) error {
	if _, err := tx.NewRaw("SELECT set_config(?, ?, true)", held, s.String()).Exec(ctx); err != nil {
		return fmt.Errorf("narrowing whose rows a transaction sees: %w", err)
	}
	return nil
}

func explicitScope(ctx context.Context) (Scope, bool) {
	s, ok := ctx.Value(scopeKey{}).(Scope)
	return s, ok
}

// ScopeBy makes resolve say whose rows a context sees that WithScope has not marked. Its error becomes the query's. Without
// ScopeBy such a context sees all tenants. Call it before the first request.
func (db *DB) ScopeBy(resolve func(ctx context.Context) (Scope, error)) {
	db.scopes.resolve.Store(&resolve)
}

// Scoped returns ctx marked with the scope that it has on db. What takes a connection from Pool itself needs it, since the pool
// does not resolve: a context that is not marked then sees no tenant once ScopeBy was called.
func (db *DB) Scoped(ctx context.Context) (context.Context, error) { return db.scopes.mark(ctx) }

// ScopeOf is the scope that ctx has on db. What is read under one scope may be shown to whoever has the same.
func (db *DB) ScopeOf(ctx context.Context) (Scope, error) {
	marked, err := db.scopes.mark(ctx)
	if err != nil {
		return Scope{}, err
	}
	s, _ := explicitScope(marked)
	return s, nil
}

// scopes finds the scope of a context, and gives it to the connections of one pool.
type scopes struct {
	resolve atomic.Pointer[func(context.Context) (Scope, error)]
}

func (s *scopes) mark(ctx context.Context) (context.Context, error) {
	if _, ok := explicitScope(ctx); ok {
		return ctx, nil
	}
	resolve := s.resolve.Load()
	if resolve == nil {
		return WithScope(ctx, AllTenants()), nil
	}
	scope, err := (*resolve)(ctx)
	if err != nil {
		return nil, err
	}
	return WithScope(ctx, scope), nil
}

// held is where a connection remembers the setting that it has. It is set outside any transaction, so no rollback takes it back.
const held = "app.tenants"

// prepare gives a connection that is about to be handed out the scope of ctx, with no round trip when it has that scope already.
// A connection on which that failed is not used again.
func (s *scopes) prepare(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if ctx.Value(noScopeKey{}) != nil {
		return true, nil
	}
	scope, ok := explicitScope(ctx)
	if !ok && s.resolve.Load() == nil {
		scope = AllTenants()
	}
	data := conn.PgConn().CustomData()
	if setting, _ := data[held].(string); setting == scope.String() {
		return true, nil
	}
	delete(data, held)
	if _, err := conn.Exec(ctx, setScope, scope.String(), false); err != nil {
		return false, fmt.Errorf("setting whose rows the connection sees: %w", err)
	}
	data[held] = scope.String()
	return true, nil
}

type noScopeKey struct{}

// withoutScope is for who takes a connection as its last user left it, and sends the scope along.
func withoutScope(ctx context.Context) context.Context {
	return context.WithValue(ctx, noScopeKey{}, true)
}
