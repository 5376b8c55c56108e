package harness

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// Build is a run of `go build` from the present sources, made when a test first wants a program of it. Test processes that build
// the same at a time, or one after the other, link it once.
type Build struct {
	Module   string   // its directory, from the root of the repository
	Packages []string // commands; what ./cmd/bcd makes is also where an installer looks for the agent of an architecture
	Args     []string
	Env      []string // beside this process's own

	once sync.Once
	dir  string
	err  error
}

// Program is the path of a command that was built.
func (b *Build) Program(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(b.Dir(t), name)
}

// Dir is where the programs are.
func (b *Build) Dir(t testing.TB) string {
	t.Helper()
	b.once.Do(func() { b.err = b.make() })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

func (b *Build) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// make links the programs from the directory that all test processes build in, so that they stay what they are when another builds anew.
func (b *Build) make() (err error) {
	root, err := findRoot()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "harness-"); err != nil {
		return err
	}
	what := sha256.Sum256(fmt.Append(nil, root, b.Module, b.Args, b.Env))
	shared := filepath.Join(os.TempDir(), fmt.Sprintf("compute-harness-%d-%x", os.Geteuid(), what[:6]))
	if err := os.MkdirAll(shared, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for another build: %w", err)
	}
	cmd := exec.CommandContext(context.Background(), "go", slices.Concat([]string{"build", "-o", shared + "/"}, b.Args, b.Packages)...)
	cmd.Dir = filepath.Join(root, b.Module)
	cmd.Env = append(os.Environ(), b.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %v: %w\n%s", b.Packages, err, out)
	}
	return b.take(shared)
}

func (b *Build) take(shared string) error {
	var errs []error
	for _, pkg := range b.Packages {
		name := filepath.Base(filepath.Join(b.Module, pkg))
		names := []string{name}
		if name == "bcd" {
			names = append(names, "bcd-linux-amd64", "bcd-linux-arm64")
		}
		for _, taken := range names {
			errs = append(errs, os.Link(filepath.Join(shared, name), filepath.Join(b.dir, taken)))
		}
	}
	return errors.Join(errs...)
}

// findRoot finds the repository, in one of whose directories the test runs.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the test does not run inside of the repository")
		}
		dir = up
	}
}
