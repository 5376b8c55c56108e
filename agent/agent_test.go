package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/internal/leaktest"
	"better/compute/internal/pki"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	token  = "bcj1.canary-of-the-join-token"
	hostID = "host_01hzy3v7k8m9n0p1q2r3s4t5v6"
)

// server is an agent listener with a real CA and real TLS. What it answers can be changed while it runs.
type server struct {
	ca  *pki.CA
	url string

	mu       sync.Mutex
	answer   map[string]http.HandlerFunc // by path, in place of the good answer
	life     time.Duration
	beat     heartbeatResponse
	joins    []joinRequest
	keys     map[string]bool // hashes of the keys that asked for certificates
	requests chan string     // each path that was served
}

func newServer(t *testing.T) *server {
	t.Helper()
	ca, err := pki.Init(t.TempDir(), "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		ca: ca, life: 24 * time.Hour, beat: heartbeatResponse{HeartbeatSeconds: 1},
		answer: map[string]http.HandlerFunc{}, keys: map[string]bool{}, requests: make(chan string, 1000),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join", s.join)
	mux.HandleFunc("POST /v1/heartbeat", s.heartbeat)
	mux.HandleFunc("POST /v1/renew", s.renew)
	s.url = s.listen(t, ca, s.recorded(mux))
	return s
}

// listen serves handler with ca's listener certificate, for as long as the test runs.
func (s *server) listen(t *testing.T, ca *pki.CA, handler http.Handler) string {
	t.Helper()
	ts := httptest.NewUnstartedServer(handler)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	cert, err := ca.ServerCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	ts.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool(),
		Certificates: []tls.Certificate{*cert}, SessionTicketsDisabled: true,
	}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return ts.URL
}

func (s *server) recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		override := s.answer[r.URL.Path]
		s.mu.Unlock()
		if override != nil {
			override(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
		s.requests <- r.URL.Path
	})
}

func (s *server) join(w http.ResponseWriter, r *http.Request) {
	var in joinRequest
	_ = json.NewDecoder(r.Body).Decode(&in)
	s.mu.Lock()
	s.joins = append(s.joins, in)
	s.mu.Unlock()
	cert, end := s.sign(in.CSR)
	reply(w, http.StatusOK, joinResponse{
		HostID: hostID, TenantID: "acme", Certificate: cert, CABundle: string(s.ca.Bundle()),
		NotAfter: clockText(end), HeartbeatSeconds: 1,
	})
}

func (s *server) heartbeat(w http.ResponseWriter, r *http.Request) {
	if len(r.TLS.PeerCertificates) == 0 {
		refuse(w, http.StatusUnauthorized, "UNAUTHENTICATED", "")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply(w, http.StatusOK, s.beat)
}

func (s *server) renew(w http.ResponseWriter, r *http.Request) {
	var in renewRequest
	_ = json.NewDecoder(r.Body).Decode(&in)
	cert, end := s.sign(in.CSR)
	reply(w, http.StatusOK, renewResponse{Certificate: cert, CABundle: string(s.ca.Bundle()), NotAfter: clockText(end)})
}

func (s *server) sign(csr string) (string, time.Time) {
	key, err := pki.ParseCSR([]byte(csr))
	if err != nil {
		return "", time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, _ := pki.KeyHash(key)
	s.keys[string(hash)] = true
	signed, err := s.ca.SignHost(pki.HostProfile{
		TenantID: "acme", HostID: hostID, PublicKey: key, Now: time.Now(), Life: s.life,
	})
	if err != nil {
		return "", time.Time{}
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.DER})), signed.NotAfter
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

// await waits until path was served.
func (s *server) await(t *testing.T, path string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case got := <-s.requests:
			if got == path {
				return
			}
		case <-deadline:
			t.Fatalf("no request for %s came", path)
		}
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, code, reason string) {
	reply(w, status, map[string]any{"error": map[string]any{
		"code": code, "message": "No.", "details": map[string]any{"reason": reason, "skewSeconds": 10800},
	}})
}

func refusing(status int, code, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, code, reason) }
}

// machine is a host on which bcd was installed.
type machine struct {
	cfg   Config
	agent *Agent
	log   *bytes.Buffer
	stop  context.CancelFunc
	done  chan error
}

func newMachine(t *testing.T, s *server) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{cfg: Config{
		Server: s.url, CAPin: s.ca.Pin(), TokenFile: filepath.Join(dir, "token"),
		StateDir: filepath.Join(dir, "state"), Root: filepath.Join(dir, "root"),
	}}
	m.write(t, m.cfg.TokenFile, token+"\n")
	m.write(t, filepath.Join(m.cfg.Root, "etc/machine-id"), "0123456789abcdef0123456789abcdef\n")
	return m
}

