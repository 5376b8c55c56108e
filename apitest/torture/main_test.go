// Package torture proves that no machine is ordered twice and none is lost: two servers as processes on one database, a simulated cloud
// as a process of its own, and a test that kills, stops and misleads them.
//
// It has no code but tests, each of which prints one line of figures with its seed. The invariant: the judge is what the servers cannot
// write, the ledger of the cloud and a log of the database's own, and never what a server says of itself.
package torture

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"better/compute/apitest/harness"
)

// programs are the server with fault points, and the agent of the simulated machines.
var programs = &harness.Build{Packages: []string{"./cmd/compute-api", "./apitest/torture/joiner"}, Args: []string{"-tags=faults"}}

func TestMain(m *testing.M) { harness.Main(m, programs) }

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
