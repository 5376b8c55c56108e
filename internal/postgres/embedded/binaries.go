package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Binaries are the programs of one PostgreSQL installation.
type Binaries struct {
	Dir   string
	Env   []string // what they need in their environment
	Major int
}

// Finder looks for the programs.
type Finder struct {
	Getenv func(string) string
	Glob   string
}

// DefaultFinder looks where the machine keeps them.
func DefaultFinder() *Finder {
	return &Finder{Getenv: os.Getenv, Glob: "/usr/lib/postgresql/*/bin"}
}

// Find returns the first programs that run.
func (f *Finder) Find(ctx context.Context, cache string, major int, log *slog.Logger) (Binaries, error) {
	var dirs []string
	if dir := f.Getenv("PG_BINDIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	found, err := filepath.Glob(f.Glob)
	if err != nil {
		return Binaries{}, err
	}
	slices.Reverse(found)
	dirs = append(dirs, found...)
	var errs []error
	for _, dir := range dirs {
		b, err := inspect(ctx, dir, nil)
		if err == nil {
			return b, nil
		}
		errs = append(errs, err)
	}
	return Binaries{}, errors.Join(errs...)
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(ctx context.Context, dir string, env []string) (Binaries, error) {
	b := Binaries{Dir: dir, Env: env}
	out, err := b.command(ctx, nil, "postgres", "--version").Output()
	if err != nil {
		return b, err
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return b, fmt.Errorf("unexpected version line %q", out)
	}
	b.Major, err = strconv.Atoi(string(m[1]))
	return b, err
}
