// Package apitest holds the whole server to the contract: the real binary as a process, a real PostgreSQL, a simulated cloud whose
// machines run the real agent, and callers that see nothing but HTTP.
//
// It has no code but tests. testdata has one story for each rule; the runner tells each over REST and over GraphQL and compares
// what they answer. The invariant: no secret that a test has planted is in any answer, log line or row that the package sees.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"better/compute/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, pgtest.IgnoreServer(), goleak.Cleanup(func(code int) {
		if dir := built.dir; dir != "" {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// built is where the binaries of this test run are. It is made by the first test that needs it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary is the path of a command of this repository, built from the present sources.
func binary(t testing.TB, name string) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, name)
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/compute-api", "./cmd/bcd")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building the server: %w\n%s", err, out)
	}
	// Where an installer looks for the agent of an architecture.
	var errs []error
	for _, arch := range []string{"amd64", "arm64"} {
		errs = append(errs, os.Link(filepath.Join(dir, "bcd"), filepath.Join(dir, "bcd-linux-"+arch)))
	}
	return dir, errors.Join(errs...)
}
