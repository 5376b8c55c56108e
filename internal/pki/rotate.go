package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// nextKeyFile holds the key of the successor, from the begin of a rotation to its switch.
const nextKeyFile = "next.key"

// HostLife is how long a host's certificate lasts, and with it how long each step of a rotation must: by then every host that is
// still heard of has renewed, and holds what the step before gave out.
const HostLife = 24 * time.Hour

// A rotation that is asked for out of turn.
var (
	ErrNoRotation = errors.New("no rotation is under way")
	ErrTooEarly   = errors.New("too early")
)

// BeginRotation makes a successor of the authority in dir and trusts it beside the old one, which goes on to sign: hosts get both with
// their next renewal. Idempotent until the switch; it completes what a crash left.
func BeginRotation(dir string) error {
	a, err := readAuthority(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, nextKeyFile)
	key, err := ensureKey(path)
	if err == nil && a.of(key) == a.cert {
		// A copy of the folder on another replica keeps the file that the switch moved away here.
		if err = os.Remove(path); err == nil {
			key, err = ensureKey(path)
		}
	}
	if err != nil {
		return err
	}
	if a.of(key) != nil {
		return nil
	}
	der, err := selfSign(key, a.cert.URIs[0].Host)
	if err != nil {
		return err
	}
	successor, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("checking the successor: %w", err)
	}
	return replace(filepath.Join(dir, certFile), encodeCertificates(append(slices.Clone(a.trusted), successor)), 0o644)
}

// SwitchRotation lets the successor sign; the old authority stays trusted. The old key is gone with it. ErrNoRotation when none was begun,
// ErrTooEarly until HostLife has passed since, unless now is set: hosts that have not renewed since the begin then lose the server.
func SwitchRotation(dir string, now bool) error {
	a, err := readAuthority(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, nextKeyFile)
	key, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoRotation
	}
	if err != nil {
		return err
	}
	successor := a.of(key)
	if successor == a.cert {
		return ErrNoRotation
	}
	if successor == nil {
		return fmt.Errorf("%w: the successor is not in %s yet; begin again", ErrNoRotation, certFile)
	}
	if err := passed(successor.NotBefore.Add(caBackdate), now); err != nil {
		return err
	}
	// The file's time is when the successor began to sign.
	if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil {
		return fmt.Errorf("switching the CA key: %w", err)
	}
	if err := os.Rename(path, filepath.Join(dir, keyFile)); err != nil {
		return fmt.Errorf("switching the CA key: %w", err)
	}
	return syncDir(dir)
}

// FinishRotation trusts the signing authority alone. ErrNoRotation before a switch and where only one is trusted, ErrTooEarly until HostLife
// has passed since the switch, unless now is set: hosts that have not renewed since then are refused.
func FinishRotation(dir string, now bool) error {
	a, err := readAuthority(dir)
	if err != nil {
		return err
	}
	if key, err := loadKey(filepath.Join(dir, nextKeyFile)); err == nil && a.of(key) != a.cert {
		return fmt.Errorf("%w that was switched: the successor does not sign yet", ErrNoRotation)
	}
	if len(a.trusted) == 1 {
		return ErrNoRotation
	}
	if err := passed(a.files[1].modified, now); err != nil {
		return err
	}
	return replace(filepath.Join(dir, certFile), encodeCertificates([]*x509.Certificate{a.cert}), 0o644)
}

func passed(since time.Time, now bool) error {
	if wait := HostLife - time.Since(since); wait > 0 && !now {
		return fmt.Errorf("%w: hosts need another %s to renew", ErrTooEarly, wait.Round(time.Minute))
	}
	return nil
}

// of is the trusted certificate of the key.
func (a *authority) of(key crypto.Signer) *x509.Certificate {
	i := slices.IndexFunc(a.trusted, func(t *x509.Certificate) bool {
		pub, ok := t.PublicKey.(*ecdsa.PublicKey)
		return ok && pub.Equal(key.Public())
	})
	if i < 0 {
		return nil
	}
	return a.trusted[i]
}
