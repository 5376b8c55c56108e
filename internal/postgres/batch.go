package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Row is a row of an answer, to be scanned.
type Row = pgx.Row

// Batch is statements that go to the database together. Their arguments are $1, $2 and so on, never in the text: each text is prepared
// once on a connection and stays there, so there must be few.
type Batch = pgx.Batch

// sendAttempts bounds how often what a connection could not run, since it was found closed or outdated, is sent on another.
const sendAttempts = 3

// Read runs a query, in one round trip together with the scope of ctx, and gives what scan makes of its rows. Use it instead of Bun where a
// request waits for the answer; the text is as in a Batch. UNAVAILABLE as by Translate.
func Read[T any](ctx context.Context, db *DB, scan func(Row) (T, error), query string, args ...any) (all []T, err error) {
	err = db.read(ctx, func(b *Batch) {
		all = []T{}
		b.Queue(query, args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				one, err := scan(rows)
				if err != nil {
					return err
				}
				all = append(all, one)
			}
			return nil // the batch looks for the error of the rows
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReadOne is Read for a query that gives one row at most; sql.ErrNoRows when it gives none.
func ReadOne[T any](ctx context.Context, db *DB, scan func(Row) (T, error), query string, args ...any) (one T, err error) {
	all, err := Read(ctx, db, scan, query, args...)
	if err != nil {
		return one, err
	}
	if len(all) == 0 {
		return one, sql.ErrNoRows
	}
	return all[0], nil
}

// Write runs the statements that fill adds, together with the scope of ctx, in a transaction. They take one round trip and the commit, if confirm
// gives nil, another. What fill's statements scan is there for confirm. An error of either rolls back. Else it is as RunInTx: both may run
// several times.
func (db *DB) Write(ctx context.Context, fill func(b *Batch) error, confirm func() error) error {
	return db.again(ctx, func() error {
		return db.send(ctx, func(conn *pgx.Conn, scope Scope) error { return write(ctx, conn, scope, fill, confirm) })
	})
}

func (db *DB) read(ctx context.Context, fill func(b *Batch)) error {
	return Translate(db.send(ctx, func(conn *pgx.Conn, scope Scope) error { return read(ctx, conn, scope, fill) }))
}

// send hands run a connection that has any scope, and another one when nothing came of the first.
func (db *DB) send(ctx context.Context, run func(*pgx.Conn, Scope) error) error {
	scope, err := db.ScopeOf(ctx)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := db.Pool.AcquireFunc(withoutScope(ctx), func(c *pgxpool.Conn) error { return run(c.Conn(), scope) })
		if attempt == sendAttempts || !pgconn.SafeToRetry(err) && !outdated(err) {
			return err
		}
	}
}

const setScope = "SELECT set_config('" + held + "', $1, $2)"

// read gives the connection the scope along with the statements. One that fails takes the scope back with it, and what was cut off may have: so
// the connection remembers a scope only where all is well.
func read(ctx context.Context, conn *pgx.Conn, scope Scope, fill func(b *Batch)) error {
	b := new(Batch)
	data := conn.PgConn().CustomData()
	if data[held] != scope.String() {
		b.Queue(setScope, scope.String(), false)
	}
	fill(b)
	if err := prepareAll(ctx, conn, b); err != nil {
		return err
	}
	delete(data, held)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	data[held] = scope.String()
	return nil
}

// write gives the scope to the transaction alone: whatever becomes of that, the connection has the one that it had.
func write(ctx context.Context, conn *pgx.Conn, scope Scope, fill func(b *Batch) error, confirm func() error) error {
	b := new(Batch)
	b.BeginTx(pgx.TxOptions{})
	if conn.PgConn().CustomData()[held] != scope.String() {
		b.Queue(setScope, scope.String(), true)
	}
	if err := fill(b); err != nil {
		return err
	}
	if err := prepareAll(ctx, conn, b); err != nil {
		return err
	}
	results := conn.SendBatch(ctx, b)
	tx := results.Tx()
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit; a connection on which it fails is closed
	if err := results.Close(); err != nil {
		return err
	}
	if err := confirm(); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// prepareAll prepares what the connection has not run before.
func prepareAll(ctx context.Context, conn *pgx.Conn, b *Batch) error {
	for _, q := range b.QueuedQueries {
		if _, err := conn.Prepare(ctx, q.SQL, q.SQL); err != nil {
			return fmt.Errorf("preparing a statement: %w", err)
		}
	}
	return nil
}
