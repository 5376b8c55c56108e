package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/internal/problem"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const hostID = "host_01hzy3v7k8m9n0p1q2r3s4t5v6"

func newCA(t testing.TB) *CA {
	t.Helper()
	c, err := Init(filepath.Join(t.TempDir(), "pki"), "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCSR(t testing.TB, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestInitWritesAndNeverOverwrites(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	c, err := Init(dir, "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = info.Mode().String()
	}
	if diff := cmp.Diff(map[string]string{"ca.crt": "-rw-r--r--", "ca.key": "-rw-------"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	if _, err := Init(dir, "compute.test"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second Init = %v, want fs.ErrExist", err)
	}
	after, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	if !bytes.Equal(before, after) {
		t.Error("a second Init changed the key")
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Pin() != c.Pin() || loaded.TrustDomain() != "compute.test" {
		t.Errorf("loaded %s of %q, want %s", loaded.Pin(), loaded.TrustDomain(), c.Pin())
	}
	if _, err := Ensure(dir, "other.test"); err == nil {
		t.Error("Ensure took a CA of another trust domain")
	}
}

func TestInitCompletesAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := Init(dir, "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, certFile)); err != nil {
		t.Fatal(err)
	}
	again, err := Ensure(dir, "compute.test")
	if err != nil || again.Pin() != c.Pin() {
		t.Errorf("Ensure after a crash = %v, want the same key", err)
	}
}

func TestEnsureByManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	pins := make([]string, 16)
	var wg sync.WaitGroup
	for i := range pins {
		wg.Go(func() {
			c, err := Ensure(dir, "compute.test")
			if err != nil {
				t.Error(err)
				return
			}
			pins[i] = c.Pin()
		})
	}
	wg.Wait()
	for _, p := range pins {
		if p != pins[0] {
			t.Fatalf("processes got different authorities: %v", pins)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	other := newCA(t)
	for name, damage := range map[string]func(t *testing.T, dir string) error{
		"no key":                func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, keyFile)) },
		"a key others can read": func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, keyFile), 0o640) },
		"a key that is no PEM": func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, keyFile), []byte("x"), 0o600)
		},
		"an empty certificate": func(_ *testing.T, dir string) error { return os.WriteFile(filepath.Join(dir, certFile), nil, 0o644) },
		"another's certificate": func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, certFile), other.Bundle(), 0o644)
		},
		"a leaf in the bundle": func(t *testing.T, dir string) error {
			t.Helper()
			c, err := Load(dir)
			if err != nil {
				return err
			}
			leaf, err := c.ServerCertificate(nil)
			if err != nil {
				return err
			}
			text := append(c.Bundle(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})...)
			return os.WriteFile(filepath.Join(dir, certFile), text, 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := Init(dir, "compute.test"); err != nil {
				t.Fatal(err)
			}
			if err := damage(t, dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); err == nil {
				t.Error("Load took it")
			}
		})
	}
	for _, td := range []string{"", "Compute.test", "a b", "a/b", "a..b", ".a", "a:1", "a\n", strings.Repeat("a.", 127) + "a"} {
		if _, err := Init(t.TempDir(), td); err == nil {
			t.Errorf("Init took the trust domain %q", td)
		}
	}
}

func TestTwoAuthoritiesAreBothTrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := Init(dir, "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	next := newCA(t)
	if err := os.WriteFile(filepath.Join(dir, certFile), append(c.Bundle(), next.Bundle()...), 0o644); err != nil {
		t.Fatal(err)
	}
	both, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if both.Pin() != c.Pin()+","+next.Pin() {
		t.Errorf("the pins are %s, want the signer's %s and then %s", both.Pin(), c.Pin(), next.Pin())
	}
	for _, signer := range []*CA{c, next} {
		signed, err := signer.SignHost(HostProfile{
			TenantID: "t", HostID: hostID, PublicKey: newKey(t).Public(), Now: time.Now(), Life: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(signed.DER)
		if err != nil {
			t.Fatal(err)
		}
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: both.Pool(), KeyUsages: usage}); err != nil {
			t.Errorf("a certificate of a trusted authority is refused: %v", err)
		}
	}
}

