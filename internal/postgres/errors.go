package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"better/compute/internal/problem"
)

// Translate says what a database error means to the caller of the API: UNAVAILABLE, with the error as its cause, when
// the database is away, read-only, out of connections or too contended to answer. A *problem.Error, an error of the
// context and everything else come back as they are.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !isConnectError(err) {
		return err
	}
	if unavailable(err) {
		return problem.New(problem.Unavailable, "The database is not available right now; try again.").Because(err)
	}
	return err
}

func unavailable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return endsConnection(e) || e.Code == "53300" || e.Code == "55P03" || retryable(e) || OutOfScope(e)
	}
	if isConnectError(err) {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	for _, gone := range []error{
		puddle.ErrClosedPool, sql.ErrConnDone, sql.ErrTxDone, driver.ErrBadConn, net.ErrClosed, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	// What was never sent found its connection closed; database/sql has no exported value for its being closed.
	return pgconn.SafeToRetry(err) || strings.HasSuffix(err.Error(), "sql: database is closed")
}

func isConnectError(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// endsConnection reports whether the server behind the connection is dead, dying or no longer the one to write to.
func endsConnection(e *pgconn.PgError) bool {
	switch e.Code {
	case "25006", // read-only: a standby, or an old primary after a failover
		"57P01", "57P02", "57P03": // shutting down, crashed, starting up
		return true
	}
	return strings.HasPrefix(e.Code, "08") || strings.EqualFold(e.Severity, "FATAL")
}

// outdated reports whether a table is not any more what it was when the connection prepared the statement, which then never runs on it again.
func outdated(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "0A000" && e.Routine == "RevalidateCachedQuery"
}

// OutOfScope reports whether a row was written that its writer may not see. A decision came before, so the right was lost in
// between: another try is decided anew.
func OutOfScope(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "42501" && e.Routine == "ExecWithCheckOptions"
}

// retryable reports whether the same transaction may well pass when it is run again.
func retryable(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// UniqueViolation names the unique constraint or index that err broke.
func UniqueViolation(err error) (constraint string, ok bool) { return violation(err, "23505") }

// ForeignKeyViolation names the foreign key that err broke.
func ForeignKeyViolation(err error) (constraint string, ok bool) { return violation(err, "23503") }

func violation(err error, code string) (string, bool) {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Code != code {
		return "", false
	}
	return e.ConstraintName, true
}
