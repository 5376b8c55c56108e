package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestRunInTxCommitsOrRollsBackTheWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	boom := errors.New("boom")
	err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		insertSecret(t, tx, "lost")
		return boom
	})
	if err != boom {
		t.Errorf("got %v, want the error of fn as it is", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			insertSecret(t, tx, "lost too")
			panic("boom")
		})
	}()
	err = db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		insertSecret(t, tx, "kept")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := db.NewSelect().Table("secrets").Column("name").Scan(t.Context(), &names); err != nil {
		t.Fatal(err)
	}
	if len(names) != 1 || names[0] != "kept" {
		t.Errorf("the table holds %v, want only what was committed", names)
	}
	if used := db.Pool.Stat().AcquiredConns(); used != 0 {
		t.Errorf("%d connections were not given back", used)
	}
}

func TestRunInTxRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := pgtest.Owner(t, db).ExecContext(t.Context(), "ALTER DATABASE "+databaseName(t, db)+" SET deadlock_timeout = '20ms'"); err != nil {
		t.Fatal(err)
	}
	db.Pool.Reset() // the setting is for new connections
	insertSecret(t, db.DB, "a")
	insertSecret(t, db.DB, "b")

	// Both hold their first row before either asks for its second: one of them must be the victim.
	var both sync.WaitGroup
	both.Add(2)
	var runs [2]int
	var g errgroup.Group
	for i, order := range [2][2]string{{"a", "b"}, {"b", "a"}} {
		g.Go(func() error {
			return db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				runs[i]++
				if err := touch(ctx, tx, order[0]); err != nil {
					return err
				}
				if runs[i] == 1 {
					both.Done()
					both.Wait()
				}
				return touch(ctx, tx, order[1])
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if runs[0]+runs[1] < 3 {
		t.Errorf("the transactions ran %v times: there was no deadlock", runs)
	}
	var changes int
	if err := db.NewSelect().Table("secrets").ColumnExpr("sum(length(key_id))").Scan(t.Context(), &changes); err != nil {
		t.Fatal(err)
	}
	if changes != 2+4 {
		t.Errorf("the rows took %d changes, want each transaction exactly once", changes-2)
	}
}

func TestRunInTxGivesUpOnEndlessConflicts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := 0
	err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
		runs++
		return serializationFailure(ctx, tx)
	})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
	if runs < 2 || runs > 10 {
		t.Errorf("fn ran %d times", runs)
	}
}

func TestRunInTxStopsWhenTheCallerIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	err := db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		runs++
		err := serializationFailure(ctx, tx)
		cancel()
		return err
	})
	if runs != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("fn ran %d times and RunInTx gave %v, want once and the context's error", runs, err)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(60)")
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) || problem.Is(err, problem.Unavailable) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func serializationFailure(ctx context.Context, tx bun.Tx) error {
	_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE 'conflict' USING ERRCODE = 'serialization_failure'; END $$")
	return err
}

func touch(ctx context.Context, tx bun.Tx, name string) error {
	_, err := tx.ExecContext(ctx, "UPDATE secrets SET key_id = key_id || '.' WHERE name = ?", name)
	return err
}

func insertSecret(t *testing.T, db bun.IDB, name string) {
	t.Helper()
	_, err := db.NewRaw("INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t', ?, 'k', '')", name).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
}

func databaseName(t *testing.T, db *postgres.DB) string {
	t.Helper()
	return db.Pool.Config().ConnConfig.Database
}