func TestSignHost(t *testing.T) {
	t.Parallel()
	c, key, now := newCA(t), newKey(t), time.Now()
	signed, err := c.SignHost(HostProfile{
		TenantID: "acme:eu.1_x-Y", HostID: hostID, PublicKey: key.Public(), Now: now, Life: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(signed.DER)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cert.URIs[0].String(), "spiffe://compute.test/tenant/acme:eu.1_x-Y/host/"+hostID; got != want {
		t.Errorf("identity %s, want %s", got, want)
	}
	tenant, host, ok := c.HostOf(cert)
	if !ok || tenant != "acme:eu.1_x-Y" || host != hostID {
		t.Errorf("HostOf = %q, %q, %v", tenant, host, ok)
	}
	if !signed.NotAfter.Equal(cert.NotAfter) || cert.NotAfter.Sub(now).Round(time.Minute) != 24*time.Hour {
		t.Errorf("ends %s, told %s", cert.NotAfter, signed.NotAfter)
	}
	if len(signed.Serial) != 32 || signed.Serial != SerialText(cert) {
		t.Errorf("serial %q, in the certificate %q", signed.Serial, SerialText(cert))
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: c.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err == nil {
		t.Error("a host certificate works as a server's")
	}
}

func TestSignHostRefuses(t *testing.T) {
	t.Parallel()
	c, key := newCA(t), newKey(t)
	good := HostProfile{TenantID: "t", HostID: hostID, PublicKey: key.Public(), Now: time.Now(), Life: time.Hour}
	for name, change := range map[string]func(*HostProfile){
		"slash in tenant": func(p *HostProfile) { p.TenantID = "t/host/x" },
		"escape":          func(p *HostProfile) { p.TenantID = "t%2fx" },
		"no tenant":       func(p *HostProfile) { p.TenantID = "" },
		"no host":         func(p *HostProfile) { p.HostID = "" },
		"query in host":   func(p *HostProfile) { p.HostID = "h?x" },
		"no life":         func(p *HostProfile) { p.Life = 0 },
		"no key":          func(p *HostProfile) { p.PublicKey = nil },
	} {
		p := good
		change(&p)
		if signed, err := c.SignHost(p); err == nil || signed.DER != nil {
			t.Errorf("%s: signed", name)
		}
	}
	long := good
	long.Life = 100 * 365 * 24 * time.Hour
	if signed, err := c.SignHost(long); err != nil || signed.NotAfter.After(c.authority.cert.NotAfter) {
		t.Errorf("a certificate outlives its CA: %s, %v", signed.NotAfter, err)
	}
}

// The comparison is what stands between a broken encoder and a host, so it must see each field.
func TestCompareSeesEveryField(t *testing.T) {
	t.Parallel()
	c, key := newCA(t), newKey(t)
	p := HostProfile{TenantID: "t", HostID: hostID, PublicKey: key.Public(), Now: time.Now(), Life: time.Hour}
	profile := func() *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: newSerial(), Subject: pkix.Name{CommonName: hostID},
			NotBefore: p.notBefore(), NotAfter: p.Now.Add(time.Hour).UTC().Truncate(time.Second),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			BasicConstraintsValid: true, URIs: []*url.URL{c.hostURI("t", hostID)},
		}
	}
	for field, change := range map[string]func(*x509.Certificate){
		"":                   func(*x509.Certificate) {},
		"serial":             func(x *x509.Certificate) { x.SerialNumber = newSerial() },
		"subject":            func(x *x509.Certificate) { x.Subject.Organization = []string{"x"} },
		"validity":           func(x *x509.Certificate) { x.NotAfter = x.NotAfter.Add(time.Second) },
		"key usage":          func(x *x509.Certificate) { x.KeyUsage |= x509.KeyUsageCertSign },
		"extended key usage": func(x *x509.Certificate) { x.ExtKeyUsage = append(x.ExtKeyUsage, x509.ExtKeyUsageServerAuth) },
		"authority":          func(x *x509.Certificate) { x.IsCA = true },
		"names":              func(x *x509.Certificate) { x.IPAddresses = []net.IP{net.IPv4zero} },
		"identity":           func(x *x509.Certificate) { x.URIs[0] = c.hostURI("other", hostID) },
		"extensions":         func(x *x509.Certificate) { x.SubjectKeyId = []byte{1} },
	} {
		want := profile()
		wrong := *want
		wrong.URIs = []*url.URL{want.URIs[0]}
		change(&wrong)
		der, err := x509.CreateCertificate(rand.Reader, &wrong, c.authority.cert, key.Public(), c.authority.key)
		if err != nil {
			t.Fatal(err)
		}
		err = c.authority.compare(der, want, p)
		if field == "" && err != nil {
			t.Errorf("the right certificate is refused: %v", err)
		}
		if field != "" && (err == nil || !strings.Contains(err.Error(), "its "+field+" is not")) {
			t.Errorf("wrong %s: %v", field, err)
		}
	}
	other := p
	other.PublicKey = newKey(t).Public()
	want := profile()
	der, err := x509.CreateCertificate(rand.Reader, want, c.authority.cert, key.Public(), c.authority.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.authority.compare(der, want, other); err == nil {
		t.Error("another public key is not seen")
	}
}

func TestHostURIRoundTrips(t *testing.T) {
	t.Parallel()
	c, key := newCA(t), newKey(t)
	for _, tenant := range []string{".", "..", ":", "a:b", "-", "_"} {
		if _, err := c.SignHost(HostProfile{
			TenantID: tenant, HostID: hostID, PublicKey: key.Public(), Now: time.Now(), Life: time.Hour,
		}); err != nil {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tenant := rapid.StringMatching(`[A-Za-z0-9._:-]{1,128}`).Draw(t, "tenant")
		uri, err := url.Parse(c.hostURI(tenant, hostID).String())
		if err != nil {
			t.Fatal(err)
		}
		gotTenant, gotHost, ok := c.ParseHostURI(uri.String())
		if !ok || gotTenant != tenant || gotHost != hostID {
			t.Fatalf("%s parses as %q, %q, %v", uri, gotTenant, gotHost, ok)
		}
	})
	for _, uri := range []string{
		"", "spiffe://compute.test", "spiffe://compute.test/agent-listener", "spiffe://other.test/tenant/t/host/h",
		"spiffe://compute.test/tenant/t/host/", "spiffe://compute.test/tenant//host/h", "spiffe://compute.test/tenant/t/host/h/x",
		"spiffe://compute.test.evil/tenant/t/host/h", "https://compute.test/tenant/t/host/h",
		"spiffe://compute.test/tenant/t/host/h#x", "spiffe://compute.test/host/t/tenant/h", "spiffe://compute.test//tenant/t/host/h",
	} {
		if tenant, host, ok := c.ParseHostURI(uri); ok {
			t.Errorf("%q is taken for tenant %q, host %q", uri, tenant, host)
		}
	}
}

func TestNameConstraintStopsOtherTrustDomains(t *testing.T) {
	t.Parallel()
	c, key := newCA(t), newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: newSerial(), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "other.test", Path: "/tenant/t/host/" + hostID}},
	}, c.authority.cert, key.Public(), c.authority.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: c.Pool(), KeyUsages: usage}); err == nil {
		t.Error("the CA's key vouches for another trust domain")
	}
}

