package torture

import (
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
func hostileCSR(t testing.TB, random *rand.Rand) (text string, key ed25519.PublicKey) {
	t.Helper()
	key, private, err := ed25519.GenerateKey(crand.Reader)
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
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key
}

// fromRequest counts what a certificate says that only the request can have said.
func fromRequest(t testing.TB, certificate, hostID string, key ed25519.PublicKey) (fields int) {
	t.Helper()
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		t.Fatal("the certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := leaf.PublicKey.(ed25519.PublicKey); !ok || !got.Equal(key) {
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

// attempt joins once, again when there is no answer, and keeps what came of it.
func (j *joins) attempt(r *rig, client *http.Client, random *rand.Rand, agent, token string) {
	csr, key := hostileCSR(r.t, random)
	for {
		status, body, err := r.join(client, agent, token, csr)
		if (err != nil || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && r.t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
			continue // the same key again is the same join
		}
		var answer struct {
			HostID, Certificate string
			Error               struct{ Details struct{ Reason string } }
			Details             struct{ Reason string }
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			r.t.Errorf("a join was answered %d %s", status, body)
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if status == http.StatusOK {
			j.certificates[answer.Certificate] = true
			j.fromRequest += fromRequest(r.t, answer.Certificate, answer.HostID, key)
			j.answers["joined"]++
			return
		}
		j.answers[answer.Error.Details.Reason+answer.Details.Reason]++
		return
	}
}

// Of however many that join with one token, over two servers, one becomes a host. Where a thief was first, the honest host is told so, and the
// audit log says it. Whatever a request asks for, only its key is taken.
func TestJoins(t *testing.T) {
	tokens, asking, seed := number(t, "TOKENS", 8), number(t, "ASKING", 64), seedOf(t)
	r := newRig(t, 3, 2)
	random := rand.New(rand.NewPCG(seed, 0))
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	t.Cleanup(client.CloseIdleConnections)
	j := &joins{certificates: map[string]bool{}, answers: map[string]int{}}
	stolen := 0
	for i := range tokens {
		_, token := r.waiting(r.accounts[i%len(r.accounts)])
		if i%2 == 0 { // a thief is first, and quite alone
			stolen++
			j.attempt(r, client, random, r.replicas[0].agent, token)
		}
		var all sync.WaitGroup
		for n := range asking - (i+1)%2 {
			one := rand.New(rand.NewPCG(seed, uint64(i*asking+n+1)))
			all.Go(func() { j.attempt(r, client, one, r.replicas[n%2].agent, token) })
		}
		all.Wait()
	}
	hosts, certificates := r.count("SELECT count(*) FROM hosts"), r.count("SELECT count(*) FROM host_certificates")
	alarmed := r.count(`SELECT count(DISTINCT details->>'bootstrapId') FROM audit_log
		WHERE action = 'host.join.refused' AND outcome = 'denied' AND details->>'reason' = 'TOKEN_USED'`)
	if len(j.certificates) != tokens || hosts != tokens || certificates != tokens || j.answers["joined"] != tokens {
		t.Errorf("%d certificates given to %d, %d stored, %d hosts; want %d each", len(j.certificates), j.answers["joined"], certificates, hosts, tokens)
	}
	if refused := tokens * (asking - 1); j.answers["TOKEN_USED"] != refused {
		t.Errorf("the answers are %v; want TOKEN_USED %d times", j.answers, refused)
	}
	if alarmed != tokens {
		t.Errorf("the audit log tells of %d tokens in wrong hands, not of %d", alarmed, tokens)
	}
	if j.fromRequest > 0 {
		t.Errorf("%d fields were taken from requests", j.fromRequest)
	}
	harness.Report(t, t.Name(), seed, "tokens=%d asking=%d certificates=%d hosts=%d thief-first=%d alarms=%d fields-from-requests=%d",
		tokens, asking, len(j.certificates), hosts, stolen, alarmed, j.fromRequest)
}
