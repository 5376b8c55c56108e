package pgtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

func TestEachTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for range 6 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			if got := countSecrets(t, db); got != 0 {
				t.Fatalf("a fresh database holds %d secrets", got)
			}
			_, err := db.ExecContext(t.Context(), "INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t', 'n', 'k', '')")
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestURLOpensTheSameKindOfDatabase(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	status, err := postgres.MigrationStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if !m.Applied {
			t.Errorf("%s is not applied", m.Name)
		}
	}
}

func TestDatabasesAreDroppedWhenTheTestEnds(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("a test", func(t *testing.T) { url = pgtest.URL(t) })
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	refused, ok := errors.AsType[*pgconn.PgError](db.Ping(t.Context()))
	if !ok || refused.Code != "3D000" {
		t.Fatalf("got %v, want that the database does not exist", refused)
	}
}

func TestCountQueriesCountsStatements(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	count := pgtest.CountQueries(db)
	countSecrets(t, db)
	err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM secrets")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	scan := func(row postgres.Row) (n int, err error) { return n, row.Scan(&n) }
	if _, err := postgres.Read(t.Context(), db, scan, "SELECT $1::int", 1); err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), func(b *postgres.Batch) error {
		b.Queue("DELETE FROM secrets")
		return nil
	}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 4 {
		t.Fatalf("counted %d statements, want two SELECTs and two DELETEs", got)
	}
}

func countSecrets(t *testing.T, db *postgres.DB) int64 {
	t.Helper()
	n, err := db.NewSelect().TableExpr("secrets").Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
