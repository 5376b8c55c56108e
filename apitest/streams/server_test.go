package streams

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"better/compute/apitest/harness"
)

// server is a replica of `compute-api serve` on the database of a world.
type server struct {
	*harness.Process
	url string
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
	config := harness.Config(t, map[string]any{
		"listen": "127.0.0.1:0", "stateDir": t.TempDir(), "database": map[string]any{"url": w.url, "maxConns": 12},
		"auth": map[string]any{"allowStaticTokens": true, "tokens": known}, "authz": map[string]any{"bindings": bindings},
		"providers": []map[string]any{{"name": "ssh"}},
	})
	p := harness.Serve(t, programs.Program(t, "compute-api"), config, new(harness.Log))
	p.StopWith(t)
	return &server{Process: p, url: p.Ready(t)}
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
