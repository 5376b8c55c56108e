// Package torture proves that no machine is ordered twice and none is lost: two servers as processes on one database, a simulated cloud
// as a process of its own, and a test that kills, stops and misleads them.
//
// It has no code but tests, each of which prints one line of figures with its seed. The invariant: the judge is what the servers cannot
// write, the ledger of the cloud and a log of the database's own, and never what a server says of itself.
package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"better/compute/internal/postgres/pgtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, pgtest.IgnoreServer(), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.dir)
		os.Exit(code)
	}))
}

// built is where the programs of this test run are, made by the first test that needs them.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program is the path of the server with fault points, or of the joiner.
func program(t testing.TB, name string) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, name)
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "torture-")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "faults", "-o", dir+"/", "./cmd/compute-api", "./apitest/torture/joiner")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building what is tortured: %w\n%s", err, out)
	}
	return dir, nil
}

// number is what the environment says of how much to do, or the small figure of a plain `go test`.
func number(t testing.TB, variable string, small int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s must be a number from 1 on, not %q", variable, text)
	}
	return n
}

// seedOf is SEED, or a new one. All that a test leaves to chance comes from it.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEED must be a number, not %q", text)
	}
	return seed
}

// verdict prints the one line of figures.
func verdict(t testing.TB, seed uint64, format string, args ...any) {
	t.Helper()
	word := "PASS"
	if t.Failed() {
		word = "FAIL"
	}
	fmt.Printf("%s %s %s seed=%d\n", t.Name(), fmt.Sprintf(format, args...), word, seed)
}
