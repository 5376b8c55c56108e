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
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"better/compute/internal/postgres/embedded"
	"better/compute/migrations"
)

// Nothing in a test database outlives its process, so nothing has to reach the disk.
var settings = []string{
	"fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
	"max_connections=400", "autovacuum=off", "shared_buffers=64MB",
}

// startServer starts this process's own server on a copy of the prepared data directory.
func startServer(ctx context.Context) (*server, error) {
	base := filepath.Join(os.TempDir(), fmt.Sprintf("compute-pgtest-%d", os.Geteuid()))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, err
	}
	hash, err := schemaHash()
	if err != nil {
		return nil, err
	}
	prepared := filepath.Join(base, "prepared-"+hash)
	own, owner, err := claim(ctx, base, prepared)
	if err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(prepared, "pg"), own).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying the prepared data directory: %w: %s", err, out)
	}
	pg, err := embedded.Start(ctx, embedded.Options{StateDir: own, Settings: settings})
	if err != nil {
		return nil, err
	}
	s, err := openServer(ctx, pg.URL())
	if err != nil {
		return nil, err
	}
	s.owner, s.embedded = owner, pg
	return s, nil
}

// claim makes sure that the prepared data directory is there, removes what ended test processes left, and makes a directory that is
// this process's own for as long as owner stays open. One process at a time.
func claim(ctx context.Context, base, prepared string) (own string, owner *os.File, err error) {
	lock, err := flock(filepath.Join(base, "lock"), syscall.LOCK_EX)
	if err != nil {
		return "", nil, err
	}
	defer lock.Close()
	if err := prepare(ctx, prepared); err != nil {
		return "", nil, fmt.Errorf("preparing a data directory: %w", err)
	}
	if err := sweep(base); err != nil {
		return "", nil, err
	}
	own, err = os.MkdirTemp(base, "run-")
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(own, 0o755); err != nil { // the server's user has to pass
		return "", nil, err
	}
	owner, err = flock(filepath.Join(own, "owner"), syscall.LOCK_EX)
	return own, owner, err
}

func prepare(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	pg, err := embedded.Start(ctx, embedded.Options{StateDir: unfinished, Settings: settings})
	if err != nil {
		return err
	}
	_, err = openServer(ctx, pg.URL())
	if err := errors.Join(err, pg.Stop(ctx)); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

func sweep(base string) error {
	runs, err := filepath.Glob(filepath.Join(base, "run-*"))
	if err != nil {
		return err
	}
	for _, run := range runs {
		owner, err := flock(filepath.Join(run, "owner"), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		_ = os.RemoveAll(run) // a server that is just ending may still write; the next sweep gets the rest
		_ = owner.Close()
	}
	return nil
}

func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
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
