package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
)

// The agents' authority is replaced while hosts are there. Who trusts both goes on through restarts of the machine and the server, who joins
// after the switch is the successor's, and once the former one is out its certificates count no more.
func TestAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 3)
	s := startServer(t, hosts[0].Gateway, nil)
	alice := s.alice().newSite("home", hosts...)
	join := func(i int) (hostID string) {
		t.Helper()
		return alice.awaitRun(alice.bootstrap("machineId", machineName(i), machineName(i)), "JOINED").HostID
	}

	if pins := s.rotate("begin"); len(pins) != 2 {
		t.Fatalf("two authorities are trusted now, and not %q", pins)
	}
	s.restart() // it would see the new files by itself within a second
	between := join(0)
	if config := hosts[0].Run("cat /etc/bcd/config.json"); strings.Count(config, "sha256:") != 2 {
		t.Errorf("a machine that is installed now is told of one authority: %s", config)
	}
	present := issuer(hosts[0])

	if out, err := s.rotateStep("switch"); err == nil {
		t.Errorf("the switch does not wait for hosts that do not know the successor: %s", out)
	}
	s.rotate("switch", "--now")
	s.restart()
	alice.awaitHeartbeat(between)
	hosts[0].Reboot()
	alice.awaitHeartbeat(between)
	after := join(1)
	if issuer(hosts[1]) == present {
		t.Error("the former authority signs after the switch")
	}

	if pins := s.rotate("finish", "--now"); len(pins) != 1 {
		t.Errorf("one authority is trusted now, and not %q", pins)
	}
	s.restart()
	alice.awaitHeartbeat(after)
	last := join(2)
	hosts[1].Reboot()
	alice.awaitHeartbeat(after)
	alice.awaitHeartbeat(last)
	harness.Await(t, "the certificate of the former authority is refused", func() bool {
		log, _ := hosts[0].Try("cat /var/log/bcd.log")
		return strings.Contains(log, "certificate")
	})
	seen := alice.host(between).LastSeenAt
	alice.awaitHeartbeat(last)
	if now := alice.host(between).LastSeenAt; now != seen {
		t.Error("a host of the former authority is still heard")
	}
}

// issuer is the key that signed the machine's certificate, as its issuer's name and key id tell.
func issuer(h *netns.Host) string {
	return h.Run("openssl x509 -in /var/lib/bcd/cert.pem -noout -ext authorityKeyIdentifier")
}

func (s *server) restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// rotate takes a step of the replacement and returns the pins of the authorities that are trusted then.
func (s *server) rotate(step ...string) (pins []string) {
	s.t.Helper()
	out, err := s.rotateStep(step...)
	if err != nil {
		s.t.Fatalf("pki rotate %s: %v\n%s", step, err, out)
	}
	for line := range strings.Lines(out) {
		if pin, ok := strings.CutPrefix(strings.TrimSpace(line), "pin "); ok {
			pins = append(pins, pin)
		}
	}
	return pins
}

func (s *server) rotateStep(step ...string) (string, error) {
	args := append([]string{"pki", "rotate", "--config", s.config}, step...)
	out, err := exec.CommandContext(s.t.Context(), serverBuild.Program(s.t, "compute-api"), args...).CombinedOutput()
	return string(out), err
}
