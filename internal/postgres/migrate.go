package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/migrate"

	"better/compute/migrations"
)

// The advisory lock that every starter of this program takes around its migrations ("compute" in ASCII).
const migrationLock = 0x636f6d70757465

// Migration is one step of the schema and whether this database has it.
type Migration struct {
	Name    string
	Applied bool
}

func (m Migration) pending() bool { return !m.Applied }

// Migrate brings the schema, ours and the job queue's, up to this program's version, as the owner; where nothing is to be done it
// needs none, so that a server may know no more than its own login. Idempotent, and safe to call
// from many starters at once: one works, the others wait for it. A file and the record that it was applied commit
// together, so a starter that is killed leaves nothing half done.
func Migrate(ctx context.Context, db *DB) error {
	if status, err := MigrationStatus(ctx, db); err == nil && !slices.ContainsFunc(status, Migration.pending) {
		return nil
	}
	return withMigrationLock(ctx, db, func(ctx context.Context, own *DB) error {
		migrator, err := newMigrator(own, markApplied)
		if err != nil {
			return err
		}
		if err := migrator.Init(ctx); err != nil {
			return fmt.Errorf("creating the migration table: %w", err)
		}
		if _, err := migrator.Migrate(ctx); err != nil {
			return fmt.Errorf("migrating: %w", err)
		}
		jobs, err := newJobMigrator(own)
		if err != nil {
			return err
		}
		if _, err := jobs.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrating the job queue: %w", err)
		}
		return admit(ctx, own, db.Pool.Config().ConnConfig.User)
	})
}

// admit makes the login that the server connects as a member of Role, unless it may become that already.
func admit(ctx context.Context, own *DB, login string) error {
	var may bool
	err := own.NewRaw(`SELECT pg_has_role(?0, ?1, CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)`,
		login, Role).Scan(ctx, &may)
	if err == nil && !may {
		_, err = own.NewRaw("GRANT ? TO ?", bun.Ident(Role), bun.Ident(login)).Exec(ctx)
	}
	if err != nil {
		return fmt.Errorf("letting the login %s become %s: %w", login, Role, err)
	}
	return nil
}

// ErrNotNewest is for taking back another migration than the newest one.
var ErrNotNewest = errors.New("only the newest migration can be taken back")

// MigrateDown takes back one migration, with all that it made room for: the newest one, whose name the caller has to know, so that nobody
// loses more than they meant to; ErrNotNewest for another. The job queue's tables stay: the older program runs on them, and dropping
// them would lose jobs.
func MigrateDown(ctx context.Context, db *DB, name string) error {
	return withMigrationLock(ctx, db, func(ctx context.Context, db *DB) error {
		migrator, err := newMigrator(db, markUnapplied)
		if err != nil {
			return err
		}
		newest, err := newestMigration(ctx, db, migrator)
		if err != nil {
			return err
		}
		if newest == nil || newest.String() != name {
			return ErrNotNewest
		}
		if err := newest.Down(ctx, migrator, newest); err != nil {
			return fmt.Errorf("taking back %s: %w", name, err)
		}
		return nil
	})
}

// NewestMigration names the one that MigrateDown would take back; empty when none is applied. It changes nothing. db has to be open as the
// owner, since the server's role may not be there any more.
func NewestMigration(ctx context.Context, db *DB) (string, error) {
	migrator, err := newMigrator(db, nil)
	if err != nil {
		return "", err
	}
	newest, err := newestMigration(ctx, db, migrator)
	if err != nil || newest == nil {
		return "", Translate(err)
	}
	return newest.String(), nil
}

// newestMigration is nil when none is applied. Below one of a newer program there is nothing to be taken back by this one.
func newestMigration(ctx context.Context, db *DB, migrator *migrate.Migrator) (*migrate.Migration, error) {
	known, err := migrationsWithStatus(ctx, db, migrator)
	if err != nil {
		return nil, fmt.Errorf("reading the migration table: %w", err)
	}
	applied := known.Applied()
	if len(applied) == 0 {
		return nil, nil
	}
	unknown, err := migrator.MissingMigrations(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the migration table: %w", err)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("the migration %s is of a newer program: take it back with that one", unknown[0].Name)
	}
	return &applied[0], nil
}

