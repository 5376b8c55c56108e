package agent

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	keyFile    = "key.pem"
	certFile   = "cert.pem"
	bundleFile = "ca.pem"
	hostFile   = "host.json"
	lockFile   = "lock"
)

// identity is who this host is. It is never changed: a renewal makes a new one.
type identity struct {
	HostID           string `json:"hostId"`
	TenantID         string `json:"tenantId"`
	HeartbeatSeconds int    `json:"heartbeatSeconds"`

	key    crypto.Signer
	cert   []byte // PEM
	bundle []byte // PEM
	leaf   *x509.Certificate
	roots  *x509.CertPool
	pair   tls.Certificate
}

// csr asks for nothing but the key: the server decides what the certificate says.
func (i *identity) csr() (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, i.key)
	if err != nil {
		return "", fmt.Errorf("making the certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

func (i *identity) joined(answer joinResponse) (*identity, error) {
	host := identity{HostID: answer.HostID, TenantID: answer.TenantID, HeartbeatSeconds: answer.HeartbeatSeconds, key: i.key}
	if host.HostID == "" || host.TenantID == "" {
		return nil, errors.New("it names no host")
	}
	return host.with(answer.Certificate, answer.CABundle)
}

func (i *identity) renewed(answer renewResponse) (*identity, error) {
	return i.with(answer.Certificate, answer.CABundle)
}

// with returns a copy that holds the certificate, once it is proved to be one for our key, by the bundle.
func (i *identity) with(cert, bundle string) (*identity, error) {
	host := *i
	host.cert, host.bundle = []byte(cert), []byte(bundle)
	host.roots = x509.NewCertPool()
	if !host.roots.AppendCertsFromPEM(host.bundle) {
		return nil, errors.New("the CA bundle holds no certificate")
	}
	block, _ := pem.Decode(host.cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	if pub, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(i.key.Public()) {
		return nil, errors.New("the certificate is for another key")
	}
	// Whether it is still valid is for the server's clock to say.
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: host.roots, CurrentTime: leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	host.leaf = leaf
	host.pair = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: i.key, Leaf: leaf}
	return &host, nil
}

// state is the folder in which the identity is kept. host.json is written last: it is there when the join is done.
type state struct {
	dir  string
	lock *os.File
}

// openState makes the folder if need be, and holds it for this process alone.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the state folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("closing the state folder to others: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state folder: %w", err)
	}
	// The system frees the lock when the process ends, however it ends.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another bcd is using %s: %w", dir, err)
	}
	return &state{dir: dir, lock: lock}, nil
}

func (s *state) close() { _ = s.lock.Close() }

// load returns the identity of a host that has joined, or nil.
func (s *state) load() (*identity, error) {
	text, err := os.ReadFile(s.path(hostFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	var host identity
	if err := json.Unmarshal(text, &host); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.path(hostFile), err)
	}
	if host.key, err = s.loadKey(); err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(s.path(certFile))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	bundle, err := os.ReadFile(s.path(bundleFile))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	loaded, err := host.with(string(cert), string(bundle))
	if err != nil {
		return nil, fmt.Errorf("the state in %s: %w", s.dir, err)
	}
	return loaded, nil
}

// save keeps the identity. It may stop anywhere: a certificate and a bundle that came apart both still work.
func (s *state) save(host *identity) error {
	text, err := json.Marshal(host)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	return errors.Join(
		s.write(bundleFile, host.bundle),
		s.write(certFile, host.cert),
		s.write(hostFile, append(text, '\n')),
	)
}

// newIdentity is the key of this host and nothing else yet. The key is made once and kept before it is used.
func (s *state) newIdentity() (*identity, error) {
	key, err := s.loadKey()
	if err == nil {
		return &identity{key: key}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(fresh)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	if err := s.write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return nil, err
	}
	return &identity{key: fresh}, nil
}

func (s *state) loadKey() (crypto.Signer, error) {
	text, err := os.ReadFile(s.path(keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", s.path(keyFile))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.path(keyFile), err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds no signing key", s.path(keyFile))
	}
	return key, nil
}

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

// write replaces a file whole, and returns once that would survive a power cut.
func (s *state) write(name string, content []byte) error {
	temp, err := os.CreateTemp(s.dir, "."+name+"-*") // which makes it 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(temp.Name(), s.path(name)); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
