package ssh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/internal/leaktest"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// binDir is where bcd is built to.
var binDir string

// bcd is the path of the agent, built once for all tests that need it.
var bcd = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "bcd")
	build := exec.Command("go", "build", "-o", path, "better/compute/cmd/bcd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building bcd: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) { leaktest.Main(tests{m}) }

// tests have a directory for the agent that they build.
type tests struct{ *testing.M }

func (t tests) Run() int {
	var err error
	if binDir, err = os.MkdirTemp("", "bcd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binDir) }()
	return t.M.Run()
}

type client interface {
	provider.Bootstrapper
	provider.Orderer
}

// account is a rack of machines with the private key of the first one.
type account struct {
	driver    *ssh.Driver
	key       string
	machines  []map[string]any
	inventory *inventory
	id        string
}

func accountOn(hosts ...*netns.Host) *account {
	a := &account{key: anyKey(), driver: ssh.New(ssh.Options{}), inventory: &inventory{claims: map[string]string{}}, id: "acc-1"}
	for _, h := range hosts {
		a.key = h.PrivateKey
		a.machines = append(a.machines, map[string]any{
			"id": h.Name, "address": h.Address.String(), "hostFingerprint": h.Fingerprint, "kind": "metal", "region": "Home",
		})
	}
	return a
}

func (a *account) config(t *testing.T) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(map[string]any{"privateKey": "secret://rack", "machines": a.machines})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (a *account) open(t *testing.T) client {
	t.Helper()
	config := a.config(t)
	registry, err := provider.NewRegistry(a.driver)
	if err != nil {
		t.Fatal(err)
	}
	if issues := registry.ValidateConfig("ssh", config); len(issues) > 0 {
		t.Fatalf("the config is refused: %v", issues)
	}
	c, err := a.driver.Open(t.Context(), provider.Account{
		ID: a.id, Config: config, Inventory: a.inventory,
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference != "secret://rack" {
				return "", provider.Errorf(provider.SecretUnresolved, "There is no secret %s.", reference)
			}
			return a.key, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(client)
}

// inventory keeps its book in memory.
type inventory struct {
	mu     sync.Mutex
	claims map[string]string // operation: machine
}

func (i *inventory) Taken(context.Context, []provider.KeyedMachine) (map[string]bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := map[string]bool{}
	for _, m := range i.claims {
		taken[m] = true
	}
	return taken, nil
}

func (i *inventory) Claimed(_ context.Context, operation string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.claims[operation], nil
}

func (i *inventory) Take(_ context.Context, operation string, machines []provider.KeyedMachine) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.claims[operation]; m != "" {
		return m, nil
	}
	for _, m := range machines {
		free := true
		for _, other := range i.claims {
			free = free && other != m.MachineID
		}
		if free {
			i.claims[operation] = m.MachineID
			return m.MachineID, nil
		}
	}
	return "", provider.Errorf(provider.OutOfStock, "All are taken.")
}

func (i *inventory) Drop(_ context.Context, operation string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.claims, operation)
	return nil
}

const token = "canary-token-5f1d"

// payload is the real agent, sent to a server that there is not.
func payload(t *testing.T, h *netns.Host, generation int) provider.Payload {
	t.Helper()
	path, err := bcd()
	if err != nil {
		t.Fatal(err)
	}
	return provider.Payload{
		Generation:  generation,
		AgentBinary: func(string) (io.ReadCloser, error) { return os.Open(path) },
		JoinURL:     "https://" + net.JoinHostPort(h.Gateway.String(), "7443"),
		CAPin:       "sha256:" + strings.Repeat("0", 64),
		Token:       token,
	}
}

// wantError checks the class and that the message says each of the words.
func wantError(t *testing.T, err error, class provider.Class, words ...string) *provider.Error {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != class {
		t.Fatalf("got %v, want an error of class %s", err, class)
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("message %q does not say %q", e.Message, w)
		}
	}
	if strings.Contains(err.Error()+strings.Join(e.Log, ""), token) {
		t.Errorf("the error shows the token: %v %q", err, e.Log)
	}
	return e
}

// must gives the value of a call, or fails the test.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls until done, or fails after a time that only a failure takes.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	h := netns.HostsWith(t, 1, netns.Options{GPU: "10de:20b5"})[0]
	c := accountOn(h).open(t)
	got := must[*provider.Identity](t)(c.Identify(t.Context(), h.Name))
	if got.Serial != h.Serial || got.OSMachineID != h.MachineID || got.SSHHostKey != h.Fingerprint {
		t.Errorf("identified as %+v, want serial %s, machine-id %s and host key %s", got, h.Serial, h.MachineID, h.Fingerprint)
	}
	if !slices.Contains(got.Addresses, h.Address.String()) || got.CPUs < 1 || got.MemoryMiB < 1 || got.Arch == "" {
		t.Errorf("facts are missing: %+v", got)
	}
	if len(got.Disks) != 1 || got.Disks[0].SizeGB != 43 || got.Disks[0].Media != "ssd" {
		t.Errorf("disks %+v, want one SSD of 43 GB", got.Disks)
	}
	if len(got.GPUs) != 1 || got.GPUs[0].Vendor != "nvidia" || got.GPUs[0].Count != 1 {
		t.Errorf("GPUs %+v, want one of NVIDIA's", got.GPUs)
	}
	if _, err := c.Identify(t.Context(), "other"); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("an unknown machine: %v", err)
	}
	if key := must[string](t)(c.MachineKey(h.Name)); key != "ssh:"+h.Fingerprint {
		t.Errorf("machine key %q", key)
	}
}

