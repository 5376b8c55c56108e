package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// HostProfile is everything that a host's certificate says.
type HostProfile struct {
	TenantID, HostID string
	PublicKey        crypto.PublicKey
	Now              time.Time
	Life             time.Duration
}

// HostCertificate is a signed one. Serial is 32 hex digits.
type HostCertificate struct {
	DER      []byte
	Serial   string
	NotAfter time.Time
}

// SignHost signs a client certificate for the host, valid until Now + Life and never longer than the CA itself. What
// it returns was parsed back and equals the profile in every field.
func (c *CA) SignHost(p HostProfile) (HostCertificate, error) {
	identity := c.hostURI(p.TenantID, p.HostID)
	if tenant, host, ok := c.ParseHostURI(identity.String()); !ok || tenant != p.TenantID || host != p.HostID {
		return HostCertificate{}, fmt.Errorf("tenant %q and host %q do not make an identity", p.TenantID, p.HostID)
	}
	if p.Life <= 0 {
		return HostCertificate{}, fmt.Errorf("a certificate life of %s is none", p.Life)
	}
	a := c.current()
	notAfter := p.Now.Add(p.Life)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	want := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: p.HostID},
		NotBefore:             p.notBefore(),
		NotAfter:              notAfter.UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{identity},
	}
	der, err := x509.CreateCertificate(rand.Reader, want, a.cert, p.PublicKey, a.key)
	if err != nil {
		return HostCertificate{}, fmt.Errorf("signing a host certificate: %w", err)
	}
	if err := a.compare(der, want, p); err != nil {
		return HostCertificate{}, fmt.Errorf("checking a signed host certificate: %w", err)
	}
	return HostCertificate{DER: der, Serial: SerialText(want), NotAfter: want.NotAfter}, nil
}

// notBefore keeps the backdating small beside the life, because an agent renews at two thirds of the whole.
func (p HostProfile) notBefore() time.Time {
	return p.Now.Add(-min(backdate, p.Life/10)).UTC().Truncate(time.Second)
}

// SerialText is a certificate's serial number in the form that SignHost returns.
func SerialText(cert *x509.Certificate) string {
	return fmt.Sprintf("%032x", cert.SerialNumber)
}

// HostOf reads the identity of a verified client certificate.
func (c *CA) HostOf(cert *x509.Certificate) (tenantID, hostID string, ok bool) {
	if len(cert.URIs) != 1 {
		return "", "", false
	}
	return c.ParseHostURI(cert.URIs[0].String())
}

// ParseHostURI takes spiffe://<trust domain>/tenant/<tenant>/host/<host> apart. Nothing is cleaned or unescaped: a
// tenant may be called "..", and a text that would need it is no identity.
func (c *CA) ParseHostURI(uri string) (tenantID, hostID string, ok bool) {
	path, ok := strings.CutPrefix(uri, "spiffe://"+c.trustDomain+"/")
	if !ok {
		return "", "", false
	}
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "tenant" || parts[2] != "host" || !plain(parts[1]) || !plain(parts[3]) {
		return "", "", false
	}
	return parts[1], parts[3], true
}

func (c *CA) hostURI(tenantID, hostID string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: c.trustDomain, Path: "/tenant/" + tenantID + "/host/" + hostID}
}

// plain reports whether a path segment is the same escaped and not.
func plain(segment string) bool {
	if segment == "" || len(segment) > 128 {
		return false
	}
	for i := range len(segment) {
		b := segment[i]
		alnum := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if !alnum && strings.IndexByte("._:-", b) < 0 {
			return false
		}
	}
	return true
}

// hostExtensions are the only ones that a host certificate carries.
var hostExtensions = []string{"2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.35", "2.5.29.37"}

// compare is the second pair of eyes on the encoder: whatever is in der must be what was asked for, and no more.
func (a *authority) compare(der []byte, want *x509.Certificate, p HostProfile) error {
	got, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	var extensions []string
	for _, e := range got.Extensions {
		extensions = append(extensions, e.Id.String())
	}
	slices.Sort(extensions)
	key, ok := got.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	identity := want.URIs[0].String()
	for _, check := range []struct {
		field string
		same  bool
	}{
		{"version", got.Version == 3},
		{"serial", got.SerialNumber.Cmp(want.SerialNumber) == 0},
		{"issuer", bytes.Equal(got.RawIssuer, a.cert.RawSubject)},
		{"subject", got.Subject.String() == want.Subject.String()},
		{"validity", got.NotBefore.Equal(want.NotBefore) && got.NotAfter.Equal(want.NotAfter)},
		{"public key", ok && key.Equal(p.PublicKey)},
		{"key usage", got.KeyUsage == want.KeyUsage},
		{"extended key usage", slices.Equal(got.ExtKeyUsage, want.ExtKeyUsage) && len(got.UnknownExtKeyUsage) == 0},
		{"authority", got.BasicConstraintsValid && !got.IsCA},
		{"names", len(got.DNSNames)+len(got.EmailAddresses)+len(got.IPAddresses) == 0},
		{"identity", len(got.URIs) == 1 && got.URIs[0].String() == identity},
		{"extensions", slices.Equal(extensions, hostExtensions)},
	} {
		if !check.same {
			return errors.New("its " + check.field + " is not what was asked for")
		}
	}
	_, err = got.Verify(x509.VerifyOptions{
		Roots: a.pool(), CurrentTime: p.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// KeyHash is the SHA-256 of the key's SubjectPublicKeyInfo: the name by which a key is remembered.
func KeyHash(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return sum[:], nil
}
