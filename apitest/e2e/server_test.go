package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/postgres/pgtest"
)

// The tenants and who administers them.
const (
	rack, other            = "rack", "other"
	aliceToken, otherToken = "e2e-canary-alice", "e2e-canary-other"
)

// server is `compute-api serve` with a database of its own. It can be killed and started again at the same addresses.
type server struct {
	*harness.Process  // of its present life
	at                netip.Addr
	url, agentAddress string

	t       testing.TB
	config  string // the file
	log     harness.Log
	secrets []string
}

// startServer starts a server that machines reach at the address, and stops it with the test. Its log must then hold no secret.
func startServer(t testing.TB, at netip.Addr, limits map[string]string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{
		t: t, at: at, agentAddress: harness.FreeAddress(t, at.String()), secrets: []string{aliceToken, otherToken},
	}
	listen := harness.FreeAddress(t, at.String())
	s.url = "http://" + listen
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	writeFile(t, filepath.Join(dir, "secret.key"), key)
	s.config = harness.Config(t, map[string]any{
		"listen": listen, "stateDir": filepath.Join(dir, "state"), "database": map[string]any{"url": pgtest.URL(t)},
		"auth": map[string]any{"allowStaticTokens": true, "tokens": []map[string]any{
			{"token": aliceToken, "subject": "user:alice"}, {"token": otherToken, "subject": "user:other"},
		}},
		"authz": map[string]any{"bindings": []map[string]any{
			{"subject": "user:alice", "role": "tenant-admin", "object": "compute-tenant/" + rack},
			{"subject": "user:other", "role": "tenant-admin", "object": "compute-tenant/" + other},
		}},
		"providers": []map[string]any{{"name": "ssh"}},
		"secrets":   map[string]any{"store": map[string]any{"keyFile": filepath.Join(dir, "secret.key")}},
		"bootstrap": map[string]any{
			"agentURL": "https://" + s.agentAddress, "agentBinaries": agentBuild.Dir(t), "trustDomain": "compute.test", "limits": limits,
		},
		"pki":   map[string]any{"dir": filepath.Join(dir, "pki")},
		"agent": map[string]any{"listen": s.agentAddress, "heartbeat": "1s"},
	})
	init := exec.CommandContext(t.Context(), serverBuild.Program(t, "compute-api"), "pki", "init", "--config", s.config)
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("pki init: %v\n%s", err, out)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *server) start() {
	s.t.Helper()
	s.Process = harness.Serve(s.t, serverBuild.Program(s.t, "compute-api"), s.config, &s.log)
	s.Ready(s.t)
}

func (s *server) stop() {
	if err := s.Stop(harness.Patience); err != nil {
		s.t.Errorf("the server did not stop cleanly: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	log := s.log.Bytes()
	for _, secret := range s.secrets {
		if bytes.Contains(log, []byte(secret)) {
			s.t.Errorf("the server's log holds a secret that begins with %.12q", secret)
		}
	}
	if found := joinToken.Find(log); found != nil {
		s.t.Error("the server's log holds a join token")
	}
	if s.t.Failed() {
		s.t.Logf("log of the server:\n%s", log)
	}
}

// keepSecret makes sure that no line of a value is ever logged.
func (s *server) keepSecret(value string) {
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			s.secrets = append(s.secrets, line)
		}
	}
}

// joinToken is what a join token looks like, wherever it is.
var joinToken = regexp.MustCompile(`bcj1\.boot_[0-9a-z]+\.[0-9]+\.[A-Za-z0-9_-]{20,}`)

// caller is somebody with a credential.
type caller struct {
	*server
	token, tenant string
}

func (s *server) alice() caller { return caller{s, aliceToken, rack} }
func (s *server) other() caller { return caller{s, otherToken, other} }

// refusal is the first error of an answer.
type refusal struct {
	Message    string
	Extensions struct {
		Code    string
		Details map[string]any
	}
	text string // all of it, as it came
}

// ask runs one operation and reads its data.
func ask[T any](c caller, document string, variables map[string]any) (data T, refused *refusal) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Data   T
		Errors []json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		c.t.Fatalf("the answer with status %s: %v", resp.Status, err)
	}
	if len(answer.Errors) == 0 {
		return answer.Data, nil
	}
	refused = &refusal{text: string(answer.Errors[0])}
	if err := json.Unmarshal(answer.Errors[0], refused); err != nil {
		c.t.Fatal(err)
	}
	return answer.Data, refused
}

// must is ask for what has to succeed.
func must[T any](c caller, document string, variables map[string]any) T {
	c.t.Helper()
	data, refused := ask[T](c, document, variables)
	if refused != nil {
		c.t.Fatalf("%s\nwas refused: %s", document, refused.text)
	}
	return data
}

// change makes a mutation of the tenant and returns the fields of its payload.
func change[T any](c caller, mutation, input, fields string, values map[string]any) (payload T, refused *refusal) {
	c.t.Helper()
	values["tenantId"] = c.tenant
	document := fmt.Sprintf("mutation($input: %s!) { payload: %s(input: $input) %s }", input, mutation, fields)
	data, refused := ask[struct{ Payload T }](c, document, map[string]any{"input": values})
	return data.Payload, refused
}

func mustChange[T any](c caller, mutation, input, fields string, values map[string]any) T {
	c.t.Helper()
	payload, refused := change[T](c, mutation, input, fields, values)
	if refused != nil {
		c.t.Fatalf("%s was refused: %s", mutation, refused.text)
	}
	return payload
}
