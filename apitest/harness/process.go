package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs, until it is stopped or the test process ends.
type Process struct {
	Log *Log

	cmd  *exec.Cmd
	from int // where in the log its life begins
	done chan struct{}
	err  error
}

// Start starts a program. What it prints goes to the log, which may have that of an earlier life in it, unless the command says otherwise; so
// does the signal that it gets when the test process ends, which is SIGKILL.
func Start(t testing.TB, cmd *exec.Cmd, log *Log) *Process {
	t.Helper()
	p := &Process{Log: log, cmd: cmd, from: len(log.Text()), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	cmd.WaitDelay = time.Second // what it has started itself may hold on to its output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started a process for the end of its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return p
}

// Config writes a configuration file.
func Config(t testing.TB, settings map[string]any) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.yaml")
	text, err := json.Marshal(settings) // JSON is YAML
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Serve starts a server.
func Serve(t testing.TB, program, config string, log *Log, env ...string) *Process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "serve", "--config", config) // it ends with Stop or Kill
	cmd.Env = append(os.Environ(), env...)
	return Start(t, cmd, log)
}

// Ready waits until the server says at which address it listens, and that it is ready, and gives its URL.
func (p *Process) Ready(t testing.TB) (url string) {
	t.Helper()
	p.AwaitLine(t, func(line []byte) bool {
		var l struct{ Msg, Listen string }
		url = "http://"
		if json.Unmarshal(line, &l) == nil && l.Msg == "ready" {
			url += l.Listen
			return true
		}
		return false
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Patience}
	Await(t, "/readyz says so", func() bool {
		if p.Dead() {
			t.Fatalf("the server ended: %v; its log:\n%s", p.err, p.Log.End(20_000))
		}
		resp, err := client.Get(url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return url
}

// AwaitLine waits until the process has logged a line that matches.
func (p *Process) AwaitLine(t testing.TB, matches func(line []byte) bool) {
	t.Helper()
	if !p.Log.wait(p.from, p.done, matches) {
		t.Fatalf("waited in vain for a line of %s; its log:\n%s", p.cmd.Path, p.Log.End(20_000))
	}
}

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended, once it has.
func (p *Process) Err() error { return p.err }

// Dead reports whether it has ended.
func (p *Process) Dead() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends it as a power cut would.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may have ended
	<-p.done
}

var errDoesNotStop = errors.New("it does not stop")

// Stop asks it to end, and gives how it ended. What has not ended within the limit is killed. To repeat it changes nothing.
func (p *Process) Stop(limit time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		p.Kill()
		return errDoesNotStop
	}
}

// StopWith stops it when the test ends, which fails if it does not end well.
func (p *Process) StopWith(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.Stop(Patience); err != nil {
			t.Errorf("the server ended: %v", err)
		}
		if t.Failed() {
			t.Logf("the end of its log:\n%s", p.Log.End(20_000))
		}
	})
}

// Log gathers what a process prints. The zero value is empty.
type Log struct {
	mu      sync.Mutex
	all     bytes.Buffer
	changed chan struct{} // closed at the next write, once somebody waits for that
}

// Write is that of an [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.all.Write(p)
}

// Bytes is all of it.
func (l *Log) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.all.Bytes())
}

// Text is all of it.
func (l *Log) Text() string { return string(l.Bytes()) }

// End is the last n bytes of it.
func (l *Log) End(n int) string {
	all := l.Text()
	return all[max(0, len(all)-n):]
}

// wait blocks until a whole line matches; false when time or the process ends first.
func (l *Log) wait(from int, done <-chan struct{}, matches func(line []byte) bool) bool {
	deadline := time.After(Patience)
	for over := false; ; {
		text, changed := l.since(from)
		for line := range bytes.Lines(text) {
			if bytes.HasSuffix(line, []byte("\n")) && matches(bytes.TrimRight(line, "\n")) {
				return true
			}
		}
		if over {
			return false
		}
		select {
		case <-changed:
		case <-done:
			over = true // what it has printed last counts too
		case <-deadline:
			return false
		}
	}
}

func (l *Log) since(from int) (text []byte, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return bytes.Clone(l.all.Bytes()[from:]), l.changed
}
