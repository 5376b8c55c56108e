package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clients is where the scripts and the lock file of their packages are.
const clients = "../apitest/npm"

var install = sync.OnceValues(func() ([]byte, error) {
	if _, err := os.Stat(filepath.Join(clients, "node_modules", ".package-lock.json")); err == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = clients
	return cmd.CombinedOutput()
})

// script runs a script of other people's clients against the server. Without node the test is skipped, in CI it fails; with node it
// fails where the packages are missing and cannot be installed.
func (w *world) script(t *testing.T, name, mode string, ready func()) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("node is not installed: make deps installs it")
		}
		t.Skip("node is not installed")
	}
	if out, err := install(); err != nil {
		t.Fatalf("npm ci in %s: %v\n%s", clients, err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", name, w.url+"/graphql", tokenAlice, mode)
	cmd.Dir = clients
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := follow(stdout, ready)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, mode, err, out, stderr.String())
	}
	return out
}

// follow reads to the end, and calls ready at the line that says so.
func follow(r io.Reader, ready func()) string {
	var out strings.Builder
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		out.WriteString(scanner.Text() + "\n")
		if ready != nil && strings.HasPrefix(scanner.Text(), "ready") {
			ready()
		}
	}
	return out.String()
}

func TestGraphQLOverHTTPAudits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	out := w.script(t, "audit.mjs", "", nil)
	if !strings.HasSuffix(out, "61 of 61 ok\n") {
		t.Error(out)
	}
	t.Log(out)
}

func TestClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ script, mode string }{
		{"websocket.mjs", "happy"},
		{"websocket.mjs", "refused"},
		{"websocket.mjs", "expired"},
		{"websocket.mjs", "drain"},
		{"websocket.mjs", "protocol"},
		{"sse.mjs", "happy"},
		{"sse.mjs", "refused"},
		{"sse.mjs", "drain"},
	} {
		t.Run(c.script+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.script(t, c.script, c.mode, w.close)
			eventually(t, "no subscription runs on", func() bool {
				w.subscriptions.mu.Lock()
				defer w.subscriptions.mu.Unlock()
				return w.subscriptions.open == 0
			})
		})
	}
}