// MigrationStatus lists every migration that this program knows, in the order in which they run. It changes nothing.
func MigrationStatus(ctx context.Context, db *DB) ([]Migration, error) {
	migrator, err := newMigrator(db, nil)
	if err != nil {
		return nil, err
	}
	known, err := migrationsWithStatus(ctx, db, migrator)
	if err != nil {
		return nil, Translate(fmt.Errorf("reading the migration table: %w", err))
	}
	var status []Migration
	for _, m := range known {
		status = append(status, Migration{Name: m.String(), Applied: m.IsApplied()})
	}
	jobs, err := newJobMigrator(db)
	if err != nil {
		return nil, err
	}
	existing, err := jobs.ExistingVersions(ctx)
	if err != nil {
		return nil, Translate(fmt.Errorf("reading the job queue's migration table: %w", err))
	}
	for i, m := range jobs.AllVersions() {
		status = append(status, Migration{Name: fmt.Sprintf("river_%03d", m.Version), Applied: i < len(existing)})
	}
	return status, nil
}

func migrationsWithStatus(ctx context.Context, db *DB, migrator *migrate.Migrator) (migrate.MigrationSlice, error) {
	var exists bool
	err := db.NewSelect().ColumnExpr("to_regclass('bun_migrations') IS NOT NULL").Scan(ctx, &exists)
	if err != nil {
		return nil, err
	}
	if exists {
		return migrator.MigrationsWithStatus(ctx)
	}
	known, err := discover()
	if err != nil {
		return nil, err
	}
	return known.Sorted(), nil
}

func discover() (*migrate.Migrations, error) {
	known := migrate.NewMigrations()
	if err := known.Discover(migrations.FS); err != nil {
		return nil, fmt.Errorf("reading the embedded migrations: %w", err)
	}
	return known, nil
}

// newMigrator wraps each file in a transaction that also holds mark. Bun by itself marks on another connection after
// the file has committed: a starter killed in between would fail on the same file for ever. Bun marks once more when
// the transaction is through, which the upsert makes harmless.
func newMigrator(db *DB, mark migrate.MigrationHook) (*migrate.Migrator, error) {
	known, err := discover()
	if err != nil {
		return nil, err
	}
	begin := func(ctx context.Context, conn bun.IConn, _ *migrate.Migration) error {
		_, err := conn.ExecContext(ctx, "BEGIN")
		return err
	}
	commit := func(ctx context.Context, conn bun.IConn, m *migrate.Migration) error {
		if err := mark(ctx, conn, m); err != nil {
			return err
		}
		_, err := conn.ExecContext(ctx, "COMMIT")
		return err
	}
	return migrate.NewMigrator(db.DB, known, migrate.WithMarkAppliedOnSuccess(true), migrate.WithUpsert(true),
		migrate.BeforeMigration(begin), migrate.AfterMigration(commit)), nil
}

func markApplied(ctx context.Context, conn bun.IConn, m *migrate.Migration) error {
	_, err := conn.ExecContext(ctx, "INSERT INTO bun_migrations (name, group_id) VALUES (?, ?)", m.Name, m.GroupID)
	return err
}

func markUnapplied(ctx context.Context, conn bun.IConn, m *migrate.Migration) error {
	_, err := conn.ExecContext(ctx, "DELETE FROM bun_migrations WHERE name = ?", m.Name)
	return err
}

func newJobMigrator(db *DB) (*rivermigrate.Migrator[pgx.Tx], error) {
	jobs, err := rivermigrate.New(riverpgxv5.New(db.Pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("making the job queue's migrator: %w", err)
	}
	return jobs, nil
}

// withMigrationLock runs fn as the owner, on a pool of its own without the time limits of a request, while it holds the
// advisory lock.
func withMigrationLock(ctx context.Context, db *DB, fn func(ctx context.Context, db *DB) error) (err error) {
	own, err := migrationPool(ctx, db)
	if err != nil {
		return err
	}
	defer own.Close()
	conn, err := own.Pool.Acquire(ctx)
	if err != nil {
		return Translate(err)
	}
	// Closing the connection, not only releasing it, frees the lock whatever happened.
	defer func() {
		err = errors.Join(err, conn.Hijack().Close(context.WithoutCancel(ctx)))
	}()
	if err := lockMigrations(ctx, conn); err != nil {
		return Translate(err)
	}
	return Translate(fn(ctx, own))
}

// lockMigrations asks again and again instead of waiting in the database: a waiting statement holds a snapshot, on
// which a migration that builds an index concurrently would wait for ever.
func lockMigrations(ctx context.Context, conn *pgxpool.Conn) error {
	for {
		var locked bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&locked)
		if err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// migrationPool opens a second pool on the same database: one connection for the lock, the rest for the work.
func migrationPool(ctx context.Context, db *DB) (*DB, error) {
	config := db.owner.Copy()
	config.MinConns, config.MaxConns = 0, 3
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	return open(ctx, config, config)
}
