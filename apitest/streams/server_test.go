package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a replica of `compute-api serve` on the database of a world.
type server struct {
	url  string
	pid  int
	stop func() // asks it to end
}

// callers have a token each, by which they may follow the runs of the tenant.
func callers(n int) (tokens []string) {
	for i := range n {
		tokens = append(tokens, fmt.Sprintf("streams-token-%d", i))
	}
	return tokens
}

// startServer starts a replica that serves these tokens, and stops it with the test.
func (w *world) startServer(t testing.TB, tokens []string) *server {
	t.Helper()
	var known, bindings []map[string]any
	for i, token := range tokens {
		subject := fmt.Sprint("user:", i)
		known = append(known, map[string]any{"token": token, "subject": subject})
		bindings = append(bindings, map[string]any{"subject": subject, "role": "provider-viewer", "object": "compute-tenant/" + tenant})
	}
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"listen": "127.0.0.1:0", "stateDir": dir, "database": map[string]any{"url": w.url, "maxConns": 12},
		"auth": map[string]any{"allowStaticTokens": true, "tokens": known}, "authz": map[string]any{"bindings": bindings},
		"providers": []map[string]any{{"name": "ssh"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), serverBinary(t), "serve", "--config", config) // stopped below
	log := &readyLog{listen: make(chan string, 1)}
	cmd.Stderr = log
	ended, err := start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	gone := false
	t.Cleanup(func() {
		if gone {
			return
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the server ended with %v; its log:\n%s", err, log.text())
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("the server does not stop")
		}
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", log.end(20_000))
		}
	})
	select {
	case listen := <-log.listen:
		return &server{url: "http://" + listen, pid: cmd.Process.Pid, stop: func() { _ = cmd.Process.Signal(syscall.SIGTERM) }}
	case err := <-ended:
		gone = true
		t.Fatalf("the server ended: %v; its log:\n%s", err, log.text())
	case <-time.After(patience):
		t.Fatalf("the server does not get ready; its log:\n%s", log.text())
	}
	return nil
}

// readyLog finds in the log where the server listens.
type readyLog struct {
	mu     sync.Mutex
	all    bytes.Buffer
	listen chan string
}

func (l *readyLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct{ Msg, Listen string }
	if json.Unmarshal(p, &line) == nil && line.Msg == "ready" {
		l.listen <- line.Listen
	}
	return l.all.Write(p)
}

// end is the last n bytes of it.
func (l *readyLog) end(n int) string {
	all := l.text()
	return all[max(0, len(all)-n):]
}

func (l *readyLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// metric reads one figure of /metrics.
func (s *server) metric(t testing.TB, name string) float64 {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
