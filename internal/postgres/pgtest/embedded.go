package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"better/compute/internal/postgres/embedded"
	"better/compute/migrations"
)

// Nothing in a test database outlives its process, so nothing has to reach the disk.
var settings = []string{
	"fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
	"max_connections=400", "autovacuum=off", "shared_buffers=32MB", "max_wal_size=64MB", "min_wal_size=32MB",
}

// maxSlots bounds how many test processes of one user can have a server at the same time.
const maxSlots = 64

// startServer starts this process's own server in the first slot that no other process holds. A slot keeps its data
// directory, with the template in it, for the next process: a start then takes a tenth of a second.
func startServer(ctx context.Context) (*server, error) {
	base, err := slots()
	if err != nil {
		return nil, err
	}
	for i := range maxSlots {
		pg, err := embedded.Start(ctx, embedded.Options{
			StateDir: filepath.Join(base, fmt.Sprintf("slot-%d", i)), Settings: settings,
		})
		if errors.Is(err, embedded.ErrInUse) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := openServer(ctx, pg.URL())
		if err != nil {
			return nil, errors.Join(err, pg.Stop(ctx))
		}
		s.embedded = pg
		if err := s.dropLeftovers(ctx); err != nil {
			return nil, errors.Join(err, pg.Stop(ctx))
		}
		return s, nil
	}
	return nil, fmt.Errorf("all %d slots in %s are taken by running test processes", maxSlots, base)
}

// slots is the directory of this user's slots: in memory where there is room, since a database is some 300 small
// files. On a disk the boot's id is in the name, because a data directory without fsync does not survive a crash of
// the machine.
func slots() (string, error) {
	parent, mark := os.TempDir(), ""
	var memory syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &memory); err == nil && memory.Bavail*uint64(memory.Bsize) >= 4<<30 {
		parent = "/dev/shm"
	} else if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		mark = "-" + strings.TrimSpace(string(boot))
	}
	base := filepath.Join(parent, fmt.Sprintf("compute-pgtest-%d%s", os.Geteuid(), mark))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("making the directory of the test servers: %w", err)
	}
	return base, nil
}

// dropLeftovers removes the databases of tests that were killed and the templates of other schemas.
func (s *server) dropLeftovers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx,
		"SELECT datname FROM pg_database WHERE datname ~ '^(test|empty|compute_template)_' AND datname <> $1", s.template)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)); err != nil {
			return fmt.Errorf("dropping the leftover database %s: %w", name, err)
		}
	}
	return nil
}

// schemaHash names the schema: ours and the job queue's.
func schemaHash() (string, error) {
	sum := sha256.New()
	for _, source := range []fs.FS{migrations.FS, riverpgxv5.New(nil).GetMigrationFS("main")} {
		err := fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			f, err := source.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintln(sum, path)
			_, err = io.Copy(sum, f)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("hashing the migrations: %w", err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
