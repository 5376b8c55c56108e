// Package harness has what tests of whole servers stand on: it builds the programs of this repository, runs them as processes, keeps what they
// log, and lays wires to them that tests can cut.
//
// It knows neither what a server is configured to do nor what a test asks of it. The invariant: nothing that it has started outlives the test
// process, however that ends.
package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"better/compute/internal/leaktest"
	"better/compute/internal/postgres/pgtest"
)

// Patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const Patience = 5 * time.Minute

// Main runs the tests of a package, wants them to leave no goroutine behind, and removes what was built for them.
func Main(m *testing.M, builds ...*Build) {
	leaktest.Main(tests{m, builds}, pgtest.IgnoreServer())
}

type tests struct {
	*testing.M
	builds []*Build
}

func (t tests) Run() int {
	defer func() {
		for _, b := range t.builds {
			b.remove()
		}
	}()
	return t.M.Run()
}

// Await polls until it is so.
func Await(t testing.TB, what string, so func() bool) {
	t.Helper()
	AwaitFor(t, Patience, what, so)
}

// AwaitFor is Await with a patience of its own, for what is slow by nature.
func AwaitFor(t testing.TB, patience time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// Report prints the one line of figures of a harness, with the seed that repeats it, and adds it to the file that FIGURES names, since `go test`
// shows what a test prints only with -v or when it fails. Call it last: it says whether the test has failed.
func Report(t testing.TB, name string, seed uint64, format string, figures ...any) {
	t.Helper()
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	line := fmt.Sprintf("%s %s %s seed=%d\n", name, fmt.Sprintf(format, figures...), verdict, seed)
	fmt.Print(line)
	if file := os.Getenv("FIGURES"); file != "" {
		if err := add(file, line); err != nil {
			t.Errorf("the figures are not kept: %v", err)
		}
	}
}

// add writes the line in one piece, since the tests of several packages run at a time.
func add(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// FreeAddress is one of the host that nobody gets by chance: outside of the ports that the kernel gives out.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	for range 1000 {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(15000+rand.IntN(15000))))
		if err == nil {
			_ = ln.Close()
			return ln.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}
