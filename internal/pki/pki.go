// Package pki owns the certificate authority of the agents: its files, the certificates that it signs and the rules
// for what it accepts to sign.
//
// It knows names and keys, never hosts, tokens or the database. The invariant: nothing leaves the signer that was not
// built field by field here, parsed back and compared; of what a stranger sends only the public key is ever taken.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

const (
	certFile = "ca.crt"
	keyFile  = "ca.key"

	caLife = 10 * 365 * 24 * time.Hour
	// Certificates start in the past, so that a peer whose clock is slow, but not so slow that its join is refused,
	// does not see them as not valid yet.
	backdate = 10 * time.Minute
)

// A trust domain is also a URI name constraint, which knows host names only.
var trustDomainPattern = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\z`)

// CA signs for one trust domain. It is safe for concurrent use.
type CA struct {
	trustDomain string
	cert        *x509.Certificate
	// trusted starts with cert. Any further ones are authorities on their way in or out.
	trusted []*x509.Certificate
	key     crypto.Signer
}

// Init creates ca.key and ca.crt in dir and returns the CA. It never overwrites: where there is a ca.crt it fails with
// fs.ErrExist. A key without a certificate is what a crash of Init leaves, and is completed.
func Init(dir, trustDomain string) (*CA, error) {
	if len(trustDomain) > 253 || !trustDomainPattern.MatchString(trustDomain) {
		return nil, fmt.Errorf("trust domain %q is not a lower-case host name", trustDomain)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the PKI folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, certFile)); err == nil {
		return nil, fmt.Errorf("%s in %s: %w", certFile, dir, fs.ErrExist)
	}
	// The key is published first and the certificate last, so that a certificate always has its key.
	key, err := ensureKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	der, err := selfSign(key, trustDomain)
	if err != nil {
		return nil, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := publish(filepath.Join(dir, certFile), block, 0o644); err != nil {
		return nil, err
	}
	return Load(dir)
}

// Ensure loads the CA of dir, or creates it. Any number of processes may call it at once: all get the same CA. It
// fails when the CA that is there has another trust domain.
func Ensure(dir, trustDomain string) (*CA, error) {
	c, err := Init(dir, trustDomain)
	if errors.Is(err, fs.ErrExist) {
		c, err = Load(dir)
	}
	if err != nil {
		return nil, err
	}
	if c.trustDomain != trustDomain {
		return nil, fmt.Errorf("the CA in %s is for trust domain %q, not %q", dir, c.trustDomain, trustDomain)
	}
	return c, nil
}

// Load reads the CA of dir. The first certificate of ca.crt signs; any after it are trusted too. So an authority is
// replaced by appending its successor, waiting one host certificate's life while renewals hand out the bundle, then
// putting the successor and its key first, and dropping the old one a life later.
func Load(dir string) (*CA, error) {
	key, err := loadKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, certFile))
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificate: %w", err)
	}
	trusted, err := parseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, certFile), err)
	}
	c := &CA{cert: trusted[0], trusted: trusted, key: key}
	if pub, ok := c.cert.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(key.Public()) {
		return nil, fmt.Errorf("%s in %s does not belong to its %s", keyFile, dir, certFile)
	}
	for _, t := range trusted {
		if !t.IsCA || len(t.URIs) != 1 || t.URIs[0].Scheme != "spiffe" || t.URIs[0].Host != c.cert.URIs[0].Host {
			return nil, fmt.Errorf("%s in %s holds a certificate that is no authority of its trust domain", certFile, dir)
		}
	}
	c.trustDomain = c.cert.URIs[0].Host
	return c, nil
}

// TrustDomain is the host part of every identity that the CA signs.
func (c *CA) TrustDomain() string { return c.trustDomain }

// Pin names the CA's key: "sha256:" and the SHA-256 of its SubjectPublicKeyInfo in hex. An agent that was given it can
// verify the server without any other trust.
func (c *CA) Pin() string {
	sum := sha256.Sum256(c.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Pool holds every authority that is trusted now.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, t := range c.trusted {
		pool.AddCert(t)
	}
	return pool
}

// Bundle is Pool as PEM, for the agents.
func (c *CA) Bundle() []byte {
	var b bytes.Buffer
	for _, t := range c.trusted {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: t.Raw}) // a Buffer takes every write
	}
	return b.Bytes()
}

func selfSign(key crypto.Signer, trustDomain string) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: trustDomain + " agents"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: trustDomain}},
		// Whoever gets hold of the key cannot make identities of another trust domain with it.
		PermittedDNSDomainsCritical: true, // of all name constraints, in spite of its name
		PermittedURIDomains:         []string{trustDomain},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the CA certificate: %w", err)
	}
	return der, nil
}

// newSerial is a random number of 128 bits, which no two certificates share.
func newSerial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	b[0] |= 0x40           // a full-length number, so that its hex always has 32 digits
	b[0] &= 0x7f           // and a positive one in 16 bytes
	return new(big.Int).SetBytes(b[:])
}

func ensureKey(path string) (crypto.Signer, error) {
	key, err := loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(fresh)
	if err != nil {
		return nil, fmt.Errorf("encoding the CA key: %w", err)
	}
	err = publish(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return loadKey(path) // which is another process's key if that was faster
}

func loadKey(path string) (crypto.Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the CA key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: only its owner may read it (chmod 600)", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the CA key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no PEM private key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds no ECDSA key", path)
	}
	return key, nil
}

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no PEM certificate")
	}
	return certs, nil
}

// publish makes a file appear whole or not at all, and fails with fs.ErrExist instead of replacing one. A rename
// would replace; a hard link does not.
func publish(path string, content []byte, mode os.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Link(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return nil
}
