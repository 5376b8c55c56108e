package ssh_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/model"
	"better/compute/provider"
)

const runningAgents = `for p in /proc/[0-9]*; do
	case $(readlink $p/exe) in /usr/local/bin/bcd*) echo ${p##*/} ;; esac
done`

// runningInstalls lists what sshd has started and not seen the end of.
const runningInstalls = `for p in /proc/[0-9]*; do
	if [ "$(tr '\0' ' ' <$p/cmdline)" = "sh -s " ]; then echo ${p##*/}; fi
done 2>/dev/null`

// agents are the process ids of the agents on the machine.
func agents(h *netns.Host) []string { return strings.Fields(h.Run(runningAgents)) }

func TestInstall(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	p := payload(t, h, 1)
	server := must[net.Listener](t)(net.Listen("tcp", netip.AddrPortFrom(h.Gateway, 7443).String()))
	defer func() { _ = server.Close() }()
	ref := must[string](t)(c.Install(t.Context(), h.Name, p))
	// The agent calls the server that it was told of.
	_ = server.(*net.TCPListener).SetDeadline(time.Now().Add(3 * time.Minute))
	call := must[net.Conn](t)(server.Accept())
	_ = call.Close()
	if from := call.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); from != h.Address {
		t.Errorf("%s called, want %s", from, h.Address)
	}
	s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref))
	if s.State != provider.InstallSucceeded || !strings.Contains(strings.Join(s.Log, "\n"), "bcd starts") {
		t.Errorf("install %+v", s)
	}
	if got := h.Run("cat /etc/bcd/join-token; stat -c '%a %U' /etc/bcd /etc/bcd/join-token /etc/bcd/config.json /usr/local/bin/bcd"); got !=
		token+"\n700 root\n600 root\n600 root\n755 root\n" {
		t.Errorf("files: %s", got)
	}
	if left := h.Run("ls -A /usr/local/bin | grep -v '^bcd$' || true; ls -A /etc/bcd"); strings.Contains(left, ".bcd-") || strings.Contains(left, ".new") {
		t.Errorf("temporary files are left: %s", left)
	}
	if log := h.Run("cat /var/log/bcd-install.log /var/log/bcd.log"); strings.Contains(log, token) {
		t.Errorf("a log shows the token: %s", log)
	}
}

func TestInstallAgainSupersedes(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	first := must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 1)))
	before := agents(h)
	h.Run("echo old >/var/lib/bcd/host.json")
	again := payload(t, h, 2)
	again.Token = "second-token"
	second := must[string](t)(c.Install(t.Context(), h.Name, again))
	after := agents(h)
	if len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("agents %v before and %v after, want one and another one", before, after)
	}
	if _, err := h.Try("test -e /var/lib/bcd/host.json"); err == nil {
		t.Error("the old identity outlived the install")
	}
	if got := h.Run("cat /etc/bcd/join-token"); got != "second-token\n" {
		t.Errorf("token %q", got)
	}
	_, err := c.InstallStatus(t.Context(), h.Name, first)
	wantError(t, err, provider.NotFound, first)
	if s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, second)); s.State != provider.InstallSucceeded {
		t.Errorf("install %+v", s)
	}
}

func TestAgentSurvives(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	ref := must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 1)))
	running := func() bool {
		s, err := c.InstallStatus(t.Context(), h.Name, ref)
		return err == nil && s.State == provider.InstallSucceeded
	}
	killed := agents(h)[0]
	h.Run("kill -KILL " + killed)
	eventually(t, "the agent runs after it was killed", func() bool { a := agents(h); return len(a) == 1 && a[0] != killed })
	h.Reboot()
	eventually(t, "the agent runs after a reboot", running)
	if n := len(agents(h)); n != 1 {
		t.Errorf("%d agents run", n)
	}
}

