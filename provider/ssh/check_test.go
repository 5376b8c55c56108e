package ssh_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// A check is green only when each machine has shown its host key and taken the login; else it says which did not, and the worst of why.
func TestCheck(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 4)
	good, off, strange, locked := hosts[0], hosts[1], hosts[2], hosts[3]
	keys := good.Run("cat /etc/ssh/netns_authorized_keys")
	for _, h := range hosts {
		h.Write("/etc/ssh/netns_authorized_keys", keys)
	}
	a := accountOn(hosts...)
	a.key = good.PrivateKey
	c := a.open(t)
	if err := c.Check(t.Context()); err != nil {
		t.Fatalf("all machines are well: %v", err)
	}

	off.StopSSHD()
	e := wantError(t, c.Check(t.Context()), provider.SSHUnreachable, off.Name, "Nothing listens")
	if strings.Contains(e.Message, "cannot be logged in on") {
		t.Errorf("one machine that failed is counted: %s", e.Message)
	}
	locked.RefuseKey()
	wantError(t, c.Check(t.Context()), provider.SSHAuth, "Of the 4 machines that were asked, 2", off.Name, locked.Name, "authorized_keys")
	fresh := strange.ReplaceHostKey()
	e = wantError(t, c.Check(t.Context()), provider.SSHHostKey, "3 cannot", off.Name, locked.Name, strange.Name, fresh)
	if strings.Contains(e.Message, good.Name) {
		t.Errorf("the machine that is well is named: %s", e.Message)
	}
}

// However many machines there are, and whatever they do, a check ends in bounded time and says something short.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	h.FreezeSSHD()
	a := accountOn(h)
	a.driver.Hasten(time.Second, time.Second, 2*time.Second)
	for n := range 300 {
		a.machines = append(a.machines, box(fmt.Sprint("silent-", n), n, map[string]any{"address": h.Address.String()}))
	}
	e := wantError(t, a.open(t).Check(t.Context()), provider.SSHUnreachable, "Of the 64 machines that were asked, 64", "and 54 more")
	if len(e.Message) > 1000 {
		t.Errorf("the message has %d characters", len(e.Message))
	}
}

// A key that cannot be read is said before any machine is reached.
func TestCheckReadsTheKeysFirst(t *testing.T) {
	t.Parallel()
	a := &account{key: "no key", driver: ssh.New(ssh.Options{}), inventory: &inventory{}, id: "acc-1", machines: []map[string]any{box("a", 1, nil)}}
	wantError(t, a.open(t).Check(t.Context()), provider.SecretUnresolved)
}
