package libvirt_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"better/compute/apitest/harness"
)

// authority signs the certificates of a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	cert, key := a.sign("authority", true)
	a.pem = cert
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a certificate, for the first of itself, and its key.
func (a *authority) sign(name string, isAuthority bool) (cert, key string) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if isAuthority {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		parent, signer = template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// server is a libvirtd of a test's own.
type server struct {
	t         testing.TB
	dir       string
	port      int
	authority *authority
	cert, key string // of the client
	operator  *golibvirt.Libvirt
	mu        sync.Mutex // of operator
}

const configuration = `
listen_tls = 1
listen_tcp = 0
listen_addr = "127.0.0.1"
tls_port = "%[2]d"
key_file = "%[1]s/server.key"
cert_file = "%[1]s/server.pem"
ca_file = "%[1]s/ca.pem"
tls_no_sanity_certificate = 1
unix_sock_dir = "%[1]s"
auth_unix_rw = "none"
max_clients = 500
max_anonymous_clients = 500
log_outputs = "2:stderr"
`

// quiet is what QEMU's driver needs where there are neither cgroups nor profiles.
const quiet = "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\ncgroup_controllers = []\nnamespaces = []\nstdio_handler = \"file\"\n"

// inside gives the daemon directories of its own, whatever the machine's libvirt has, and the user that only a package with more in it makes.
const inside = `for d in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /run; do mkdir -p $d; mount -t tmpfs tmpfs $d || exit; done
for f in passwd group; do grep -v ^libvirt-qemu: /etc/$f >"$1/$f"; done
echo libvirt-qemu:x:64055:64055::/:/bin/false >>"$1/passwd"; echo libvirt-qemu:x:64055: >>"$1/group"
for f in passwd group; do mount --bind "$1/$f" /etc/$f || exit; done
mkdir -p /etc/libvirt/qemu; cp "$1/qemu.conf" /etc/libvirt/qemu.conf
exec libvirtd --listen --config "$1/libvirtd.conf" --pid-file "$1/pid"`

// startServer starts libvirtd and ends it with the test. Without root, and where it is not installed, the test is skipped, but not in CI.
func startServer(t *testing.T, uri golibvirt.ConnectURI, programs ...string) *server {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "a libvirtd with directories of its own needs root"
	}
	for _, program := range append(programs, "libvirtd", "unshare") {
		if _, err := exec.LookPath(program); err != nil {
			why = "there is no " + program + " to try: make deps installs it where it may"
		}
	}
	if why != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	dir, err := os.MkdirTemp("", "lv") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{t: t, dir: dir, port: freePort(t), authority: newAuthority(t)}
	cert, key := s.authority.sign("127.0.0.1", false)
	s.cert, s.key = s.authority.sign("client", false)
	for name, text := range map[string]string{
		"server.pem": cert, "server.key": key, "ca.pem": s.authority.pem, "qemu.conf": quiet, "libvirtd.conf": fmt.Sprintf(configuration, dir, s.port),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exited := s.run()
	s.await("libvirtd to answer", func() bool {
		select {
		case <-exited:
			t.Fatal("libvirtd has ended")
		default:
		}
		s.operator = golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(dir + "/libvirt-sock")))
		return s.operator.ConnectToURI(uri) == nil
	})
	t.Cleanup(func() { _ = s.operator.Disconnect() })
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(harness.FreeAddress(t, "127.0.0.1")).Port())
}

// run starts the daemon. Its log is shown when the test fails.
func (s *server) run() (exited <-chan struct{}) {
	s.t.Helper()
	path := filepath.Join(s.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh", s.dir)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	s.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		<-ended
		late.Stop()
		_ = log.Close()
		if text, err := os.ReadFile(path); err == nil && s.t.Failed() {
			s.t.Logf("libvirtd:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return ended
}

func (s *server) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// sold asks libvirtd's own books, as whoever may log in on the hypervisor.
func (s *server) sold(operationID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	domains, _, err := s.operator.ConnectListAllDomains(1, 0)
	if err != nil {
		s.t.Errorf("listing the domains: %v", err)
	}
	n := 0
	for _, d := range domains {
		if d.Name == operationID {
			n++
		}
	}
	return n
}

// config is that of an account on the server.
func (s *server) config(hypervisor string, port int) string {
	memory := 64
	if hypervisor == "test" {
		memory = 2 // libvirt's test driver says that it has 3 MiB
	}
	quote := func(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
	return fmt.Sprintf(`{"address":"127.0.0.1","port":%[1]d,"caCertificate":"%[2]s","certificate":"%[3]s","privateKey":"secret://hypervisor","hypervisor":"%[4]s",`+
		`"image":"debian.qcow2","pool":"machines","network":"user","sizes":[`+
		`{"name":"small","vcpu":1,"memoryMiB":%[5]d,"diskGB":2,"currency":"EUR","hourly":"0.02","monthly":"9.50"},`+
		`{"name":"small one","vcpu":1,"memoryMiB":%[5]d,"diskGB":2},{"name":"huge","vcpu":1,"memoryMiB":67108864,"diskGB":2}]}`,
		port, quote(s.authority.pem), quote(s.cert), hypervisor, memory)
}