func TestAgentThatEnds(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	p := payload(t, h, 1)
	p.CAPin = "nonsense"
	ref := must[string](t)(c.Install(t.Context(), h.Name, p))
	var s *provider.InstallStatus
	eventually(t, "the agent ends", func() bool {
		s = must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref))
		return s.State == provider.InstallFailed
	})
	if s.ExitCode != 2 || !strings.Contains(strings.Join(s.Log, "\n"), "caPin") {
		t.Errorf("install %+v, want exit code 2 and why", s)
	}
}

func TestInstallOnAFullDisk(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	h.FillDisk(2 << 20)
	_, err := c.Install(t.Context(), h.Name, payload(t, h, 1))
	e := wantError(t, err, provider.InstallError, h.Name, "No space left on device")
	if len(e.Log) == 0 {
		t.Error("there is no log")
	}
	h.EmptyDisk()
	if _, err := c.Install(t.Context(), h.Name, payload(t, h, 1)); err != nil {
		t.Errorf("with space: %v", err)
	}
}

// gate lets some bytes of a reader through, then calls then before it goes on.
type gate struct {
	io.ReadCloser
	left int
	then func()
}

func (g *gate) Read(p []byte) (int, error) {
	if g.left <= 0 && g.then != nil {
		g.then()
		g.then = nil
	}
	n, err := g.ReadCloser.Read(p[:min(len(p), 32<<10)])
	g.left -= n
	return n, err
}

func TestInstallCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]struct{ break_, mend func(*netns.Host) }{
		"link":   {(*netns.Host).LinkDown, (*netns.Host).LinkUp},
		"power":  {(*netns.Host).PowerOff, (*netns.Host).PowerOn},
		"server": {(*netns.Host).StopSSHD, func(h *netns.Host) { h.StartSSHD() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netns.Hosts(t, 1)[0]
			a := accountOn(h)
			a.driver.Hasten(10*time.Second, 10*time.Second, 3*time.Minute)
			c := a.open(t)
			must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 1)))
			p := payload(t, h, 2)
			p.Token = "token-2"
			whole, broken := p.AgentBinary, make(chan struct{})
			p.AgentBinary = func(arch string) (io.ReadCloser, error) {
				r, err := whole(arch)
				return &gate{ReadCloser: r, left: 4 << 20, then: func() { cut.break_(h); close(broken) }}, err
			}
			_, err := c.Install(t.Context(), h.Name, p)
			<-broken
			wantError(t, err, provider.SSHUnreachable, h.Name)
			cut.mend(h)
			if got := h.Run("cat /etc/bcd/join-token"); got != token+"\n" {
				t.Errorf("half an install has changed the token to %q", got)
			}
			p.AgentBinary = whole
			ref := must[string](t)(c.Install(t.Context(), h.Name, p))
			if s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref)); s.State != provider.InstallSucceeded {
				t.Errorf("install %+v", s)
			}
			if left := h.Run("ls -A /usr/local/bin"); strings.Contains(left, ".bcd-") {
				t.Errorf("half a copy is left: %s", left)
			}
			if n := len(agents(h)); n != 1 {
				t.Errorf("%d agents run", n)
			}
		})
	}
}

// proxy stands between the driver and a machine, and cuts a connection after so many bytes of the driver's.
type proxy struct {
	listener net.Listener
	budget   atomic.Int64
	sent     atomic.Int64
}

func newProxy(t *testing.T, h *netns.Host) *proxy {
	t.Helper()
	p := &proxy{listener: must[net.Listener](t)(net.Listen("tcp", netip.AddrPortFrom(h.Gateway, 0).String()))}
	p.budget.Store(1 << 40)
	t.Cleanup(func() { _ = p.listener.Close() })
	go func() {
		for {
			from, err := p.listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", netip.AddrPortFrom(h.Address, 22).String())
			if err != nil {
				_ = from.Close()
				continue
			}
			go p.join(from, to)
		}
	}()
	return p
}

func (p *proxy) join(from, to net.Conn) {
	go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
	n, _ := io.CopyN(to, from, p.budget.Load())
	p.sent.Store(n)
	_ = to.Close()
	_ = from.Close()
}

