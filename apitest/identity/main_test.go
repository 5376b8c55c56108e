// Package identity holds the server to what it promises about credentials: a real OpenID Connect provider, two replicas, and callers
// over every transport.
//
// It has no code but tests. The invariant: what each test waits for comes from the outside, an answer, an event or the end of a
// stream.
package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"better/compute/internal/postgres/pgtest"
)

const (
	// patience is how long anything may take on a busy machine.
	patience = 60 * time.Second

	// shortLife is that of a credential whose end a test waits for: long enough to open streams with it.
	shortLife = 8 * time.Second
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, pgtest.IgnoreServer(), goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
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

func binary(t testing.TB, name string) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, name)
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "identity-")
	if err != nil {
		return "", err
	}
	var errs []error
	for in, what := range map[string]string{"../..": "./cmd/compute-api", "provider": "."} {
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir+"/", what)
		cmd.Dir = in
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("building %s: %w\n%s", what, err, out))
		}
	}
	return dir, errors.Join(errs...)
}
