package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestTranslateMakesALostDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "08006"}, &pgconn.PgError{Code: "08P01"},
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P02"}, &pgconn.PgError{Code: "57P03"},
		&pgconn.PgError{Code: "25006"}, &pgconn.PgError{Code: "53300"}, &pgconn.PgError{Code: "55P03"},
		&pgconn.PgError{Code: "40001"}, &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "XX000", Severity: "FATAL"},
		&pgconn.PgError{Code: "42501", Routine: "ExecWithCheckOptions"},
		&net.OpError{Op: "dial", Err: errors.New("refused")},
		io.ErrUnexpectedEOF, sql.ErrConnDone, sql.ErrTxDone,
	} {
		got := postgres.Translate(fmt.Errorf("loading: %w", err))
		if !problem.Is(got, problem.Unavailable) {
			t.Errorf("%v became %v, want UNAVAILABLE", err, got)
		}
		if !errors.Is(got, err) {
			t.Errorf("%v lost its cause", err)
		}
	}
}

func TestTranslateLeavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nil, sql.ErrNoRows, errors.New("other"),
		context.Canceled, context.DeadlineExceeded, fmt.Errorf("reading: %w", context.Canceled),
		&pgconn.PgError{Code: "23505"}, &pgconn.PgError{Code: "42P01"}, &pgconn.PgError{Code: "57014"}, &pgconn.PgError{Code: "42501"},
		problem.New(problem.Conflict, "no").Because(&pgconn.PgError{Code: "57P01"}),
	} {
		if got := postgres.Translate(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestViolationsNameTheirConstraint(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const account = "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, 't', 'sim', 'n', 'u')"
	if _, err := db.ExecContext(t.Context(), account, "a"); err != nil {
		t.Fatal(err)
	}
	_, err := db.ExecContext(t.Context(), account, "b")
	if name, ok := postgres.UniqueViolation(fmt.Errorf("inserting: %w", err)); !ok || name != "provider_accounts_tenant_name_key" {
		t.Errorf("a name taken twice: got %q, %v of %v", name, ok, err)
	}
	if name, ok := postgres.ForeignKeyViolation(err); ok {
		t.Errorf("a name taken twice is also a foreign key violation of %q", name)
	}

	_, err = db.ExecContext(t.Context(), `INSERT INTO pools (id, tenant_id, name, class, agent, account_id)
		VALUES ('p', 't', 'p', 'vps', 'none', 'missing')`)
	if name, ok := postgres.ForeignKeyViolation(err); !ok || name != "pools_account_id_fkey" {
		t.Errorf("a missing account: got %q, %v of %v", name, ok, err)
	}
	if name, ok := postgres.UniqueViolation(nil); ok {
		t.Errorf("no error is a violation of %q", name)
	}
}
