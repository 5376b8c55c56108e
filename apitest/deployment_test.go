package apitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/provider/sim/cloud"
)

// deployment is what one or more servers share: a database, a PKI, a key, a simulated cloud and the configuration.
type deployment struct {
	dir      string
	database string // its URL
	db       *postgres.DB
	cloudDir string
	cloudURL string
	settings map[string]any // the configuration file
	callers  map[string]string
	env      []string // beside this process's own
}

// newDeployment has no caller yet. The simulated cloud delivers and installs within moments.
func newDeployment(t testing.TB) *deployment {
	t.Helper()
	d := &deployment{dir: t.TempDir(), database: pgtest.URL(t), callers: map[string]string{}}
	db, err := postgres.Open(t.Context(), postgres.Options{URL: d.database, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	d.db = db
	t.Cleanup(db.Close)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	planted.add("the key of the secret store", string(key))
	keyFile := filepath.Join(d.dir, "secret.key")
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Init(filepath.Join(d.dir, "pki"), "compute.test"); err != nil {
		t.Fatal(err)
	}
	d.settings = map[string]any{
		"listen": "127.0.0.1:0", "stateDir": d.dir, "agent": map[string]any{"listen": "127.0.0.1:0"},
		"database":  map[string]any{"url": d.database, "maxConns": 12},
		"providers": []any{map[string]any{"name": "sim", "endpoint": d.startCloud(t)}, map[string]any{"name": "ssh", "allowLoopback": true}},
		"secrets":   map[string]any{"store": map[string]any{"keyFile": keyFile}},
		"bootstrap": map[string]any{"agentBinaries": programs.Dir(t), "trustDomain": "compute.test", "ordersPerHour": 0},
		"graphql":   map[string]any{"introspection": true},
		"limits": map[string]any{
			"drainNotice":   "0s",                        // nobody but TestRollingRestart would make use of it
			"operationTime": "1m", "operationWait": "1m", // where tests of other packages run beside this one
			"pointsPerSecond": 1 << 30, "pointsAtMost": 1 << 30, "tenantPointsPerSecond": 1 << 30, "tenantPointsAtMost": 1 << 30,
		},
		"auth":  map[string]any{"allowStaticTokens": true, "tokens": []any{}},
		"authz": map[string]any{"bindings": []any{}},
	}
	return d
}

func (d *deployment) startCloud(t testing.TB) (endpoint string) {
	t.Helper()
	d.cloudDir = filepath.Join(d.dir, "cloud")
	c, err := cloud.Open(cloud.Options{
		Dir: d.cloudDir, AgentBinary: programs.Program(t, "bcd"), ReadyDelay: 20 * time.Millisecond, InstallDelay: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := c.Close(); err != nil {
			t.Errorf("closing the cloud: %v", err)
		}
	})
	d.cloudURL = s.URL
	return s.URL
}

// caller makes a caller with bindings "role object" or, to deny, "!role object", and returns the token. Before serve.
func (d *deployment) caller(subject string, bindings ...string) (token string) {
	if token, known := d.callers[subject]; known {
		return token
	}
	token = newSecret()
	d.callers[subject] = token
	d.append("auth", "tokens", map[string]any{"token": token, "subject": subject})
	for _, b := range bindings {
		role, object, _ := strings.Cut(b, " ")
		effect := "allow"
		if denied, ok := strings.CutPrefix(role, "!"); ok {
			role, effect = denied, "deny"
		}
		d.append("authz", "bindings", map[string]any{"subject": subject, "role": role, "object": object, "effect": effect})
	}
	return token
}

func (d *deployment) append(section, list string, item any) {
	in := d.settings[section].(map[string]any)
	items, _ := in[list].([]any)
	in[list] = append(items, item)
}

// process is one running server.
type process struct {
	*harness.Process
	url  string
	http *http.Client
}

// serve starts the server as a process and waits until it is ready. At the end of the test it is stopped, and its log and its
// database are searched for secrets.
func (d *deployment) serve(t testing.TB) *process {
	t.Helper()
	s := d.start(t)
	t.Cleanup(func() {
		s.stop(t)
		for _, found := range planted.searchDatabase(t, d.database) {
			t.Errorf("the database gives away %s", found)
		}
	})
	s.waitReady(t)
	return s
}

// start starts the server and does not wait for it.
func (d *deployment) start(t testing.TB) *process {
	t.Helper()
	return newProcess(harness.Serve(t, programs.Program(t, "compute-api"), harness.Config(t, d.settings), new(harness.Log), d.env...))
}

func newProcess(p *harness.Process) *process {
	return &process{Process: p, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: harness.Patience}}
}

func (s *process) waitReady(t testing.TB) {
	t.Helper()
	s.url = s.Ready(t)
}

// stop ends the process in order, once, and looks at what it has logged.
func (s *process) stop(t testing.TB) {
	t.Helper()
	s.http.CloseIdleConnections()
	if err := s.Stop(harness.Patience); err != nil {
		t.Errorf("the server was given %s and ended with %v; its log:\n%s", harness.Patience, err, s.Log.Text())
	}
	if name := planted.in(s.Log.Bytes()); name != "" {
		t.Errorf("the log gives away %s", name)
	}
	if bytes.Contains(s.Log.Bytes(), []byte("DATA RACE")) {
		t.Errorf("the server had a data race:\n%s", s.Log.Text())
	}
}

// answer is a response as it came.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request, and looks for secrets in its answer. An empty token sends no credential.
func (s *process) send(t testing.TB, method, path, token, contentType string, body []byte) answer {
	t.Helper()
	a, err := s.try(t.Context(), method, path, token, contentType, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

var errGaveAway = errors.New("the answer gives a secret away")

func (s *process) try(ctx context.Context, method, path, token, contentType string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return answer{}, err
	}
	var head bytes.Buffer
	_ = resp.Header.Write(&head) // to memory
	if planted.in(a.body) != "" || planted.in(head.Bytes()) != "" {
		return answer{}, errGaveAway
	}
	return a, nil
}
