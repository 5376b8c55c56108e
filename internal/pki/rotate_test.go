package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// follow makes the CA look at its files with its next use.
func (c *CA) follow() { c.looked = time.Time{} }

func TestRotation(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	first, firstPin := issue(t, c), c.Pin()
	serving := c.Renewing()
	if server, err := serving(nil); err != nil || !bytes.Equal(server.Certificate[1], c.current().cert.Raw) {
		t.Fatal("the listener does not serve under the first authority", err)
	}

	for range 2 { // again it changes nothing
		if err := BeginRotation(c.dir); err != nil {
			t.Fatal(err)
		}
	}
	c.follow()
	if n := len(c.current().trusted); n != 2 {
		t.Fatalf("%d authorities are trusted while a rotation is under way, want 2", n)
	}
	if pins := strings.Split(c.Pin(), ","); len(pins) != 2 || pins[0] != firstPin {
		t.Errorf("the pins are %v, want that of the signer and then its successor's", pins)
	}
	between := issue(t, c)
	if err := SwitchRotation(c.dir, false); !errors.Is(err, ErrTooEarly) {
		t.Fatalf("a switch at once gave %v", err)
	}
	if err := FinishRotation(c.dir, true); !errors.Is(err, ErrNoRotation) {
		t.Fatalf("finishing before the switch gave %v", err)
	}

	if err := SwitchRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
	c.follow()
	second := issue(t, c)
	if strings.HasPrefix(c.Pin(), firstPin) {
		t.Error("the first authority still signs after the switch")
	}
	if server, err := serving(nil); err != nil || !bytes.Equal(server.Certificate[1], c.current().cert.Raw) {
		t.Error("the listener goes on under the authority that signs no more", err)
	}
	for name, leaf := range map[string]*x509.Certificate{"the first": first, "one between": between, "the second": second} {
		if !trusted(c, leaf) {
			t.Errorf("%s is not trusted while both authorities are", name)
		}
	}
	if err := FinishRotation(c.dir, false); !errors.Is(err, ErrTooEarly) {
		t.Fatalf("finishing right after the switch gave %v", err)
	}

	if err := FinishRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
	c.follow()
	if trusted(c, first) || !trusted(c, second) {
		t.Error("after the end the old authority is trusted, or the new one is not")
	}
	for name, step := range map[string]error{"switch": SwitchRotation(c.dir, true), "finish": FinishRotation(c.dir, true)} {
		if !errors.Is(step, ErrNoRotation) {
			t.Errorf("a %s without a rotation gave %v", name, step)
		}
	}
}

func TestRotationWaitsForHosts(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	if err := BeginRotation(c.dir); err != nil {
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-HostLife - time.Minute)
	if err := os.Chtimes(filepath.Join(c.dir, keyFile), past, past); err != nil {
		t.Fatal(err)
	}
	if err := FinishRotation(c.dir, false); err != nil {
		t.Errorf("a day after the switch: %v", err)
	}
}

func TestBeginCompletesAfterACrash(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	if _, err := ensureKey(filepath.Join(c.dir, nextKeyFile)); err != nil { // it died between the key and the certificate
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); !errors.Is(err, ErrNoRotation) {
		t.Fatalf("a switch to a key without a certificate gave %v", err)
	}
	if err := BeginRotation(c.dir); err != nil {
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
}

// TestRotationOfACopy works on a folder that was copied over after each step, and so kept what the switch had moved away.
func TestRotationOfACopy(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	if err := BeginRotation(c.dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadFile(filepath.Join(c.dir, nextKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, nextKeyFile), left, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); !errors.Is(err, ErrNoRotation) {
		t.Errorf("a switch to the key that signs gave %v", err)
	}
	if err := FinishRotation(c.dir, true); err != nil {
		t.Errorf("the end of the rotation: %v", err)
	}
	c.follow()
	before := c.Pin()
	if err := BeginRotation(c.dir); err != nil {
		t.Fatal(err)
	}
	if err := SwitchRotation(c.dir, true); err != nil {
		t.Fatal(err)
	}
	c.follow()
	if strings.HasPrefix(c.Pin(), before) {
		t.Error("the next rotation changed nothing")
	}
}

// TestBadFilesAreNotFollowed damages the files of a CA in use: it goes on with what it had, and says so once for each damage.
func TestBadFilesAreNotFollowed(t *testing.T) {
	t.Parallel()
	c := newCA(t)
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	pin := c.Pin()
	good, err := os.ReadFile(filepath.Join(c.dir, certFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", string(newCA(t).Bundle())} {
		if err := os.WriteFile(filepath.Join(c.dir, certFile), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		for range 3 {
			c.follow()
			if c.Pin() != pin {
				t.Errorf("it follows %q", content)
			}
		}
		if n := strings.Count(log.String(), "not used"); n != 1 {
			t.Errorf("%d lines tell of one damage", n)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, certFile), good, fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
	c.follow()
	issue(t, c)
}

func issue(t *testing.T, c *CA) *x509.Certificate {
	t.Helper()
	signed, err := c.SignHost(HostProfile{TenantID: "t", HostID: hostID, PublicKey: newKey(t).Public(), Now: time.Now(), Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(signed.DER)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func trusted(c *CA, leaf *x509.Certificate) bool {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}
