package torture

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/host"
	"better/compute/internal/id"
)

const (
	machineID = "0123456789abcdef0123456789abcdef"
	serial    = "SN-1"
)

// waiting puts a run in front of its join, as if its agent were installed.
func (r *rig) waiting(a account) (runID, token string) {
	r.t.Helper()
	runID = id.New("boot")
	token, hash := host.MintToken(runID, 1)
	r.exec(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id, machine, generation, token_hash,
			token_expires_at, next_at)
		VALUES (?0, ?1, ?2, ?3, 'test', ?0, 'installed', ?0, ?4::jsonb, 1, ?5, now() + interval '15 minutes', now() + interval '1 day')`,
		runID, a.tenant, a.id, a.pool, `{"osMachineId":"`+machineID+`","serial":"`+serial+`"}`, hash)
	r.exec(`INSERT INTO machine_reservations (machine_key, bootstrap_id) VALUES (?0, ?0)`, runID)
	return runID, token
}

// hostileCSR asks for everything that a certificate can say.
func hostileCSR(t testing.TB, random *rand.Rand) (text string, private ed25519.PrivateKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.CertificateRequest{Subject: pkix.Name{CommonName: fmt.Sprint("host_", random.Uint64()), Organization: []string{"evil"}}}
	if random.IntN(2) == 0 {
		template.DNSNames = []string{"evil.test", "*"}
	}
	if random.IntN(2) == 0 {
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: "torture.test", Path: "/tenant/other/host/host_x"}}
	}
	if random.IntN(2) == 0 {
		template.IPAddresses, template.EmailAddresses = []net.IP{net.IPv4(10, 0, 0, 1)}, []string{"a@evil.test"}
	}
	if random.IntN(2) == 0 { // basicConstraints: CA
		template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{
			Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff},
		})
	}
	if random.IntN(2) == 0 { // extendedKeyUsage: any
		template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{
			Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: []byte{0x30, 0x06, 0x06, 0x04, 0x55, 0x1d, 0x25, 0x00},
		})
	}
	der, err := x509.CreateCertificateRequest(crand.Reader, &template, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), private
}

// fromRequest counts what a certificate says that only the request can have said.
func fromRequest(t testing.TB, certificate, hostID string, private ed25519.PrivateKey) (fields int) {
	t.Helper()
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		t.Fatal("the certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := leaf.PublicKey.(ed25519.PublicKey); !ok || !got.Equal(private.Public()) {
		t.Error("the certificate is of another key")
	}
	for _, taken := range []bool{
		leaf.Subject.String() != "CN="+hostID, len(leaf.DNSNames) > 0, len(leaf.IPAddresses) > 0, len(leaf.EmailAddresses) > 0, leaf.IsCA,
		len(leaf.URIs) != 1 || leaf.URIs[0].Path == "/tenant/other/host/host_x",
		len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth, len(leaf.UnknownExtKeyUsage) > 0,
	} {
		if taken {
			fields++
		}
	}
	return fields
}

// joins is what came of all the joins.
type joins struct {
	mu           sync.Mutex
	certificates map[string]bool
	answers      map[string]int
	fromRequest  int
}

func (r *rig) join(client *http.Client, agent, token, csr string) (status int, body []byte, err error) {
	in := host.JoinRequest{
		Token: token, CSR: csr, Clock: time.Now().UTC().Format(time.RFC3339Nano), AgentVersion: "1.0",
		Machine: host.Machine{MachineID: machineID, Serial: serial, Hostname: "h", Arch: "amd64", CPUs: 2, MemoryMiB: 2048, Kernel: "6.1"},
	}
	text, err := json.Marshal(in)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "https://"+agent+"/v1/join", bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// agent is one that has a token, whether it should or not.
type agent struct {
	csr         string
	private     ed25519.PrivateKey
	certificate string // once it has joined
	refusal     string // the reason, when it was refused
}

func newAgent(t testing.TB, random *rand.Rand) *agent {
	t.Helper()
	csr, private := hostileCSR(t, random)
	return &agent{csr: csr, private: private}
}

// attempt joins once, again when there is no answer, and keeps what came of it.
func (j *joins) attempt(r *rig, client *http.Client, a *agent, listener, token string) {
	for {
		status, body, err := r.join(client, listener, token, a.csr)
		if (err != nil || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && r.t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
			continue // the same key again is the same join
		}
		var answer struct {
			HostID, Certificate string
			Error               struct{ Details struct{ Reason string } }
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			r.t.Errorf("a join was answered %d %s", status, body)
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if status == http.StatusOK {
			j.certificates[answer.Certificate] = true
			j.fromRequest += fromRequest(r.t, answer.Certificate, answer.HostID, a.private)
			j.answers["joined"]++
			a.certificate = answer.Certificate
			return
		}
		a.refusal = answer.Error.Details.Reason
		j.answers[a.refusal]++
		return
	}
}

// trusted reports whether the host that the agent became is still one, and fails the test on any answer but yes and "removed".
func (r *rig) trusted(a *agent, listener string) bool {
	r.t.Helper()
	block, _ := pem.Decode([]byte(a.certificate))
	if block == nil {
		r.t.Fatal("an agent without a certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: a.private}},
	}}
	defer transport.CloseIdleConnections()
	body := mustJSON(r.t, host.HeartbeatRequest{AgentVersion: "1.0", Clock: time.Now().UTC().Format(time.RFC3339Nano)})
	res, err := (&http.Client{Transport: transport, Timeout: harness.Patience}).Post("https://"+listener+"/v1/heartbeat", "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK && !bytes.Contains(text, []byte("HOST_REMOVED")) {
		r.t.Errorf("a heartbeat was answered %d %s", res.StatusCode, text)
	}
	return res.StatusCode == http.StatusOK
}

// follow keeps the reason of each run of the tenant that a subscriber is told has failed.
func (r *rig) follow(p *replica, tenant string, failed *sync.Map) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+p.listen+"/graphql", bytes.NewReader(mustJSON(r.t, map[string]any{
		"query":     "subscription($tenant: ID!) { change: bootstrapStatusChanged(tenantId: $tenant) { to bootstrap { id failure { reason } } } }",
		"variables": map[string]any{"tenant": tenant},
	})))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := (&http.Client{Transport: r.http.Transport}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		r.t.Fatalf("a subscription was answered %s", res.Status)
	}
	done := make(chan struct{})
	r.t.Cleanup(func() { _ = res.Body.Close(); <-done })
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var message struct {
				Data struct {
					Change struct {
						To        string
						Bootstrap struct {
							ID      string
							Failure struct{ Reason string }
						}
					}
				}
			}
			text, isData := strings.CutPrefix(lines.Text(), "data:")
			if isData && json.Unmarshal([]byte(text), &message) == nil && message.Data.Change.To == "FAILED" {
				failed.Store(message.Data.Change.Bootstrap.ID, message.Data.Change.Bootstrap.Failure.Reason)
			}
		}
	}()
}

// Of however many agents that join with one token, over two servers, one becomes a host; then nobody can tell which of them is honest. Where a
// thief was first, the honest host is told so at its join, the thief's certificate is worth nothing from then on, and the run has failed: an event
// says so, and the audit log. Where one agent alone asks again and again, nothing of that happens. Whatever a request asks for, only its key is
// taken.
func TestJoins(t *testing.T) {
	tokens, asking, seed := number(t, "TOKENS", 8), max(2, number(t, "ASKING", 64)), seedOf(t)
	honest := max(1, tokens/4)
	r := newRig(t, 3, 2)
	random := rand.New(rand.NewPCG(seed, 0))
	client := &http.Client{Timeout: callLimit, Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	t.Cleanup(client.CloseIdleConnections)
	j := &joins{certificates: map[string]bool{}, answers: map[string]int{}}
	told := new(sync.Map)
	for i := range 3 {
		r.follow(r.replicas[i%2], fmt.Sprint("tenant-", i), told)
	}
	// together has so many of the agents join at once, each in its turn.
	together := func(token string, agents []*agent) {
		var all sync.WaitGroup
		for n, a := range agents {
			all.Go(func() { j.attempt(r, client, a, r.replicas[n%2].agent, token) })
		}
		all.Wait()
	}
	var contested []string
	stolen, thieves := 0, 0
	for i := range tokens {
		runID, token := r.waiting(r.accounts[i%len(r.accounts)])
		contested = append(contested, runID)
		agents := make([]*agent, asking)
		for n := range agents {
			agents[n] = newAgent(t, random)
		}
		if i%2 == 0 { // a thief is first, and quite alone; then the honest host comes
			stolen++
			thief, victim := agents[0], agents[1]
			j.attempt(r, client, thief, r.replicas[i/2%2].agent, token)
			if thief.certificate == "" || !r.trusted(thief, r.replicas[0].agent) {
				t.Errorf("the first agent did not become a host: %q", thief.refusal)
				continue
			}
			j.attempt(r, client, victim, r.replicas[(i/2+1)%2].agent, token)
			for _, p := range r.replicas {
				if r.trusted(thief, p.agent) {
					thieves++
					t.Errorf("%s still trusts a thief", p.name)
				}
			}
			agents = agents[2:]
		}
		together(token, agents)
	}
	refused := j.answers["TOKEN_USED"]
	if want := tokens * (asking - 1); refused != want {
		t.Errorf("the answers are %v; want TOKEN_USED %d times", j.answers, want)
	}
	var hosts []*agent
	for i := range honest {
		_, token := r.waiting(r.accounts[i%len(r.accounts)])
		one := newAgent(t, random)
		hosts = append(hosts, one)
		same := make([]*agent, asking)
		for n := range same {
			same[n] = &agent{csr: one.csr, private: one.private}
		}
		together(token, same)
		one.certificate = same[0].certificate
	}
	r.judgeJoins(j, told, contested, hosts, asking)
	harness.Report(t, t.Name(), seed, "tokens=%d asking=%d certificates=%d refused=%d thief-first=%d thieves-trusted=%d failed-runs-told=%d honest=%d fields-from-requests=%d",
		tokens, asking, len(j.certificates)-honest, refused, stolen, thieves, lenOf(told), honest, j.fromRequest)
}

// judgeJoins holds what is stored, and what subscribers were told, against what the agents were.
func (r *rig) judgeJoins(j *joins, told *sync.Map, contested []string, honest []*agent, asking int) {
	r.t.Helper()
	tokens, alone := len(contested), len(honest)
	if got, want := j.answers["joined"], tokens+alone*asking; got != want || len(j.certificates) != tokens+alone {
		r.t.Errorf("%d certificates were given in %d answers; want %d in %d", len(j.certificates), got, tokens+alone, want)
	}
	for _, a := range honest {
		for _, p := range r.replicas {
			if !r.trusted(a, p.agent) {
				r.t.Errorf("%s does not trust an honest host that asked again", p.name)
			}
		}
	}
	for what, tc := range map[string]struct {
		query string
		want  int
	}{
		"hosts":                 {"SELECT count(*) FROM hosts", tokens + alone},
		"hosts that are left":   {"SELECT count(*) FROM hosts WHERE removed_at IS NULL", alone},
		"certificates":          {"SELECT count(*) FROM host_certificates", tokens + alone},
		"runs that joined":      {"SELECT count(*) FROM bootstraps WHERE status = 'joined'", alone},
		"runs that failed":      {"SELECT count(*) FROM bootstraps WHERE status = 'failed' AND failure->>'reason' = 'IDENTITY_MISMATCH'", tokens},
		"events of failed runs": {"SELECT count(*) FROM events WHERE type = 'provider.bootstrap.failed'", tokens},
		"tokens in wrong hands by the audit log": {`SELECT count(DISTINCT details->>'bootstrapId') FROM audit_log
			WHERE action = 'host.join.refused' AND outcome = 'denied' AND details->>'reason' = 'TOKEN_USED'`, tokens},
	} {
		if got := r.count(tc.query); got != tc.want {
			r.t.Errorf("%s: %d, want %d", what, got, tc.want)
		}
	}
	for _, runID := range contested {
		harness.Await(r.t, "subscribers are told of each run that failed", func() bool { _, ok := told.Load(runID); return ok })
		if reason, _ := told.Load(runID); reason != "IDENTITY_MISMATCH" {
			r.t.Errorf("subscribers are told of the reason %v", reason)
		}
	}
	if n := lenOf(told); n != tokens {
		r.t.Errorf("subscribers are told of %d runs that failed, want %d", n, tokens)
	}
	if j.fromRequest > 0 {
		r.t.Errorf("%d fields were taken from requests", j.fromRequest)
	}
}

func lenOf(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}
