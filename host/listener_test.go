package host_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/agent"
	"better/compute/apitest/harness"
	"better/compute/host"
	"better/compute/internal/pki"
	"better/compute/model"
)

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

// serve starts the agent listener and returns its address.
func (b *bundle) serve(t *testing.T) string {
	t.Helper()
	address, _ := b.serveAt(t, "127.0.0.1:0")
	return address
}

// serveAt is serve at an address, with a way to end it as a crash would: open connections break.
func (b *bundle) serveAt(t *testing.T, at string) (address string, end func()) {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	server := host.NewServer(b.hosts, b.ca, agents, slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	end = func() {
		_ = server.Close()
		wg.Wait()
	}
	t.Cleanup(end)
	return ln.Addr().String(), end
}

// clientTLS trusts the listener, and has the certificate if one is given.
func (b *bundle) clientTLS(t *testing.T, key crypto.Signer, certificate string) *tls.Config {
	t.Helper()
	// The listener's name is a URI; package agent shows how it is verified.
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	if certificate != "" {
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{leafOf(t, certificate).Raw}, PrivateKey: key}}
	}
	return c
}

// agents has one for amd64 only.
func agents(arch string) (io.ReadCloser, error) {
	if arch != "amd64" {
		return nil, os.ErrNotExist
	}
	return io.NopCloser(strings.NewReader("\x7fELF " + arch)), nil
}

// A machine without a certificate gets the agent, and nothing else by the same way.
func TestListenerGivesTheAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	transport := &http.Transport{TLSClientConfig: b.clientTLS(t, nil, "")}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	address := b.serve(t)
	for path, want := range map[string]int{
		"amd64": http.StatusOK, "arm64": http.StatusInternalServerError, "sparc": http.StatusNotFound, "..%2fca.key": http.StatusNotFound, "": http.StatusNotFound,
	} {
		response, err := client.Get("https://" + address + "/v1/agent/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || (want == http.StatusOK) != (string(body) == "\x7fELF amd64") {
			t.Errorf("%q: status %d, %q, %v", path, response.StatusCode, body, err)
		}
	}
}

// post sends one request on a connection of its own.
func post(t *testing.T, address string, config *tls.Config, path, body string) (status int, answer map[string]any) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	status, answer, err = exchange(conn, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

func exchange(conn net.Conn, path, body string) (status int, answer map[string]any, err error) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, answer, json.NewDecoder(resp.Body).Decode(&answer)
}

func codeOf(answer map[string]any) (code, reason string) {
	e, _ := answer["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	code, _ = e["code"].(string)
	reason, _ = details["reason"].(string)
	return code, reason
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestListenerRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := b.serve(t)
	_, token := b.run(t)
	good := marshal(t, joinRequest(t, token, newKey(t)))
	for name, tc := range map[string]struct {
		path, body string
		code       string
	}{
		"unknown field":    {"/v1/join", strings.Replace(good, `"clock"`, `"clok":1,"clock"`, 1), "INVALID_INPUT"},
		"duplicate key":    {"/v1/join", strings.Replace(good, `"clock"`, `"clock":"","clock"`, 1), "INVALID_INPUT"},
		"trailing data":    {"/v1/join", good + "{}", "INVALID_INPUT"},
		"wrong type":       {"/v1/join", `{"token":1}`, "INVALID_INPUT"},
		"NUL":              {"/v1/join", strings.Replace(good, `"h"`, `"\u0000"`, 1), "INVALID_INPUT"},
		"not JSON":         {"/v1/join", "token", "INVALID_INPUT"},
		"empty":            {"/v1/join", "", "INVALID_INPUT"},
		"too large":        {"/v1/join", strings.Replace(good, "{", "{"+strings.Repeat(" ", 16<<10), 1), "PAYLOAD_TOO_LARGE"},
		"no certificate":   {"/v1/heartbeat", `{"agentVersion":"1","clock":"","uptimeSeconds":1}`, "UNAUTHENTICATED"},
		"no certificate 2": {"/v1/renew", `{"csr":""}`, "UNAUTHENTICATED"},
		"no such call":     {"/v1/leave", `{}`, "NOT_FOUND"},
	} {
		_, answer := post(t, address, b.clientTLS(t, nil, ""), tc.path, tc.body)
		if code, _ := codeOf(answer); code != tc.code {
			t.Errorf("%s: %s, want %s", name, code, tc.code)
		}
	}
	if status, answer := post(t, address, b.clientTLS(t, nil, ""), "/v1/join", good); status != http.StatusOK {
		t.Errorf("the good one: %v", answer)
	}
}

func TestListenerSpeaksTLS13Only(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := b.serve(t)
	old := b.clientTLS(t, nil, "")
	old.MaxVersion = tls.VersionTLS12
	if conn, err := tls.Dial("tcp", address, old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 is spoken")
	}
	cached := b.clientTLS(t, nil, "")
	cached.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		conn, err := tls.Dial("tcp", address, cached)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := exchange(conn, "/v1/leave", "{}"); err != nil {
			t.Error(err)
		}
		if conn.ConnectionState().DidResume {
			t.Error("a session was resumed")
		}
		_ = conn.Close()
	}
}