func TestIdentifyWithNVIDIATools(t *testing.T) {
	t.Parallel()
	h := netns.HostsWith(t, 1, netns.Options{GPU: "10de:20b5"})[0]
	h.Write("/usr/local/bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA A100-SXM4-80GB, 81920'\necho 'NVIDIA A100-SXM4-80GB, 81920'\n")
	h.Run("chmod 755 /usr/local/bin/nvidia-smi")
	got := must[*provider.Identity](t)(accountOn(h).open(t).Identify(t.Context(), h.Name))
	if len(got.GPUs) != 1 || got.GPUs[0].Count != 2 || got.GPUs[0].Model != "A100-80GB" || *got.GPUs[0].MemoryGiB != 80 {
		t.Errorf("GPUs %+v, want two A100-80GB", got.GPUs)
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	first := must[*provider.Preparation](t)(c.Prepare(t.Context(), h.Name))
	if !first.Ready || first.BootID == "" || first.ClockOffset == nil || first.ClockOffset.Abs() > time.Minute {
		t.Errorf("preparation %+v", first)
	}
	h.SetClock(3 * time.Hour)
	h.Reboot()
	second := must[*provider.Preparation](t)(c.Prepare(t.Context(), h.Name))
	if second.BootID == first.BootID {
		t.Error("the boot id outlived a reboot")
	}
	if off := *second.ClockOffset - 3*time.Hour; off.Abs() > time.Minute {
		t.Errorf("clock offset %s, want 3 h", second.ClockOffset)
	}
	h.FillDisk(10 << 20)
	_, err := c.Prepare(t.Context(), h.Name)
	wantError(t, err, provider.InstallError, h.Name, "MiB free")
}

func TestAnotherUser(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	// Not every system has sudo; a setuid copy of setpriv does what it does here.
	h.Run(`echo 'deploy:x:4242:4242::/srv:/bin/sh' >>/etc/passwd; echo 'deploy:*:1::::::' >>/etc/shadow
		rm -f /usr/bin/sudo; cp "$(command -v setpriv)" /usr/local/bin/become; chmod 4755 /usr/local/bin/become; chmod 644 /etc/ssh/netns_authorized_keys`)
	a := accountOn(h)
	a.machines[0]["user"] = "deploy"
	c := a.open(t)
	identity := must[*provider.Identity](t)(c.Identify(t.Context(), h.Name))
	if identity.OSMachineID != h.MachineID || identity.Serial != "" {
		t.Errorf("identified as %+v, want the machine-id and no serial, which is root's to read", identity)
	}
	_, err := c.Prepare(t.Context(), h.Name)
	wantError(t, err, provider.SSHAuth, "deploy", "sudo", "root")

	a.machines[0]["sudo"] = true
	c = a.open(t)
	_, err = c.Prepare(t.Context(), h.Name)
	wantError(t, err, provider.SSHAuth, "deploy", "sudo")

	h.Write("/usr/local/bin/sudo", "#!/bin/sh\n[ \"$1\" = -n ] || exit 1\nshift\nexec become --reuid=0 --regid=0 --clear-groups \"$@\"\n")
	h.Run("chmod 755 /usr/local/bin/sudo")
	if p := must[*provider.Preparation](t)(c.Prepare(t.Context(), h.Name)); !p.Ready {
		t.Errorf("preparation %+v", p)
	}
	ref := must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 1)))
	if s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref)); s.State != provider.InstallSucceeded {
		t.Errorf("install %+v", s)
	}
	if got := h.Run("stat -c '%a %U' /etc/bcd/join-token"); got != "600 root\n" {
		t.Errorf("the token is %q", got)
	}
}

