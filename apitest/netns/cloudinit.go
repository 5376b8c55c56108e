package netns

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// firstBootLimit bounds a failure, as upLimit does.
const firstBootLimit = 3 * time.Minute

// TakeUserData does with a cloud-config in JSON what cloud-init does at a first boot, so far as it is about who may log in as root and which
// host key the machine has.
func (h *Host) TakeUserData(userData string) {
	h.t.Helper()
	var config struct {
		Authorized []string          `json:"ssh_authorized_keys"`
		HostKeys   map[string]string `json:"ssh_keys"`
	}
	text, found := strings.CutPrefix(userData, "#cloud-config\n")
	if err := json.Unmarshal([]byte(text), &config); err != nil || !found {
		h.t.Fatalf("user data %q: %v", userData, err)
	}
	h.StopSSHD()
	h.Write("/etc/ssh/netns_host_key", config.HostKeys["ed25519_private"])
	h.Write("/etc/ssh/netns_authorized_keys", strings.Join(config.Authorized, "\n")+"\n")
	h.StartSSHD()
}

// firstBoot is what a machine's init does with cloud-init. The network is the namespace's, and the locale that of the machine below. What fails is
// in the result.
const firstBoot = `set -e
rm -f /etc/cloud/cloud-init.disabled
cat >/etc/cloud/cloud.cfg.d/99_netns.cfg <<END
network: {config: disabled}
datasource_list: [NoCloud, ConfigDrive]
locale: false
ssh_genkeytypes: [ed25519]
END
{ cloud-init init --local; cloud-init init; cloud-init modules --mode=config; cloud-init modules --mode=final; } >/var/log/first-boot.log 2>&1 || true
cat /run/cloud-init/result.json`

// NeedCloudInit skips a test of first boots where cloud-init is not installed, but not in CI.
func NeedCloudInit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("cloud-init"); err != nil {
		const why = "there is no cloud-init to try: make deps installs it where it may"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
}

// FirstBoot has Debian's cloud-init find the files below its folder of seeds, such as nocloud/user-data, and do what they say, as at the first
// boot of a machine; a machine has no disk that it could find them on. It may be called from any goroutine.
func (h *Host) FirstBoot(seeds map[string]string) error {
	if out, err := h.enter("rm -rf /var/lib/cloud /run/cloud-init", ""); err != nil {
		return fmt.Errorf("making %s as new: %w: %s", h.Name, err, out)
	}
	for path, text := range seeds {
		path = "/var/lib/cloud/seed/" + path
		if out, err := h.enter("umask 077; mkdir -p "+filepath.Dir(path)+"; cat >"+path, text); err != nil {
			return fmt.Errorf("writing %s on %s: %w: %s", path, h.Name, err, out)
		}
	}
	out, err := h.enterFor(firstBootLimit, firstBoot, "")
	var result struct {
		V1 struct{ Errors []string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &result)
	}
	if err != nil || len(result.V1.Errors) > 0 {
		log, _ := h.enter("tail -n 100 /var/log/first-boot.log", "")
		return fmt.Errorf("the first boot of %s: %w, %q: %s", h.Name, err, result.V1.Errors, log)
	}
	return nil
}

// NewKey makes a private key in PEM that no machine knows.
func NewKey() string {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(block))
}
