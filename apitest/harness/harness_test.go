package harness

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
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

// A link that has fallen silent stays open, and no other falls silent with it.
func TestRelay(t *testing.T) {
	t.Parallel()
	echo := NewRelay(t, "127.0.0.1:0", func(client net.Conn) (net.Conn, bool, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = io.Copy(there, there)
			_ = there.Close()
		}()
		first := make([]byte, 1)
		_, err := client.Read(first)
		return here, first[0] == 'm', err
	})
	dial := func(kind string) net.Conn {
		conn, err := net.Dial("tcp", echo.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write([]byte(kind))
		return conn
	}
	says := func(conn net.Conn, patience time.Duration) bool {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err := conn.Write([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		return err == nil
	}
	marked, plain := dial("m"), dial("p")
	if !says(marked, Patience) || !says(plain, Patience) {
		t.Fatal("nothing comes back")
	}
	echo.Hush()
	if says(marked, 50*time.Millisecond) || !says(plain, Patience) || !says(dial("m"), Patience) {
		t.Error("another link has fallen silent than the one that should")
	}
}

// What a harness has found is to be read although it passed.
func TestFiguresAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.txt")
	t.Setenv("FIGURES", file)
	Report(t, "one", 7, "kills=%d", 3)
	Report(t, "two", 0, "lost=%d", 0)
	kept, err := os.ReadFile(file)
	if want := "one kills=3 PASS seed=7\ntwo lost=0 PASS seed=0\n"; err != nil || string(kept) != want {
		t.Errorf("%q, %v", kept, err)
	}
}