func TestNoShell(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	h.StopSSHD()
	h.StartSSHD(`ForceCommand=echo Please login as the user ubuntu`)
	_, err := accountOn(h).open(t).Identify(t.Context(), h.Name)
	wantError(t, err, provider.SSHAuth, "Please login as the user ubuntu", h.Name)
}

func TestNoisyShell(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	h.StopSSHD()
	h.StartSSHD(`ForceCommand=echo serial=of-the-day; eval "$SSH_ORIGINAL_COMMAND"`)
	got := must[*provider.Identity](t)(accountOn(h).open(t).Identify(t.Context(), h.Name))
	if got.Serial != h.Serial {
		t.Errorf("serial %q, want %q", got.Serial, h.Serial)
	}
}

func TestOtherHostKey(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	fresh := h.ReplaceHostKey()
	_, err := c.Identify(t.Context(), h.Name)
	wantError(t, err, provider.SSHHostKey, h.Name, h.Fingerprint, fresh)
}

func TestAnyPinnedHostKeyWillDo(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	h.Run(`for type in rsa ecdsa; do
		ssh-keygen -q -t $type -N '' -f /etc/ssh/other_$type
		echo "HostKey /etc/ssh/other_$type" >>/etc/ssh/netns.conf
	done`)
	h.StopSSHD()
	h.StartSSHD()
	for _, keyType := range []string{"rsa", "ecdsa"} {
		a := accountOn(h)
		a.machines[0]["hostFingerprint"] = strings.Fields(h.Run("ssh-keygen -lf /etc/ssh/other_" + keyType + ".pub"))[1]
		c := a.open(t)
		for range 2 {
			if _, err := c.Identify(t.Context(), h.Name); err != nil {
				t.Errorf("pinned to the %s key: %v", keyType, err)
			}
		}
	}
}

func TestRefusedKey(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	h.RefuseKey()
	c := accountOn(h).open(t)
	_, err := c.Prepare(t.Context(), h.Name)
	wantError(t, err, provider.SSHAuth, h.Name, "root", h.Address.String(), "authorized_keys")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	a, hasty := accountOn(h), accountOn(h)
	a.driver.Hasten(5*time.Second, 5*time.Second, 20*time.Second)
	hasty.driver.Hasten(time.Second, time.Second, 20*time.Second) // before the kernel finds that there is nobody on the link
	c := a.open(t)
	identify := func(words ...string) {
		t.Helper()
		_, err := c.Identify(t.Context(), h.Name)
		wantError(t, err, provider.SSHUnreachable, append(words, h.Name)...)
	}
	h.StopSSHD()
	identify("refused")
	h.StartSSHD()
	h.FreezeSSHD()
	identify("does not answer")
	h.Reboot()
	h.LinkDown()
	_, err := hasty.open(t).Identify(t.Context(), h.Name)
	wantError(t, err, provider.SSHUnreachable, "no connection within", h.Name)
	h.LinkUp()
	h.PowerOff()
	identify()
	h.PowerOn()
	if _, err := c.Identify(t.Context(), h.Name); err != nil {
		t.Errorf("after all is well again: %v", err)
	}
}

func TestHangAfterLogin(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	a := accountOn(h)
	a.driver.Hasten(time.Minute, time.Minute, 10*time.Second) // for all of it, of which the login is a part
	c := a.open(t)
	h.StopSSHD()
	h.StartSSHD("ForceCommand=sleep 3600")
	_, err := c.Identify(t.Context(), h.Name)
	wantError(t, err, provider.SSHUnreachable, "in time", h.Name)
}

func TestGivenUpCall(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	h.StopSSHD()
	h.StartSSHD("ForceCommand=touch /run/logged-in; sleep 3600")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Identify(ctx, h.Name)
		done <- err
	}()
	eventually(t, "the login", func() bool { _, err := h.Try("test -e /run/logged-in"); return err == nil })
	cancel()
	wantError(t, <-done, provider.Unavailable)
}