func TestServerCertificateRenews(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	get := c.Renewing("localhost", "127.0.0.1")
	first, err := get(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1"} {
		if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: c.Pool(), DNSName: name}); err != nil {
			t.Errorf("verifying %s: %v", name, err)
		}
	}
	if len(first.Certificate) != 2 || !bytes.Equal(first.Certificate[1], c.authority.cert.Raw) {
		t.Error("the chain lacks the CA")
	}
	if again, err := get(nil); err != nil || again != first {
		t.Errorf("a fresh certificate is not kept: %v", err)
	}
	first.Leaf.NotAfter = time.Now().Add(serverLife/2 - time.Second)
	if again, err := get(nil); err != nil || again == first {
		t.Errorf("an old certificate is kept: %v", err)
	}
}

func TestParseCSRTakesOnlyTheKey(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"P-256": newKey(t), "P-384": p384, "Ed25519": ed} {
		der := newCSR(t, key, x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "root"}, DNSNames: []string{"evil.test"},
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}},
		})
		for _, form := range [][]byte{der, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})} {
			got, err := ParseCSR(form)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(got) {
				t.Errorf("%s: another key", name)
			}
		}
	}
}

func TestParseCSRRefuses(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := newCSR(t, newKey(t), x509.CertificateRequest{})
	forged := bytes.Clone(good)
	forged[len(forged)-1] ^= 1
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: good})
	for name, csr := range map[string][]byte{
		"empty":       nil,
		"RSA":         newCSR(t, rsaKey, x509.CertificateRequest{}),
		"P-521":       newCSR(t, p521, x509.CertificateRequest{}),
		"forged":      forged,
		"trailing":    append(bytes.Clone(good), 0),
		"two blocks":  append(bytes.Clone(block), block...),
		"wrong type":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: good}),
		"too long":    append(bytes.Clone(block), bytes.Repeat([]byte("\n"), maxCSR)...),
		"half a PEM":  block[:len(block)/2],
		"text":        []byte("hello"),
		"deep nested": bytes.Repeat([]byte{0x30, 0x80}, 4000),
	} {
		if _, err := ParseCSR(csr); !problem.Is(err, problem.InvalidInput) {
			t.Errorf("%s: %v, want INVALID_INPUT", name, err)
		}
	}
}

// Whatever is accepted must be a key that can be signed for: nothing panics and nothing but the key gets through.
func FuzzParseCSR(f *testing.F) {
	key := newKey(f)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, k := range []crypto.Signer{key, ed} {
		der := newCSR(f, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"a.test"}})
		f.Add(der)
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add(bytes.Repeat([]byte{0x30, 0x80}, 100))
	f.Add([]byte{})
	c := newCA(f)
	f.Fuzz(func(t *testing.T, csr []byte) {
		got, err := ParseCSR(csr)
		if err != nil {
			if !problem.Is(err, problem.InvalidInput) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if _, err := c.SignHost(HostProfile{TenantID: "t", HostID: hostID, PublicKey: got, Now: time.Now(), Life: time.Hour}); err != nil {
			t.Fatalf("an accepted key cannot be signed: %v", err)
		}
	})
}