func (m *machine) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) start(t *testing.T, options ...func(*Agent)) {
	t.Helper()
	m.log = &bytes.Buffer{}
	m.agent = New(m.cfg, "test", slog.New(slog.NewJSONHandler(m.log, nil)))
	m.agent.firstWait, m.agent.lastWait = time.Millisecond, 10*time.Millisecond
	for _, o := range options {
		o(m.agent)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan error, 1)
	go func() { m.done <- m.agent.Run(ctx) }()
	t.Cleanup(cancel)
}

func (m *machine) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.done:
		if strings.Contains(m.log.String(), "canary") {
			t.Errorf("the token is in the log: %s", m.log)
		}
		return err
	case <-time.After(patience):
		t.Fatal("the agent does not end")
		return nil
	}
}

func TestJoinKeepsTheIdentityAndDeletesTheToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.write(t, filepath.Join(m.cfg.Root, "sys/class/dmi/id/product_serial"), "SN-1\n")
	m.write(t, filepath.Join(m.cfg.Root, "etc/hostname"), "rack-7\n")
	m.write(t, filepath.Join(m.cfg.Root, "proc/meminfo"), "MemTotal:       2097152 kB\nMemFree: 1 kB\n")
	m.write(t, filepath.Join(m.cfg.Root, "proc/cpuinfo"), "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n")
	m.write(t, filepath.Join(m.cfg.Root, "proc/sys/kernel/osrelease"), "6.1.0\n")
	m.start(t)
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatalf("a stop is no failure: %v", err)
	}

	if _, err := os.Stat(m.cfg.TokenFile); !errors.Is(err, os.ErrNotExist) {
		t.Error("the token file is still there")
	}
	modes := map[string]string{}
	for _, f := range []string{"", keyFile, certFile, bundleFile, hostFile} {
		info, err := os.Stat(filepath.Join(m.cfg.StateDir, f))
		if err != nil {
			t.Fatal(err)
		}
		modes[f] = info.Mode().String()
	}
	want := map[string]string{
		"": "drwx------", keyFile: "-rw-------", certFile: "-rw-------", bundleFile: "-rw-------", hostFile: "-rw-------",
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	in := s.joins[0]
	if in.Token != token || in.AgentVersion != "test" {
		t.Errorf("token %q, version %q", in.Token, in.AgentVersion)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z07:00", in.Clock); err != nil {
		t.Errorf("clock: %v", err)
	}
	in.Machine.Arch = ""
	wantMachine := Machine{
		MachineID: "0123456789abcdef0123456789abcdef", Serial: "SN-1", Hostname: "rack-7", CPUs: 2, MemoryMiB: 2048, Kernel: "6.1.0",
	}
	if diff := cmp.Diff(wantMachine, in.Machine); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
}

func TestRestartDoesNotJoinAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	for range 3 {
		m.start(t)
		s.await(t, "/v1/heartbeat")
		m.stop()
		if err := m.wait(t); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.joins) != 1 {
		t.Errorf("%d joins, want 1", len(s.joins))
	}
}

func TestCrashBeforeTheStateIsKeptRepeatsTheSameJoin(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	// As a kill right after the answer would have left it.
	m.write(t, m.cfg.TokenFile, token)
	for _, f := range []string{hostFile, certFile, bundleFile} {
		if err := os.Remove(filepath.Join(m.cfg.StateDir, f)); err != nil {
			t.Fatal(err)
		}
	}
	m.start(t)
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	if len(s.joins) != 2 || len(s.keys) != 1 || s.joins[0].Token != s.joins[1].Token {
		t.Errorf("%d joins with %d keys, want 2 with 1", len(s.joins), len(s.keys))
	}
}

func TestJoinIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	failures := []http.HandlerFunc{
		refusing(http.StatusServiceUnavailable, "UNAVAILABLE", ""),
		refusing(http.StatusTooManyRequests, "RATE_LIMITED", ""),
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	}
	s.set(func(s *server) {
		s.answer["/v1/join"] = func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			var next http.HandlerFunc = s.join
			if len(failures) > 0 {
				next, failures = failures[0], failures[1:]
			}
			s.mu.Unlock()
			next(w, r)
		}
	})
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
}

func TestJoinRefusedForGood(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		"TOKEN_UNKNOWN", "TOKEN_EXPIRED", "TOKEN_USED", "TOKEN_SUPERSEDED", "WRONG_MACHINE", "RUN_FAILED",
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.set(func(s *server) { s.answer["/v1/join"] = refusing(http.StatusForbidden, "FORBIDDEN", reason) })
			m := newMachine(t, s)
			m.start(t)
			err := m.wait(t)
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok || refused.Reason != reason || !strings.Contains(err.Error(), "10800 s") {
				t.Errorf("Run = %v", err)
			}
			if _, err := os.Stat(m.cfg.TokenFile); err != nil {
				t.Errorf("the token file of a failed join is gone: %v", err)
			}
		})
	}
}

func TestWrongServerNeverSeesTheToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	other, err := pki.Init(t.TempDir(), "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	hostCert := func() tls.Certificate {
		host := newMachine(t, s)
		host.start(t)
		s.await(t, "/v1/heartbeat")
		host.stop()
		if err := host.wait(t); err != nil {
			t.Fatal(err)
		}
		st, err := openState(host.cfg.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		defer st.close()
		id, err := st.load()
		if err != nil {
			t.Fatal(err)
		}
		return id.pair
	}()
	caDER := decodePEM(t, s.ca.Bundle())
	otherLeaf, err := other.ServerCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string]tls.Certificate{
		"another CA": *otherLeaf,
		// The pinned CA's certificate is public, so a thief can send it along.
		"another CA's leaf with the pinned CA beside": {Certificate: [][]byte{otherLeaf.Certificate[0], caDER}, PrivateKey: otherLeaf.PrivateKey},
		"a host's certificate":                        {Certificate: [][]byte{hostCert.Certificate[0], caDER}, PrivateKey: hostCert.PrivateKey},
		"no CA in the chain":                          {Certificate: otherLeaf.Certificate[:1], PrivateKey: otherLeaf.PrivateKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := make(chan string, 1)
			ts := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				served <- string(body)
			}))
			ts.Config.ErrorLog = log.New(io.Discard, "", 0)
			ts.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
			ts.StartTLS()
			defer ts.Close()
			m := newMachine(t, s)
			m.cfg.Server = ts.URL
			m.start(t)
			if refused, ok := errors.AsType[*RefusedError](m.wait(t)); !ok || refused.Code != "WRONG_SERVER" {
				t.Errorf("Run = %v, want WRONG_SERVER", refused)
			}
			select {
			case body := <-served:
				t.Errorf("the wrong server was sent %q", body)
			default:
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.set(func(s *server) {
		s.answer["/v1/join"] = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/elsewhere", http.StatusTemporaryRedirect)
		}
	})
	m := newMachine(t, s)
	m.start(t)
	if err := m.wait(t); err == nil {
		t.Error("a redirect is a success")
	}
	if got := <-s.requests; got != "/v1/join" || len(s.requests) != 0 {
		t.Errorf("the redirect was followed")
	}
}

// A dead clock battery is what the server has to hear of, so TLS must not stop the join first. Once the clock is set right, the host joins.
func TestJoinReachesTheServerWithAWrongClock(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.set(func(s *server) { s.answer["/v1/join"] = refusing(http.StatusForbidden, "FORBIDDEN", "CLOCK_SKEW") })
	m := newMachine(t, s)
	var right atomic.Bool
	m.start(t, func(a *Agent) {
		a.now = func() time.Time {
			if right.Load() {
				return time.Now()
			}
			return time.Unix(0, 0)
		}
	})
	for range 2 {
		s.await(t, "/v1/join")
	}
	right.Store(true)
	s.set(func(s *server) { delete(s.answer, "/v1/join") })
	s.await(t, "/v1/heartbeat")
}

func TestRenewsAtTwoThirdsOfTheLife(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(m.cfg.StateDir, certFile))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(decodePEM(t, first))
	if err != nil {
		t.Fatal(err)
	}
	due := renewAt(&identity{leaf: leaf})
	if got := due.Sub(leaf.NotBefore); got != leaf.NotAfter.Sub(leaf.NotBefore)*2/3 {
		t.Errorf("renewal is due %s into the life", got)
	}
	m.start(t, func(a *Agent) { a.now = func() time.Time { return due.Add(-time.Minute) } })
	s.await(t, "/v1/heartbeat")
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(m.cfg.StateDir, certFile)); !bytes.Equal(got, first) {
		t.Error("it renewed too early")
	}
	m.start(t, func(a *Agent) { a.now = func() time.Time { return due.Add(time.Minute) } })
	s.await(t, "/v1/renew")
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(m.cfg.StateDir, certFile)); bytes.Equal(got, first) {
		t.Error("the renewed certificate was not kept")
	}
	if len(s.keys) != 1 {
		t.Errorf("%d keys were used, want 1", len(s.keys))
	}
}

func TestRenewsWhenTold(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.set(func(s *server) { s.beat.Renew = true })
	m := newMachine(t, s)
	var serials sync.Map
	s.set(func(s *server) {
		s.answer["/v1/heartbeat"] = func(w http.ResponseWriter, r *http.Request) {
			serials.Store(pki.SerialText(r.TLS.PeerCertificates[0]), true)
			s.heartbeat(w, r)
		}
	})
	m.start(t)
	s.await(t, "/v1/renew")
	s.await(t, "/v1/renew")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	count := 0
	serials.Range(func(any, any) bool { count++; return true })
	if count < 2 {
		t.Error("the connection still uses the old certificate")
	}
}

