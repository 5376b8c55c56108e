package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/apitest/harness"
)

// clients is where the packages of the watchers are.
const clients = "../npm"

// The transports, each with the client that other people wrote for it.
const (
	webSocket = "graphql-ws"
	events    = "graphql-sse"
)

// message is what a watcher prints for each message of its stream.
type message struct {
	Cursor, ID string
	transition
}

// watcher is a node process that follows bootstraps.
type watcher struct {
	*harness.Process
	name string

	caller caller
	t      testing.TB
	done   chan struct{} // closed when it has ended and all it printed is read

	mu   sync.Mutex
	seen []message
}

// watch follows what the variables of the subscription say, tenantId left out.
func (c caller) watch(transport string, variables map[string]any) *watcher {
	c.t.Helper()
	if _, err := os.Stat(clients + "/node_modules/" + transport); err != nil {
		c.t.Fatalf("the watchers need node and its packages; `make deps` installs them: %v", err)
	}
	variables["tenantId"] = c.tenant
	text, err := json.Marshal(variables)
	if err != nil {
		c.t.Fatal(err)
	}
	w := &watcher{name: transport + " " + string(text), caller: c, t: c.t, done: make(chan struct{})}
	cmd := exec.CommandContext(context.Background(), "node", "follow.mjs", transport, c.url+"/graphql", c.token, string(text)) // killed with the test
	cmd.Dir = clients
	read, write := io.Pipe()
	cmd.Stdout = write
	w.Process = harness.Start(c.t, cmd, new(harness.Log))
	go func() {
		<-w.Done()
		_ = write.Close()
	}()
	go w.read(read)
	c.t.Cleanup(w.kill)
	return w
}

func (w *watcher) read(r io.Reader) {
	defer close(w.done)
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		var m message
		if err := json.Unmarshal(scanner.Bytes(), &m); err != nil {
			m.ID = scanner.Text() // equal to no run's
		}
		w.mu.Lock()
		w.seen = append(w.seen, m)
		w.mu.Unlock()
	}
}

// kill ends it without any goodbye.
func (w *watcher) kill() {
	w.Kill()
	<-w.done
}

// pause makes it miss what goes on, until wake.
func (w *watcher) pause() { w.signal(syscall.SIGSTOP) }
func (w *watcher) wake()  { w.signal(syscall.SIGCONT) }

func (w *watcher) signal(s os.Signal) {
	w.t.Helper()
	if err := w.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// resume kills it, and returns one that goes on from what it saw last.
func (w *watcher) resume(transport string) *watcher {
	w.t.Helper()
	w.kill()
	seen := w.all()
	next := w.caller.watch(transport, map[string]any{"after": seen[len(seen)-1].Cursor})
	next.mu.Lock()
	defer next.mu.Unlock()
	next.seen = append(seen, next.seen...)
	return next
}

// all is every message so far, those of the watchers that it goes on from included.
func (w *watcher) all() []message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// of is what it saw of one run.
func (w *watcher) of(runID string) []transition {
	var steps []transition
	for _, m := range w.all() {
		if m.ID == runID {
			steps = append(steps, m.transition)
		}
	}
	return steps
}

// awaitCount polls until it saw so many messages of a run.
func (w *watcher) awaitCount(runID string, n int) {
	w.t.Helper()
	harness.Await(w.t, w.name+" sees the run", func() bool {
		w.mustLive()
		return len(w.of(runID)) >= n
	})
}

func (w *watcher) mustLive() {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("%s ended: %v\n%s", w.name, w.Err(), w.Log.Text())
	default:
	}
}

// awaitEnd waits until its stream is complete.
func (w *watcher) awaitEnd() {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(harness.Patience):
		w.t.Fatalf("%s does not end; it saw %+v", w.name, w.all())
	}
	if w.Err() != nil {
		w.t.Fatalf("%s failed: %v\n%s", w.name, w.Err(), w.Log.Text())
	}
}

// checkSaw compares what a watcher of the whole tenant sees of a run with its history: each transition once, in order.
func checkSaw(t testing.TB, w *watcher, r run) {
	t.Helper()
	w.awaitCount(r.ID, len(r.History))
	if diff := cmp.Diff(r.History, w.of(r.ID)); diff != "" {
		t.Errorf("%s saw something else than the history of %s (-history +seen):\n%s", w.name, r.ID, diff)
	}
}

// checkSawTheRest is for a watcher of one run, whose first message is the state in which it found the run, and whose stream completes by
// itself.
func checkSawTheRest(t testing.TB, w *watcher, r run) {
	t.Helper()
	w.awaitEnd()
	seen := w.of(r.ID)
	if len(seen) != len(w.all()) || len(seen) == 0 || len(seen) > len(r.History) {
		t.Errorf("%s saw %+v; the history is %+v", w.name, w.all(), r.History)
		return
	}
	rest := slices.Clone(r.History[len(r.History)-len(seen):])
	rest[0].From = ""
	if diff := cmp.Diff(rest, seen); diff != "" {
		t.Errorf("%s saw something else than the history of %s (-history +seen):\n%s", w.name, r.ID, diff)
	}
}
