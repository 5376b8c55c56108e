package ssh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	cryptossh "golang.org/x/crypto/ssh"

	"better/compute/apitest/netns"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	login, text := newKey()
	a := must[*ssh.Access](t)(ssh.NewAccess(text, "bcd-1"))
	var config struct {
		Keys       map[string]string `json:"ssh_keys"`
		Authorized []string          `json:"ssh_authorized_keys"`
	}
	userData := must[string](t)(a.UserData())
	if err := json.Unmarshal([]byte(strings.TrimPrefix(userData, "#cloud-config\n")), &config); err != nil {
		t.Fatal(err)
	}
	host := must[cryptossh.Signer](t)(cryptossh.ParsePrivateKey([]byte(config.Keys["ed25519_private"])))
	if got := cryptossh.FingerprintSHA256(host.PublicKey()); got != a.Fingerprint() {
		t.Errorf("the machine shows %s, and %s is expected", got, a.Fingerprint())
	}
	if want := string(cryptossh.MarshalAuthorizedKey(login.PublicKey())); len(config.Authorized) != 1 || config.Authorized[0]+"\n" != want {
		t.Errorf("authorized %q, want %q", config.Authorized, want)
	}
	again := must[*ssh.Access](t)(ssh.NewAccess(text+"\n", "bcd-1"))
	other := must[*ssh.Access](t)(ssh.NewAccess(text, "bcd-2"))
	stranger := must[*ssh.Access](t)(ssh.NewAccess(anyKey(), "bcd-1"))
	if a.Fingerprint() != again.Fingerprint() || a.Fingerprint() == other.Fingerprint() || a.Fingerprint() == stranger.Fingerprint() {
		t.Error("a host key is not of one private key and one operation")
	}
	_, err := ssh.NewAccess("sesame", "bcd-1")
	if e := wantError(t, err, provider.SecretUnresolved, "PEM"); strings.Contains(e.Error(), "sesame") {
		t.Errorf("%v shows the key", e)
	}
}

// TestMark: a vendor takes a mark for a key, and knows the marks of two texts apart.
func TestMark(t *testing.T) {
	t.Parallel()
	line, print := ssh.Mark("bcd-1")
	key, _, _, _, err := cryptossh.ParseAuthorizedKey([]byte(line))
	if err != nil || key.Type() != cryptossh.KeyAlgoED25519 || cryptossh.FingerprintLegacyMD5(key) != print {
		t.Errorf("%q is no key with the fingerprint %s: %v", line, print, err)
	}
	if again, _ := ssh.Mark("bcd-1"); again != line {
		t.Error("a mark is not always the same")
	}
	if other, _ := ssh.Mark("bcd-2"); other == line {
		t.Error("two texts have one mark")
	}
}

// TestOn reaches a machine as another driver does.
func TestOn(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	account := provider.Account{ID: "pacct_x", Config: json.RawMessage(`{"of":"another driver"}`), Secret: func(context.Context, string) (string, error) {
		return h.PrivateKey, nil
	}}
	b := must[provider.Bootstrapper](t)(ssh.New(ssh.Options{}).On(t.Context(), account, ssh.Machine{
		ID: "1234", Address: h.Address.String(), Fingerprint: h.Fingerprint, PrivateKey: "secret://key", Kind: model.VPS,
	}))
	if got := must[*provider.Identity](t)(b.Identify(t.Context(), "1234")); got.Serial != h.Serial || got.SSHHostKey != h.Fingerprint {
		t.Errorf("identified as %+v", got)
	}
}
