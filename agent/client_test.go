package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"math/big"
	"net/url"
	"testing"
	"time"
)

// authority signs whatever it is told, as no real one of ours does.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, signer *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	if signer == nil {
		signer = a
	}
	a.cert = signer.sign(t, a.cert, &key.PublicKey)
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestWhatMakesAListener(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, nil)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	sum := sha256.Sum256(ca.cert.RawSubjectPublicKeyInfo)
	pin := "sha256:" + hex.EncodeToString(sum[:])
	for name, tc := range map[string]struct {
		change func(*x509.Certificate)
		good   bool
	}{
		"the listener":  {func(*x509.Certificate) {}, true},
		"a host":        {func(c *x509.Certificate) { c.URIs[0].Path = "/tenant/t/host/h" }, false},
		"a client":      {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, false},
		"two names":     {func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }, false},
		"no name":       {func(c *x509.Certificate) { c.URIs = nil }, false},
		"another space": {func(c *x509.Certificate) { c.URIs[0].Scheme = "https" }, false},
	} {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Minute),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			URIs: []*url.URL{{Scheme: "spiffe", Host: "compute.test", Path: listenerPath}},
		}
		tc.change(template)
		chain := []*x509.Certificate{ca.sign(t, template, &ca.key.PublicKey), ca.cert}
		if err := verifyListener(chain, roots, time.Now()); (err == nil) != tc.good {
			t.Errorf("%s: by the bundle: %v", name, err)
		}
		if err := verifyPinned(tls.ConnectionState{PeerCertificates: chain}, []string{pin}); (err == nil) != tc.good {
			t.Errorf("%s: by the pin: %v", name, err)
		}
		if err := verifyListener(chain, roots, time.Now().Add(2*time.Minute)); err == nil {
			t.Errorf("%s: is taken after its end", name)
		}
	}
}

func TestPinIsOfACAThatSignedTheLeaf(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, nil)
	sum := sha256.Sum256(ca.cert.RawSubjectPublicKeyInfo)
	pin := "sha256:" + hex.EncodeToString(sum[:])
	thief := newAuthority(t, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Minute),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "compute.test", Path: listenerPath}},
	}
	forged := thief.sign(t, leaf, &thief.key.PublicKey)
	// The thief's certificate of the pinned key: the key is public, but nothing can be signed with it.
	borrowed := thief.sign(t, ca.cert, &ca.key.PublicKey)
	for name, chain := range map[string][]*x509.Certificate{
		"nothing":                      nil,
		"the pinned CA beside":         {forged, ca.cert},
		"the pinned key beside":        {forged, borrowed, thief.cert},
		"the pinned key as the leaf":   {ca.cert},
		"a chain without the pinned":   {forged, thief.cert},
		"the thief under the pinned":   {forged, thief.cert, ca.cert},
		"the pinned before the thief":  {forged, ca.cert, thief.cert},
		"the pinned CA as leaf, twice": {ca.cert, ca.cert},
	} {
		if err := verifyPinned(tls.ConnectionState{PeerCertificates: chain}, []string{pin}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	successor := newAuthority(t, nil)
	sum = sha256.Sum256(successor.cert.RawSubjectPublicKeyInfo)
	both := []string{pin, "sha256:" + hex.EncodeToString(sum[:])}
	for name, signer := range map[string]*authority{"the first pinned CA": ca, "the second pinned CA": successor} {
		chain := []*x509.Certificate{signer.sign(t, leaf, &signer.key.PublicKey), signer.cert}
		if err := verifyPinned(tls.ConnectionState{PeerCertificates: chain}, both); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	below := newAuthority(t, ca)
	chain := []*x509.Certificate{below.sign(t, leaf, &below.key.PublicKey), below.cert, ca.cert}
	if err := verifyPinned(tls.ConnectionState{PeerCertificates: chain}, []string{pin}); err != nil {
		t.Errorf("an intermediate of the pinned CA: %v", err)
	}
}
