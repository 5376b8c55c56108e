// Package pki owns the certificate authority of the agents: its files, the certificates that it signs and the rules
// for what it accepts to sign.
//
// It knows names and keys, never hosts, tokens or the database. The invariant: nothing leaves the signer that was not
// built field by field here, parsed back and compared; of what a stranger sends only the public key is ever taken.
package pki

import (
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
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	certFile = "ca.crt"
	keyFile  = "ca.key"

	caLife     = 10 * 365 * 24 * time.Hour
	caBackdate = time.Hour
	// Certificates start in the past, so that a peer whose clock is slow, but not so slow that its join is refused,
	// does not see them as not valid yet.
	backdate = 10 * time.Minute
)

// A trust domain is also a URI name constraint, which knows host names only.
var trustDomainPattern = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\z`)

// CA signs for one trust domain, with the authority that its folder holds: it follows the files when a rotation changes them. It is
// safe for concurrent use.
type CA struct {
	// Log, when not nil, is told of files that cannot be followed. Set it before the first use.
	Log *slog.Logger

	dir         string
	trustDomain string

	mu        sync.Mutex
	authority *authority
	looked    time.Time // when the files were last looked at
	refused   [2]stamp  // the files that were last refused, so that each state of them is logged once
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

// Load reads the CA of dir. Of the certificates in ca.crt the one that belongs to ca.key signs; all are trusted.
func Load(dir string) (*CA, error) {
	a, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	c := &CA{dir: dir, trustDomain: a.cert.URIs[0].Host, authority: a, looked: time.Now()}
	return c, nil
}

// TrustDomain is the host part of every identity that the CA signs.
func (c *CA) TrustDomain() string { return c.trustDomain }

// Pin names the keys of the authorities: for each "sha256:" and the SHA-256 of its SubjectPublicKeyInfo in hex, the signing one first, with
// a comma between them. An agent that was given it can verify the server without any other trust, also when it joins
// after a rotation that it did not hear of.
func (c *CA) Pin() string {
	a := c.current()
	pins := []string{pin(a.cert)}
	for _, t := range a.trusted {
		if t != a.cert {
			pins = append(pins, pin(t))
		}
	}
	return strings.Join(pins, ",")
}

func pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Pool holds every authority that is trusted now.
func (c *CA) Pool() *x509.CertPool { return c.current().pool() }

// Bundle is Pool as PEM, for the agents.
func (c *CA) Bundle() []byte { return encodeCertificates(c.current().trusted) }

func selfSign(key crypto.Signer, trustDomain string) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: trustDomain + " agents"},
		NotBefore:             now.Add(-caBackdate),
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
	return place(path, content, mode, os.Link)
}

// replace makes a file have other content, whole or not at all.
func replace(path string, content []byte, mode os.FileMode) error {
	return place(path, content, mode, os.Rename)
}

func place(path string, content []byte, mode os.FileMode, move func(from, to string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err == nil {
		err = move(temp.Name(), path)
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