func TestInstallCutAtAnyByte(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	p := newProxy(t, h)
	a := accountOn(h)
	a.machines[0]["address"], a.machines[0]["port"] = h.Gateway.String(), p.listener.Addr().(*net.TCPAddr).Port
	c := a.open(t)
	install := func(generation int) error {
		with := payload(t, h, generation)
		with.Token = fmt.Sprintf("token-%d", generation)
		_, err := c.Install(t.Context(), h.Name, with)
		return err
	}
	if err := install(0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the connection", func() bool { return p.sent.Load() > 0 })
	total := p.sent.Load()
	done := 0 // the generation that stands on the machine
	for i, cut := range []int64{10, 1500, 2500, 4000, 20_000, total / 2, total - 9000, total - 6000, total - 3000, total - 1000, total - 300, total - 50} {
		p.budget.Store(cut)
		generation := i + 1
		err := install(generation)
		if err != nil {
			wantError(t, err, provider.SSHUnreachable)
		}
		// What the machine has begun it ends, though nobody listens.
		eventually(t, "no install that runs and one agent", func() bool {
			return len(agents(h)) == 1 && h.Run(runningInstalls) == ""
		})
		switch got := h.Run("cat /etc/bcd/join-token"); {
		case got == fmt.Sprintf("token-%d\n", generation):
			done = generation
		case err == nil, got != fmt.Sprintf("token-%d\n", done):
			t.Errorf("cut after %d of %d bytes: the token is %q after %d and %d: %v", cut, total, got, done, generation, err)
		}
	}
	p.budget.Store(1 << 40)
	if err := install(100); err != nil {
		t.Fatal(err)
	}
	if s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, "generation-100")); s.State != provider.InstallSucceeded {
		t.Errorf("install %+v", s)
	}
	if got := h.Run("cat /etc/bcd/join-token; ls -A /usr/local/bin | grep bcd"); got != "token-100\nbcd\n" || len(agents(h)) != 1 {
		t.Errorf("on the machine: %s, agents %v", got, agents(h))
	}
}

func TestInstallOfABinaryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	c := accountOn(h).open(t)
	p := payload(t, h, 1)
	p.AgentBinary = func(string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{})), nil
	}
	_, err := c.Install(t.Context(), h.Name, p)
	wantError(t, err, provider.Unavailable)
	p.AgentBinary = func(string) (io.ReadCloser, error) { return nil, os.ErrNotExist }
	_, err = c.Install(t.Context(), h.Name, p)
	wantError(t, err, provider.Fatal)
	if _, err := h.Try("test -e /usr/local/bin/bcd"); err == nil {
		t.Error("half an agent is installed")
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk broken") }

func TestUninstallAndRelease(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	a := accountOn(h)
	c := a.open(t)
	other := *a
	other.id = "acc-2"
	must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 1)))
	if err := other.open(t).Uninstall(t.Context(), h.Name); err != nil {
		t.Error(err)
	}
	if len(agents(h)) != 1 {
		t.Fatal("another account has stopped the agent")
	}
	offers := must[[]*model.Offer](t)(c.Offers(t.Context()))
	claim := must[*provider.Claim](t)(c.Order(t.Context(), provider.Order{OperationID: "op-1", OfferID: offers[0].ID}))
	for range 2 {
		if err := c.Release(t.Context(), "op-1", claim.MachineID); err != nil {
			t.Error(err)
		}
	}
	if left := h.Run(runningAgents + "; ls -d /etc/bcd /var/lib/bcd /usr/local/bin/bcd /etc/init.d/bcd /etc/rc2.d/*bcd 2>/dev/null || true"); left != "" {
		t.Errorf("left on the machine: %s", left)
	}
	if taken, _ := a.inventory.Taken(t.Context(), nil); len(taken) > 0 {
		t.Errorf("still taken: %v", taken)
	}
}
