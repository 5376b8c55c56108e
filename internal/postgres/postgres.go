// Package postgres owns the connection pool, the transaction boundary, the migrations and what a database error means.
//
// It refuses to know any table: SQL lives with the noun it belongs to. The invariants: a connection sees the rows of those alone
// for whom it was taken; one that met a dead or read-only server never serves another query, and the caller hears UNAVAILABLE.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

const (
	defaultMaxConns = 20
	connectTimeout  = 5 * time.Second
	pingTimeout     = 2 * time.Second

	// A failover may leave a connection that looks healthy on a server that nobody should use: its age is the bound.
	maxConnAge    = 10 * time.Minute
	maxConnJitter = 2 * time.Minute
	maxConnIdle   = 5 * time.Minute
)

// Role is what the server works as: it owns nothing and cannot pass by the policies of the tables.
const Role = "compute_app"

// Options say which database to use, and as whom. URL is any DSN that pgx reads, of a login that may become Role;
// MaxConns 0 means 20.
type Options struct {
	URL string
	// MigrationsURL is the DSN of the owner of the tables; empty: that of URL is.
	MigrationsURL string
	// AsOwner is for operators' commands: they see all tenants, and are not confined to Role.
	AsOwner  bool
	MaxConns int32
	// Tracer sees every statement that is not the owner's; nil: nobody does.
	Tracer pgx.QueryTracer
}

// DB is one pool with Bun on top. Pool is the same pool, for what Bun cannot do (LISTEN, River's workers).
//
// RunInTx here hides the method of bun.DB, so *DB is not a bun.IDB: hand out db.DB where one is asked for.
type DB struct {
	*bun.DB
	Pool *pgxpool.Pool

	scopes *scopes
	owner  *pgxpool.Config // for migrations
}

// Open makes the pool. It fails only on a DSN that cannot be read: a database that is away right now is found by Ping
// and WriteProbe, and by each query as UNAVAILABLE, until it is back.
func Open(ctx context.Context, o Options) (*DB, error) {
	owner, err := poolConfig(cmp.Or(o.MigrationsURL, o.URL), o.MaxConns)
	if err != nil {
		return nil, err
	}
	if o.AsOwner {
		return open(ctx, owner.Copy(), owner)
	}
	app, err := poolConfig(o.URL, o.MaxConns)
	if err != nil {
		return nil, err
	}
	app.ConnConfig.RuntimeParams["role"] = Role
	app.ConnConfig.Tracer = o.Tracer
	return open(ctx, app, owner)
}

func open(ctx context.Context, config, owner *pgxpool.Config) (*DB, error) {
	scopes := new(scopes)
	config.PrepareConn = scopes.prepare
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("making the connection pool: %w", err)
	}
	sqldb := sql.OpenDB(connector{Connector: stdlib.GetPoolConnector(pool), scopes: scopes})
	sqldb.SetMaxIdleConns(0) // idle connections belong to the pool alone
	return &DB{DB: bun.NewDB(sqldb, pgdialect.New()), Pool: pool, scopes: scopes, owner: owner}, nil
}

func poolConfig(url string, maxConns int32) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("reading the database URL: %w", err) // pgx leaves the password out of this error
	}
	config.MaxConns = cmp.Or(maxConns, defaultMaxConns)
	config.MinConns = min(config.MinConns, config.MaxConns)
	config.MaxConnLifetime = maxConnAge
	config.MaxConnLifetimeJitter = maxConnJitter
	config.MaxConnIdleTime = maxConnIdle
	config.PingTimeout = pingTimeout

	conn := config.ConnConfig
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, connectTimeout)
	// Bun writes arguments into the text, so every statement is new: pgx's statement cache would fill each backend
	// with plans that nobody asks for again. What is sent as a Batch is prepared by its text.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn.OnPgError = func(_ *pgconn.PgConn, e *pgconn.PgError) bool { return !endsConnection(e) && !outdated(e) }
	if conn.ValidateConnect == nil {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	for name, value := range map[string]string{
		"application_name":                    "compute-api",
		"statement_timeout":                   "30s",
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "60s",
		// The policies' subqueries make a statement look dear before a table has statistics: to compile it takes 200 ms, to run it 1.
		"jit": "off",
	} {
		if _, set := conn.RuntimeParams[name]; !set {
			conn.RuntimeParams[name] = value
		}
	}
	return config, nil
}

// connector makes the failure to get a connection UNAVAILABLE at its source, also for a query whose caller forgets
// to Translate. It finds the scope before it takes a connection: to find it may need one, which a pool whose last one is held
// for the answer could never give.
type connector struct {
	driver.Connector
	scopes *scopes
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, err := c.scopes.mark(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, Translate(err)
	}
	return conn, nil
}

// Close ends every connection. It waits for those that are in use.
func (db *DB) Close() {
	_ = db.DB.Close() // closes database/sql only, which holds no idle connection
	db.Pool.Close()
}

// Ping asks for one round trip; UNAVAILABLE when the database is away.
func (db *DB) Ping(ctx context.Context) error {
	return Translate(db.Pool.Ping(ctx))
}

// WriteProbe does a real write and rolls it back: a server that lost its role in a failover still answers reads.
// UNAVAILABLE when the database is away or read-only.
func (db *DB) WriteProbe(ctx context.Context) error {
	_, err := db.Pool.Exec(ctx, "BEGIN; CREATE TEMP TABLE write_probe (); ROLLBACK")
	return Translate(err)
}