func TestListenerRefusesOtherCAs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := b.serve(t)
	p, key := b.joined(t)
	thief, err := pki.Init(t.TempDir(), "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	forged, err := thief.SignHost(pki.HostProfile{
		TenantID: p.TenantID, HostID: p.HostID, PublicKey: key.Public(), Now: time.Now(), Life: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	config := b.clientTLS(t, nil, "")
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{forged.DER}, PrivateKey: key}}
	conn, err := tls.Dial("tcp", address, config)
	if err == nil {
		_, answer, exchangeErr := exchange(conn, "/v1/heartbeat", `{}`)
		_ = conn.Close()
		if exchangeErr == nil {
			t.Errorf("a forged certificate got %v", answer)
		}
	}
	// A certificate of the right CA that was never written down is as good as none.
	unwritten, err := b.ca.SignHost(pki.HostProfile{
		TenantID: p.TenantID, HostID: p.HostID, PublicKey: key.Public(), Now: time.Now(), Life: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{unwritten.DER}, PrivateKey: key}}
	status, answer := post(t, address, config, "/v1/heartbeat", `{"agentVersion":"1","clock":"","uptimeSeconds":1}`)
	if _, reason := codeOf(answer); status != http.StatusForbidden || reason != "HOST_REMOVED" {
		t.Errorf("a certificate that was never written down: %d %v", status, answer)
	}
}

func TestRemovalCountsOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := b.serve(t)
	_, token := b.run(t)
	key := newKey(t)
	out, err := b.hosts.Join(t.Context(), joinRequest(t, token, key))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", address, b.clientTLS(t, key, out.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const beat = `{"agentVersion":"1","clock":"","uptimeSeconds":1}`
	for range 3 {
		if status, answer, err := exchange(conn, "/v1/heartbeat", beat); status != http.StatusOK {
			t.Fatalf("heartbeat: %d %v %v", status, answer, err)
		}
	}
	if _, err := b.hosts.Remove(b.admin, model.RemoveHostInput{TenantID: tenant, HostID: out.HostID}); err != nil {
		t.Fatal(err)
	}
	status, answer, err := exchange(conn, "/v1/heartbeat", beat)
	if _, reason := codeOf(answer); err != nil || status != http.StatusForbidden || reason != "HOST_REMOVED" {
		t.Errorf("after the removal: %d %v %v", status, answer, err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
	renewal := marshal(t, host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})})
	status, answer = post(t, address, b.clientTLS(t, key, out.Certificate), "/v1/renew", renewal)
	if _, reason := codeOf(answer); status != http.StatusForbidden || reason != "HOST_REMOVED" {
		t.Errorf("renewing on a new connection: %d %v", status, answer)
	}
}

func TestCertificateThatEndsOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *host.Deps) { d.CertificateLife = 10 * time.Second })
	address := b.serve(t)
	_, token := b.run(t)
	key := newKey(t)
	out, err := b.hosts.Join(t.Context(), joinRequest(t, token, key))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", address, b.clientTLS(t, key, out.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	deadline := time.Now().Add(patience)
	for {
		status, answer, err := exchange(conn, "/v1/heartbeat", `{"agentVersion":"1","clock":"","uptimeSeconds":1}`)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusUnauthorized {
			if time.Now().Before(out.NotAfter.Time) {
				t.Errorf("it ended early: %v", answer)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a certificate that has ended still works")
		}
	}
}

// The two ends of the protocol are written apart, so this is where they meet: bcd's own code against the listener.
func TestAgentLivesItsWholeLife(t *testing.T) {
	t.Parallel()
	b := setupRenewing(t)
	bcd := b.startAgent(t, b.serve(t), b.ca.Pin())
	bcd.awaitRenewals(t, 2)
	hostID := b.texts(t, `SELECT id FROM hosts`)[0]
	if _, err := b.hosts.Remove(b.admin, model.RemoveHostInput{TenantID: tenant, HostID: hostID}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-bcd.ended:
		if !errors.Is(err, agent.ErrRemoved) {
			t.Errorf("the agent ended with %v, want ErrRemoved", err)
		}
	case <-time.After(patience):
		t.Fatal("the agent does not hear of its removal")
	}
	if strings.Contains(bcd.log.String(), bcd.token) {
		t.Error("the token is in the agent's log")
	}
}

