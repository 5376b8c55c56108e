package ssh

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"better/compute/provider"
)

// legacyPrefix begins fingerprints of the old kind, which some vendors tell no other than. Nobody can make a key for one that is given.
const legacyPrefix = "MD5:"

// LegacyFingerprint is that of the key to log in with in the old form, "aa:bb:...", without a prefix.
func (a *Access) LegacyFingerprint() string { return ssh.FingerprintLegacyMD5(a.login) }

// Mark is a public key that stands for a text, with its fingerprint in the old form. It is a hash of the text, so there is no private key for it
// and it opens nothing: it is for vendors that keep nothing else of an order than which keys it came with.
func Mark(text string) (authorizedKey, legacyFingerprint string) {
	sum := sha256.Sum256([]byte("mark " + text))
	blob := ssh.Marshal(struct {
		Type string
		Key  []byte
	}{ssh.KeyAlgoED25519, sum[:]})
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		panic(err) // any 32 bytes have the form
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), ssh.FingerprintLegacyMD5(key)
}

// System is what InstallSystem puts onto a machine.
type System struct {
	// Image is what the name of the image begins with, such as Debian-13. Of several the last in the order of their names is taken.
	Image    string
	Hostname string
	// Access is who may log in, and the host key.
	Access *Access
}

// InstallSystem begins to put a system onto the disks of a machine that runs Hetzner's rescue system, with installimage, or tells how far an
// install is that runs there. It waits for nothing. The system starts when the machine is reset after InstallSucceeded. An install that failed is
// told once; the call after that begins anew.
//
// It takes the first disk, NVMe before others, and mirrors it on the next one of the same size where there is one. All that is on these goes.
func (d *Driver) InstallSystem(ctx context.Context, account provider.Account, m Machine, s System) (*provider.InstallStatus, error) {
	c, err := d.on(ctx, account, m)
	if err != nil {
		return nil, err
	}
	private, public, err := s.Access.hostKey()
	if err != nil {
		return nil, err
	}
	after := compose(map[string]string{
		"host_key": strings.TrimSuffix(private, "\n"), "host_public": public, "authorized": s.Access.AuthorizedKey(),
	}, "hostkey.sh")
	var status *provider.InstallStatus
	err = c.session(ctx, m.ID, c.limits.call, func(conn *connection) error {
		r, err := conn.script(map[string]string{"image": s.Image, "hostname": s.Hostname, "post_text": "#!/bin/sh\n" + after}, "installimage.sh")
		if err != nil {
			return err
		}
		status, err = r.systemStatus(conn.machine, s)
		return err
	})
	return status, err
}

func (r *result) systemStatus(m *machine, s System) (*provider.InstallStatus, error) {
	switch missing := r.value("missing"); {
	case missing == "image":
		return nil, provider.Errorf(provider.InvalidConfig, "The rescue system has no image whose name begins with %s.", s.Image)
	case missing != "":
		return nil, provider.Errorf(provider.InstallError, "%s has no %s.", capital(m.String()), missing)
	case r.code != 0:
		return nil, provider.Errorf(provider.InstallError, "Installing a system on %s could not begin: a step ended with exit code %d.", m, r.code)
	}
	status := &provider.InstallStatus{State: provider.InstallRunning, Log: tail(r.values("log"))}
	switch exit := r.number("exit"); {
	case exit == 0:
		status.State = provider.InstallSucceeded
	case exit > 0:
		status.State, status.ExitCode = provider.InstallFailed, int(exit)
		if len(status.Log) == 0 {
			status.Log = []string{fmt.Sprintf("installimage ended with exit code %d", exit)}
		}
	}
	return status, nil
}
