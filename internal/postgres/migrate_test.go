package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func TestManyStartersMigrateOneEmptyDatabase(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	var g errgroup.Group
	for range 5 {
		g.Go(func() error {
			db, err := postgres.Open(t.Context(), postgres.Options{URL: url, MaxConns: 1})
			if err != nil {
				return err
			}
			defer db.Close()
			return postgres.Migrate(t.Context(), db)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	db := open(t, url)
	assertApplied(t, db, true)
	var times int
	err := db.NewSelect().Table("bun_migrations").ColumnExpr("count(*)").Where("name = '0001'").Scan(t.Context(), &times)
	if err != nil || times != 1 {
		t.Errorf("the first migration is recorded %d times, %v", times, err)
	}
}

func TestMigrateDownTakesBackWhatMigrateMade(t *testing.T) {
	t.Parallel()
	db := open(t, emptyDatabase(t))
	if name, err := postgres.NewestMigration(t.Context(), db); err != nil || name != "" {
		t.Fatalf("with nothing to take back: %q, %v", name, err)
	}
	if err := postgres.MigrateDown(t.Context(), db, "0001_core"); !errors.Is(err, postgres.ErrNotNewest) {
		t.Fatalf("with nothing to take back: %v", err)
	}
	assertApplied(t, db, false)
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	up := objects(t, db)
	takeAllBack(t, db)
	left := slices.DeleteFunc(objects(t, db), func(name string) bool {
		return strings.Contains(name, "river") || strings.Contains(name, "bun_migration")
	})
	if len(left) != 0 {
		t.Errorf("these are left: %v", left)
	}
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(up, objects(t, db)); diff != "" {
		t.Errorf("up, down and up again differs from up: %s", diff)
	}
	assertApplied(t, db, true)
}

// One up applies every file, and yet one down takes back the newest alone, and only for who names it.
func TestMigrateDownTakesBackOneMigration(t *testing.T) {
	t.Parallel()
	db := open(t, emptyDatabase(t))
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := postgres.MigrateDown(t.Context(), db, "0001_core"); !errors.Is(err, postgres.ErrNotNewest) {
		t.Fatalf("the oldest: %v", err)
	}
	assertApplied(t, db, true)
	newest, err := postgres.NewestMigration(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.MigrateDown(t.Context(), db, newest); err != nil {
		t.Fatal(err)
	}
	status, err := postgres.MigrationStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if m.Applied != (m.Name != newest) {
			t.Errorf("%s: applied is %v after %s was taken back", m.Name, m.Applied, newest)
		}
	}
	if err := postgres.MigrateDown(t.Context(), db, newest); !errors.Is(err, postgres.ErrNotNewest) {
		t.Errorf("once more: %v", err)
	}
}

func TestMigrateDownLeavesWhatANewerProgramMade(t *testing.T) {
	t.Parallel()
	db := open(t, emptyDatabase(t))
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	newest, err := postgres.NewestMigration(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO bun_migrations (name, group_id) VALUES ('9999', 9)"); err != nil {
		t.Fatal(err)
	}
	if err := postgres.MigrateDown(t.Context(), db, newest); err == nil {
		t.Error("it took back what a migration that it does not know stands on")
	}
	assertApplied(t, db, true)
}

// takeAllBack leaves the job queue's tables alone.
func takeAllBack(t *testing.T, db *postgres.DB) {
	t.Helper()
	for {
		newest, err := postgres.NewestMigration(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if newest == "" {
			return
		}
		if err := postgres.MigrateDown(t.Context(), db, newest); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMigrateSurvivesBeingKilledAnywhere cuts the connections of a starter at a random moment; the next one must
// succeed.
func TestMigrateSurvivesBeingKilledAnywhere(t *testing.T) {
	t.Parallel()
	for range 8 {
		url := emptyDatabase(t)
		killer := open(t, pgtest.URL(t))
		after := mathrand.N(100 * time.Millisecond)
		t.Logf("cutting after %v", after)
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			timer := time.NewTimer(after)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-t.Context().Done():
			}
			_, _ = killer.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ?",
				url[strings.LastIndex(url, "/empty_")+1:strings.Index(url, "?")])
		}()
		first := open(t, url)
		t.Logf("the first starter: %v", postgres.Migrate(t.Context(), first))
		<-cut
		db := open(t, url)
		if err := postgres.Migrate(t.Context(), db); err != nil {
			t.Fatalf("the second starter: %v", err)
		}
		assertApplied(t, db, true)
	}
}

func TestMigrationAndItsRecordCommitTogether(t *testing.T) {
	t.Parallel()
	db := open(t, emptyDatabase(t))
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	takeAllBack(t, db)
	before := objects(t, db)
	_, err := db.ExecContext(t.Context(), "ALTER TABLE bun_migrations ADD CONSTRAINT refused CHECK (name = '')")
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), db); err == nil {
		t.Fatal("a migration passed that could not be recorded")
	}
	if diff := cmp.Diff(before, objects(t, db)); diff != "" {
		t.Errorf("the migration stayed without its record: %s", diff)
	}
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE bun_migrations DROP CONSTRAINT refused"); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	db := open(t, emptyDatabase(t))
	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "SELECT pg_advisory_lock(?)", int64(0x636f6d70757465)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := postgres.Migrate(ctx, db); err == nil {
		t.Fatal("it migrated beside the holder of the lock")
	}
	assertApplied(t, db, false)
}

func open(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, AsOwner: true, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// emptyDatabase is a database without any schema.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	db := open(t, pgtest.URL(t))
	name := "empty_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(db.Pool.Config().ConnString(), "/"+databaseName(t, db)+"?", "/"+name+"?", 1)
}

func assertApplied(t *testing.T, db *postgres.DB, want bool) {
	t.Helper()
	status, err := postgres.MigrationStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if len(status) < 2 || status[0].Name != "0001_core" {
		t.Fatalf("the status is %v", status)
	}
	for _, m := range status {
		if m.Applied != want {
			t.Errorf("%s: applied is %v, want %v", m.Name, m.Applied, want)
		}
	}
}

// objects lists the relations and functions of the schema.
func objects(t *testing.T, db *postgres.DB) []string {
	t.Helper()
	var names []string
	err := db.NewRaw(`SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
		UNION SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1`).Scan(t.Context(), &names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
