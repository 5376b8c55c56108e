package harness

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

var agent = &Build{Packages: []string{"./cmd/bcd"}}

func TestMain(m *testing.M) { Main(m, agent) }

func sh(t *testing.T, script string, log *Log) *Process {
	t.Helper()
	p := Start(t, exec.CommandContext(t.Context(), "sh", "-c", script), log)
	t.Cleanup(p.Kill)
	return p
}

func is(want string) func([]byte) bool {
	return func(line []byte) bool { return string(line) == want }
}

// A line of an earlier life is none of this one, and the last words of a process count.
func TestLogOfTwoLives(t *testing.T) {
	t.Parallel()
	log := new(Log)
	first := sh(t, "echo one; echo half >&2; exit 3", log)
	first.AwaitLine(t, is("half"))
	<-first.Done()
	if !first.Dead() || first.Err() == nil {
		t.Errorf("it ended with %v", first.Err())
	}
	second := sh(t, "echo two; sleep 1000", log)
	second.AwaitLine(t, is("two"))
	if first.Log != second.Log || log.wait(second.from, first.done, is("one")) || log.End(4) != "two\n" {
		t.Errorf("the log:\n%s", log.Text())
	}
}

// A process that stands still can be killed, and one that will not stop is.
func TestEnds(t *testing.T) {
	t.Parallel()
	deaf := sh(t, "trap '' TERM; echo up; while :; do sleep 1; done", new(Log))
	deaf.AwaitLine(t, is("up"))
	if err := deaf.Stop(1); err == nil || !deaf.Dead() {
		t.Errorf("it stopped with %v", err)
	}
	paused := sh(t, "echo up; exec sleep 1000", new(Log))
	paused.AwaitLine(t, is("up"))
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	paused.Kill()
	if !paused.Dead() {
		t.Error("it lives")
	}
}

// What has been built stays what it is when another process builds the same again.
func TestBuild(t *testing.T) {
	t.Parallel()
	first := agent.Program(t, "bcd-linux-amd64")
	again := &Build{Packages: agent.Packages}
	t.Cleanup(again.remove)
	for _, path := range []string{first, again.Program(t, "bcd")} {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}
