package ssh_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	cryptossh "golang.org/x/crypto/ssh"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// newKey makes a key, and its PEM.
func newKey() (cryptossh.Signer, string) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	signer, err := cryptossh.NewSignerFromKey(private)
	if err != nil {
		panic(err)
	}
	block, err := cryptossh.MarshalPrivateKey(private, "")
	if err != nil {
		panic(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// anyKey is a private key that no machine knows.
func anyKey() string {
	_, text := newKey()
	return text
}

// TestThisMachine reaches a real sshd that needs no root: it runs as the user of the test and lets only that user in.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		if os.Geteuid() == 0 || os.Getenv("CI") != "" {
			t.Fatal("there is no sshd: install the package openssh-server")
		}
		t.Skip("there is no sshd: install the package openssh-server")
	}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // as root it insists on this folder
			t.Fatal(err)
		}
	}
	me := must[*user.User](t)(user.Current())
	host, hostText := newKey()
	login, loginText := newKey()
	dir := t.TempDir()
	for name, text := range map[string]string{"host": hostText, "allowed": string(cryptossh.MarshalAuthorizedKey(login.PublicKey())), "config": "UsePAM no\nStrictModes no\nPasswordAuthentication no\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := serveEach(t, sshd, "-i", "-f", filepath.Join(dir, "config"), "-h", filepath.Join(dir, "host"),
		"-o", "AuthorizedKeysFile="+filepath.Join(dir, "allowed"))

	a := accountOn()
	a.driver, a.key = ssh.New(ssh.Options{AllowLoopback: true}), loginText
	a.machines = []map[string]any{{
		"id": "here", "address": "127.0.0.1", "port": port, "user": me.Username, "hostFingerprint": cryptossh.FingerprintSHA256(host.PublicKey()), "kind": "vps",
	}}
	identity := must[*provider.Identity](t)(a.open(t).Identify(t.Context(), "here"))
	if identity.CPUs < 1 || identity.MemoryMiB < 1 {
		t.Errorf("identified as %+v", identity)
	}
	if p, err := a.open(t).Prepare(t.Context(), "here"); me.Uid == "0" {
		if err != nil || !p.Ready {
			t.Errorf("prepared %+v, %v", p, err)
		}
	} else {
		wantError(t, err, provider.SSHAuth, "needs root")
	}
	a.key = anyKey()
	_, err = a.open(t).Identify(t.Context(), "here")
	wantError(t, err, provider.SSHAuth, me.Username)
	a.machines[0]["hostFingerprint"] = pin(1)
	_, err = a.open(t).Identify(t.Context(), "here")
	wantError(t, err, provider.SSHHostKey, pin(1), cryptossh.FingerprintSHA256(host.PublicKey()))
}

// serveEach runs the program for every connection to the returned port, as inetd does.
func serveEach(t *testing.T, program string, args ...string) (port int) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			file, err := conn.(*net.TCPConn).File()
			_ = conn.Close()
			if err != nil {
				continue
			}
			cmd := exec.Command(program, args...)
			cmd.Stdin, cmd.Stdout = file, file
			if err := cmd.Start(); err == nil {
				go func() { _ = cmd.Wait() }()
			}
			_ = file.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}
