package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"better/compute/internal/pki"
)

// The test binary is bcd itself when this is set, so that real processes with real signals are tested.
const asBCD = "BCD_TEST_AS_BCD"

func TestMain(m *testing.M) {
	if os.Getenv(asBCD) != "" {
		main()
	}
	os.Exit(m.Run())
}

func bcd(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asBCD+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{nil, exitUsage, "", "bcd run --config FILE"},
		{[]string{"fly"}, exitUsage, "", "bcd run --config FILE"},
		{[]string{"help"}, exitOK, "bcd run --config FILE", ""},
		{[]string{"version"}, exitOK, "dev\n", ""},
		{[]string{"run", "--wings"}, exitUsage, "", "wings"},
		{[]string{"run", "extra"}, exitUsage, "", ""},
		{[]string{"run", "--config", "/nowhere/x.json"}, exitUsage, "", "/nowhere/x.json"},
	} {
		cmd, stdout, stderr := bcd(t, tc.args...)
		if code := exitCode(t, cmd); code != tc.code || !strings.Contains(stdout.String(), tc.out) || !strings.Contains(stderr.String(), tc.err) {
			t.Errorf("bcd %v: exit %d, stdout %q, stderr %q", tc.args, code, stdout, stderr)
		}
	}
}

// listener answers each path with what answer says, over TLS of a real CA.
func listener(t *testing.T, answer func(ca *pki.CA, path, csr string) (int, any)) (config string, ca *pki.CA) {
	t.Helper()
	ca, err := pki.Init(t.TempDir(), "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			CSR string `json:"csr"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		status, body := answer(ca, r.URL.Path, in.CSR)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}))
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	cert, err := ca.ServerCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	ts.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool(), MinVersion: tls.VersionTLS13}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return configure(t, ts.URL, ca), ca
}

func configure(t *testing.T, server string, ca *pki.CA) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]string{
		"server": server, "caPin": ca.Pin(), "tokenFile": filepath.Join(dir, "token"),
		"stateDir": filepath.Join(dir, "state"), "root": dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	for name, content := range map[string][]byte{path: text, filepath.Join(dir, "token"): []byte("canary-token")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func refusal(code, reason string) map[string]any {
	return map[string]any{"error": map[string]any{
		"code": code, "message": "No.", "details": map[string]any{"reason": reason},
	}}
}

func TestRefusedExitsWith3(t *testing.T) {
	t.Parallel()
	config, _ := listener(t, func(*pki.CA, string, string) (int, any) {
		return http.StatusForbidden, refusal("FORBIDDEN", "TOKEN_EXPIRED")
	})
	cmd, _, stderr := bcd(t, "run", "--config", config)
	if code := exitCode(t, cmd); code != exitRefused {
		t.Errorf("exit %d, want %d", code, exitRefused)
	}
	if !strings.Contains(stderr.String(), "TOKEN_EXPIRED") || strings.Contains(stderr.String(), "canary") {
		t.Errorf("the log: %s", stderr)
	}
	for line := range strings.Lines(stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is not JSON: %s", line)
		}
	}
}

func TestRemovedExitsWith4(t *testing.T) {
	t.Parallel()
	config, _ := listener(t, func(ca *pki.CA, path, csr string) (int, any) {
		if path != "/v1/join" {
			return http.StatusForbidden, refusal("FORBIDDEN", "HOST_REMOVED")
		}
		return join(ca, csr)
	})
	cmd, _, stderr := bcd(t, "run", "--config", config)
	if code := exitCode(t, cmd); code != exitRemoved {
		t.Errorf("exit %d, want %d: %s", code, exitRemoved, stderr)
	}
}

func join(ca *pki.CA, csr string) (int, any) {
	key, err := pki.ParseCSR([]byte(csr))
	if err != nil {
		return http.StatusBadRequest, refusal("INVALID_INPUT", "")
	}
	const host = "host_01hzy3v7k8m9n0p1q2r3s4t5v6"
	signed, err := ca.SignHost(pki.HostProfile{TenantID: "acme", HostID: host, PublicKey: key, Now: time.Now(), Life: time.Hour})
	if err != nil {
		return http.StatusInternalServerError, refusal("INTERNAL", "")
	}
	return http.StatusOK, map[string]any{
		"hostId": host, "tenantId": "acme", "heartbeatSeconds": 60, "caBundle": string(ca.Bundle()),
		"certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.DER})),
	}
}

func TestSIGTERMStopsWhateverItDoes(t *testing.T) {
	t.Parallel()
	beats := make(chan struct{}, 1)
	serving, ca := listener(t, func(ca *pki.CA, path, csr string) (int, any) {
		if path == "/v1/join" {
			return join(ca, csr)
		}
		beats <- struct{}{}
		return http.StatusOK, map[string]any{"heartbeatSeconds": 3600}
	})
	// A server that takes the connection and never says a word.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	accepted := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			accepted <- struct{}{}
		}
	}()
	for name, tc := range map[string]struct {
		config string
		busy   chan struct{}
	}{
		"between heartbeats": {serving, beats},
		"in a join":          {configure(t, "https://"+silent.Addr().String(), ca), accepted},
	} {
		cmd, _, stderr := bcd(t, "run", "--config", tc.config)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-tc.busy:
		case err := <-done:
			t.Fatalf("%s: bcd ended: %v: %s", name, err, stderr)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v: %s", name, err, stderr)
			}
		case <-time.After(3 * time.Minute):
			t.Errorf("%s: still running minutes after SIGTERM", name)
		}
	}
}

// The state must be good after a kill at any time; the join is repeated until it is kept.
func TestKill9NeverBreaksTheState(t *testing.T) {
	t.Parallel()
	joined := make(chan struct{}, 100)
	config, _ := listener(t, func(ca *pki.CA, path, csr string) (int, any) {
		if path == "/v1/join" {
			joined <- struct{}{}
			return join(ca, csr)
		}
		return http.StatusServiceUnavailable, refusal("UNAVAILABLE", "")
	})
	state := filepath.Join(filepath.Dir(config), "state")
	for range 20 {
		cmd, _, stderr := bcd(t, "run", "--config", config)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-joined: // the answer is under way
		case err := <-done:
			t.Fatalf("bcd ended: %v: %s", err, stderr)
		case <-time.After(100 * time.Millisecond): // joined in an earlier round, and serving
		}
		_ = cmd.Process.Kill()
		<-done
		if text, err := os.ReadFile(filepath.Join(state, "host.json")); err == nil && !json.Valid(text) {
			t.Fatalf("host.json is broken: %q", text)
		}
		if text, err := os.ReadFile(filepath.Join(state, "key.pem")); err == nil {
			block, _ := pem.Decode(text)
			if block == nil {
				t.Fatal("key.pem is broken")
			}
			if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
}
