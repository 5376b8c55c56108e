package netns

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"strings"

	"golang.org/x/crypto/ssh"
)

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
