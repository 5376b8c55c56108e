// Package e2e shows the main job with nothing in between: the real server as a process, real machines reached over SSH, the real
// agent on them, and the clients that other people wrote watching.
//
// It has no code but tests, which see the server only through its API and its log. The invariant: no test knows how the server is
// made, so each holds for any server that keeps the contract.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"better/compute/internal/postgres/pgtest"
)

// patience bounds every wait. It is for machines that are busy with other tests: success waits for nothing.
const patience = 90 * time.Second

// binaries is the directory with the server and the agent, made once for all tests.
var binaries string

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 { // else every test is skipped for want of machines
		if err := build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			_ = os.RemoveAll(binaries)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, pgtest.IgnoreServer(), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries)
		os.Exit(code)
	}))
}

// build builds as the Makefile does, with the same build cache.
func build() (err error) {
	if binaries, err = os.MkdirTemp("", "e2e-"); err != nil {
		return err
	}
	if err := buildOne("compute-api", "./cmd/compute-api"); err != nil {
		return err
	}
	return buildOne("bcd-linux-"+runtime.GOARCH, "./cmd/bcd", "CGO_ENABLED=0")
}

func buildOne(name, pkg string, env ...string) error {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", filepath.Join(binaries, name), pkg)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// start runs a program that dies with this one. The channel gives how it ended.
func start(t testing.TB, cmd *exec.Cmd) <-chan error {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The kernel takes the end of this thread for ours.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return ended
}

// await polls until it is so.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}
