package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// followEvery is how often the files are looked at, at most.
const followEvery = time.Second

// authority is what the files of a folder say together. It is never changed: a rotation makes another one.
type authority struct {
	cert *x509.Certificate // signs
	key  crypto.Signer
	// trusted holds cert, and authorities on their way in or out.
	trusted []*x509.Certificate
	files   [2]stamp
}

// stamp tells one state of a file from the next.
type stamp struct {
	size     int64
	modified time.Time
}

func readAuthority(dir string) (*authority, error) {
	files := stampFiles(dir) // before the reading: a change in the midst of it is then seen as one
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
	a := &authority{key: key, trusted: trusted, files: files}
	for _, t := range trusted {
		if !t.IsCA || len(t.URIs) != 1 || t.URIs[0].Scheme != "spiffe" || t.URIs[0].Host != trusted[0].URIs[0].Host {
			return nil, fmt.Errorf("%s in %s holds a certificate that is no authority of its trust domain", certFile, dir)
		}
	}
	if a.cert = a.of(key); a.cert == nil {
		return nil, fmt.Errorf("%s in %s does not belong to its %s", keyFile, dir, certFile)
	}
	return a, nil
}

func stampFiles(dir string) (files [2]stamp) {
	for i, name := range []string{certFile, keyFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			files[i] = stamp{info.Size(), info.ModTime()}
		}
	}
	return files
}

// current is what the files say now, or said when they could last be read: a rotation that went wrong halfway takes nothing away.
func (c *CA) current() *authority {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.authority
	if time.Since(c.looked) < followEvery {
		return a
	}
	c.looked = time.Now()
	files := stampFiles(c.dir)
	if files == a.files || files == c.refused {
		return a
	}
	fresh, err := readAuthority(c.dir)
	if err == nil && fresh.cert.URIs[0].Host != c.trustDomain {
		err = fmt.Errorf("the CA in %s is for trust domain %q now, not %q", c.dir, fresh.cert.URIs[0].Host, c.trustDomain)
	}
	if err != nil {
		c.refused = files
		if c.Log != nil {
			c.Log.Error("the changed files of the certificate authority are not used", "error", err)
		}
		return a
	}
	c.authority = fresh
	return fresh
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, t := range a.trusted {
		pool.AddCert(t)
	}
	return pool
}

func encodeCertificates(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, t := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: t.Raw}) // a Buffer takes every write
	}
	return b.Bytes()
}