// TestAgentsLiveThroughARotation replaces the authority under an agent that renews, and lets another join with the pins of before the switch.
func TestAgentsLiveThroughARotation(t *testing.T) {
	t.Parallel()
	b := setupRenewing(t)
	address := b.serve(t)
	present := b.ca.Pin()
	old := b.startAgent(t, address, present)
	old.awaitRenewals(t, 1)

	if err := pki.BeginRotation(b.caDir); err != nil {
		t.Fatal(err)
	}
	b.awaitPins(t, func(pins string) bool { return strings.Contains(pins, ",") })
	before := b.ca.Pin()
	old.awaitRenewals(t, 2) // one may have been under way; the second brought both authorities

	if err := pki.SwitchRotation(b.caDir, true); err != nil {
		t.Fatal(err)
	}
	b.awaitPins(t, func(pins string) bool { return pins != before })
	late := b.startAgent(t, address, before)
	old.awaitRenewals(t, 2)
	late.awaitRenewals(t, 1)

	if err := pki.FinishRotation(b.caDir, true); err != nil {
		t.Fatal(err)
	}
	b.awaitPins(t, func(pins string) bool { return !strings.Contains(pins, ",") })
	old.awaitRenewals(t, 2)
	late.awaitRenewals(t, 2)

	fresh := b.startAgent(t, address, b.ca.Pin())
	left := b.startAgent(t, address, present)
	fresh.awaitRenewals(t, 1)
	if refused, ok := errors.AsType[*agent.RefusedError](<-left.ended); !ok || refused.Code != "WRONG_SERVER" {
		t.Errorf("the agent that trusts the former authority alone ended with %v", refused)
	}
	if n := b.count(t, `SELECT count(*) FROM hosts WHERE bootstrap_id = ?`, left.run); n != 0 {
		t.Error("an agent joined a server that has no authority which it trusts")
	}
}

// Neither the machine nor the server being away for a while makes an agent join again or stop renewing.
func TestAgentOutlivesRestarts(t *testing.T) {
	t.Parallel()
	b := setupRenewing(t)
	address := harness.FreeAddress(t, "127.0.0.1") // nobody gets it while the server is away
	_, end := b.serveAt(t, address)
	bcd := b.startAgent(t, address, b.ca.Pin())
	bcd.awaitRenewals(t, 1)

	end()
	b.hosts = host.New(b.deps)
	_, end = b.serveAt(t, address)
	bcd.awaitRenewals(t, 1)

	bcd.stop()
	end()
	bcd.start()
	b.serveAt(t, address)
	bcd.awaitRenewals(t, 1)
	if hosts := b.texts(t, `SELECT id FROM hosts`); len(hosts) != 1 {
		t.Errorf("the machine is the hosts %v", hosts)
	}
	if n := b.count(t, `SELECT count(DISTINCT key_hash) FROM host_certificates`); n != 1 {
		t.Errorf("the agent had %d keys", n)
	}
}

// setupRenewing makes certificates so short that every few heartbeats are told to renew, with time left where everything is slow.
func setupRenewing(t *testing.T) *bundle {
	t.Helper()
	return setup(t, func(d *host.Deps) { d.CertificateLife, d.Heartbeat = 18*time.Second, time.Second })
}

// bcd is the agent at work, on a machine of its own.
type bcd struct {
	bundle *bundle
	run    string
	token  string
	config agent.Config
	stop   func() // as when the machine goes down
	ended  chan error
	log    bytes.Buffer
}

func (b *bundle) startAgent(t *testing.T, address, pins string) *bcd {
	t.Helper()
	a := &bcd{bundle: b}
	a.run, a.token = b.run(t)
	dir := t.TempDir()
	for path, text := range map[string]string{
		"etc/machine-id": machineID + "\n", "sys/class/dmi/id/product_serial": serial + "\n", "token": a.token,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.config = agent.Config{
		Server: "https://" + address, CAPin: pins, TokenFile: filepath.Join(dir, "token"), StateDir: filepath.Join(dir, "state"), Root: dir,
	}
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

// start starts the agent, anew when it was stopped.
func (a *bcd) start() {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	a.ended = make(chan error, 1)
	go func() {
		defer close(stopped)
		a.ended <- agent.New(a.config, "test", slog.New(slog.NewJSONHandler(&a.log, nil))).Run(ctx)
	}()
	a.stop = func() {
		cancel()
		<-stopped
	}
}

// awaitRenewals waits until the agent has that many certificates more.
func (a *bcd) awaitRenewals(t *testing.T, n int) {
	t.Helper()
	const issued = `SELECT count(*) FROM host_certificates c JOIN hosts h ON h.id = c.host_id WHERE h.bootstrap_id = ?`
	have := a.bundle.count(t, issued, a.run)
	a.await(t, "the agent does not renew", func() bool { return a.bundle.count(t, issued, a.run) >= have+n })
}

func (a *bcd) await(t *testing.T, complaint string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		select {
		case err := <-a.ended:
			t.Fatalf("the agent ended: %v\n%s", err, &a.log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}

func (b *bundle) awaitPins(t *testing.T, done func(pins string) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(b.ca.Pin()); {
		if time.Now().After(deadline) {
			t.Fatal("the changed files are not followed")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
