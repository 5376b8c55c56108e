package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"
)

const serverLife = 24 * time.Hour

// ServerCertificate makes a fresh key and a server certificate for the agent listener, valid for a day. Agents know it
// by the URI spiffe://<trust domain>/agent-listener; names (host names or IP addresses) are for other clients. The
// chain includes the CA, so that an agent that holds nothing but the pin can verify it.
func (c *CA) ServerCertificate(names []string) (*tls.Certificate, error) {
	return c.current().serverCertificate(c.trustDomain, names)
}

func (a *authority) serverCertificate(trustDomain string, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the listener's key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: "agent listener"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(serverLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: "/agent-listener"}},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the listener's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("checking the listener's certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// Renewing returns a function for tls.Config.GetCertificate that makes a new ServerCertificate once half of the last
// one's life is over, or another authority signs. The keys live in memory only.
func (c *CA) Renewing(names ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	var current *tls.Certificate
	var by *authority
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		a := c.current()
		if by == a && time.Until(current.Leaf.NotAfter) > serverLife/2 {
			return current, nil
		}
		fresh, err := a.serverCertificate(c.trustDomain, names)
		if err != nil {
			return nil, err
		}
		current, by = fresh, a
		return current, nil
	}
}