func TestABadRenewalKeepsTheOldCertificate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	s.set(func(s *server) {
		s.beat.Renew = true
		s.answer["/v1/renew"] = func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusOK, renewResponse{Certificate: "junk", CABundle: string(s.ca.Bundle())})
		}
	})
	m.start(t)
	s.await(t, "/v1/renew")
	s.await(t, "/v1/renew")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
	st, err := openState(m.cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	if host, err := st.load(); err != nil || host == nil {
		t.Errorf("the state is broken: %v", err)
	}
}

func TestRemovedHostEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	s.set(func(s *server) {
		s.answer["/v1/heartbeat"] = refusing(http.StatusForbidden, "FORBIDDEN", "HOST_REMOVED")
	})
	if err := m.wait(t); !errors.Is(err, ErrRemoved) {
		t.Errorf("Run = %v, want ErrRemoved", err)
	}
}

func TestExpiredHostEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.set(func(s *server) {
		s.life = time.Second
		s.answer["/v1/renew"] = refusing(http.StatusServiceUnavailable, "UNAVAILABLE", "")
		// Each connection is new, so that the certificate is looked at each time.
		s.answer["/v1/heartbeat"] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			s.heartbeat(w, r)
		}
	})
	m := newMachine(t, s)
	m.start(t)
	if err := m.wait(t); !errors.Is(err, ErrExpired) {
		t.Errorf("Run = %v, want ErrExpired", err)
	}
}

func TestServerAwayIsSurvived(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	s.set(func(s *server) {
		s.answer["/v1/heartbeat"] = refusing(http.StatusServiceUnavailable, "UNAVAILABLE", "")
	})
	for range 3 {
		s.await(t, "/v1/heartbeat")
	}
	s.set(func(s *server) { delete(s.answer, "/v1/heartbeat") })
	s.await(t, "/v1/heartbeat")
	m.stop()
	if err := m.wait(t); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestOneAgentPerStateFolder(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	m.start(t)
	s.await(t, "/v1/heartbeat")
	if err := New(m.cfg, "test", slog.New(slog.DiscardHandler)).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another bcd") {
		t.Errorf("a second agent = %v", err)
	}
	m.stop()
	if err := m.wait(t); err != nil {
		t.Fatal(err)
	}
}

func TestNoTokenIsSaid(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	m := newMachine(t, s)
	if err := os.Remove(m.cfg.TokenFile); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	if err := m.wait(t); err == nil || !strings.Contains(err.Error(), "no token in "+m.cfg.TokenFile) {
		t.Errorf("Run = %v", err)
	}
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	pin := "sha256:" + strings.Repeat("ab", sha256.Size)
	for name, tc := range map[string]struct{ text, want string }{
		"good":          {`{"server":"https://h:8443","caPin":"` + pin + `","tokenFile":"/t","stateDir":"/s"}`, ""},
		"two pins":      {`{"server":"https://h:8443","caPin":"` + pin + "," + pin + `","tokenFile":"/t","stateDir":"/s"}`, ""},
		"a pin's end":   {`{"server":"https://h:8443","caPin":"` + pin + `,","tokenFile":"/t","stateDir":"/s"}`, "caPin"},
		"http":          {`{"server":"http://h:8443","caPin":"` + pin + `","tokenFile":"/t","stateDir":"/s"}`, "server"},
		"no server":     {`{"caPin":"` + pin + `","tokenFile":"/t","stateDir":"/s"}`, "server"},
		"no pin":        {`{"server":"https://h","tokenFile":"/t","stateDir":"/s"}`, "caPin"},
		"short pin":     {`{"server":"https://h","caPin":"sha256:ab","tokenFile":"/t","stateDir":"/s"}`, "caPin"},
		"no token file": {`{"server":"https://h","caPin":"` + pin + `","stateDir":"/s"}`, "tokenFile"},
		"no state":      {`{"server":"https://h","caPin":"` + pin + `","tokenFile":"/t"}`, "stateDir"},
		"unknown key":   {`{"servr":"https://h"}`, "servr"},
		"no JSON":       {`server: x`, "invalid character"},
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := LoadConfig(path)
		if tc.want == "" {
			if err != nil || cfg.Root != "/" {
				t.Errorf("%s: %v, root %q", name, err, cfg.Root)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it to name %s", name, err, tc.want)
		}
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is no error")
	}
}

func decodePEM(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no PEM block")
	}
	return block.Bytes
}
