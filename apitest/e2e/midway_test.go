package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
)

const (
	// installingLimit leaves room for an install that begins anew once a dead connection was noticed, which takes 20 s.
	installingLimit = 2 * time.Minute
	// installedLimit leaves room for a reboot.
	installedLimit = 90 * time.Second
)

// trouble is something that happens to a machine before its run or in the middle of it, and what the run must make of it.
type trouble struct {
	name   string
	offer  bool                         // the machine is ordered and not named
	before func(site, *netns.Host)      // the run begins
	amid   func(site, *netns.Host, run) // it goes on, one after the other
	way    []string
	reason string // empty for a run that ends joined
	says   []string
	log    string // in the last lines of the machine
	clean  string
	mend   func(site, *netns.Host)
}

var troubles = []trouble{
	{
		name: "rebooted amid the install", before: holdCopy("exec sleep 3600"), amid: whileCopying((*netns.Host).Reboot),
		way: byMachine, clean: "NONE",
	},
	{
		name: "link cut amid the install for good", before: holdCopy("exec sleep 3600"), amid: whileCopying((*netns.Host).LinkDown),
		way: failedIn("INSTALLING"), reason: "SSH_UNREACHABLE", says: []string{"could not be reached over SSH in time"}, clean: "KEPT",
		mend: alone((*netns.Host).LinkUp),
	},
	{
		name: "disk full", before: func(_ site, h *netns.Host) { h.FillDisk(1 << 20) },
		way: failedIn("PREPARING"), reason: "INSTALL_FAILED", says: []string{"MiB free where the agent goes"}, clean: "KEPT", mend: alone((*netns.Host).EmptyDisk),
	},
	{
		name: "disk full amid the install", offer: true, before: holdCopy(`dd if=/dev/zero of=/filler bs=65536 2>/dev/null; exec /bin/cat`),
		way: append([]string{"CLAIMING"}, failedIn("INSTALLING")...), reason: "INSTALL_FAILED", says: []string{"No space left on device"},
		log: "No space left on device", clean: "RELEASED", mend: alone((*netns.Host).EmptyDisk),
	},
	{
		name: "clock three hours ahead", before: func(_ site, h *netns.Host) { h.SetClock(3 * time.Hour) },
		way: failedIn("PREPARING"), reason: "CLOCK_SKEW", says: []string{"clock"}, clean: "KEPT", mend: func(_ site, h *netns.Host) { h.SetClock(0) },
	},
	{
		name: "clock four minutes behind", before: func(_ site, h *netns.Host) { h.SetClock(-4 * time.Minute) }, way: byMachine, clean: "NONE",
	},
	{
		name: "rebooted before the join", before: keepFromServer, amid: rebootInstalled, way: byMachine, clean: "NONE",
	},
	{
		name: "link cut amid the install, and mended", before: holdCopy("exec sleep 3600"), amid: cutUntilNoticed, way: byMachine, clean: "NONE",
	},
	{
		name: "no way to the server", before: keepFromServer, way: failedIn("INSTALLED"), reason: "JOIN_TIMEOUT",
		says: []string{"did not join in time"}, clean: "KEPT", mend: unblockServer,
	},
	{
		name: "sshd hangs after the login", before: func(_ site, h *netns.Host) { h.StopSSHD(); h.StartSSHD("ForceCommand=sleep 3600") },
		way: failedIn("IDENTIFYING"), reason: "SSH_UNREACHABLE", says: []string{"accepts the login, but does not get done in time"}, clean: "NONE",
		mend: func(_ site, h *netns.Host) { h.StopSSHD(); h.StartSSHD() },
	},
}

// failedIn is the way of a run on a named machine that fails in the state.
func failedIn(state string) []string {
	return append(slices.Clone(byMachine[:slices.Index(byMachine, state)+1]), "FAILED")
}

// holdCopy makes the first copy of the agent stop half-way and do something else then.
func holdCopy(then string) func(site, *netns.Host) {
	return func(_ site, h *netns.Host) {
		h.Write("/usr/local/bin/cat", `#!/bin/sh
case $(readlink /proc/$$/fd/1) in /usr/local/bin/.bcd-*) ;; *) exec /bin/cat "$@" ;; esac
if [ -e /srv/held ]; then exec /bin/cat "$@"; fi
head -c 100000
: >/srv/held
`+then+"\n")
		h.Run("chmod 755 /usr/local/bin/cat")
	}
}

// whileCopying does it while the agent is being copied, which stands still until then.
func whileCopying(do func(*netns.Host)) func(site, *netns.Host, run) {
	return func(s site, h *netns.Host, _ run) {
		harness.Await(s.t, "the agent is being copied", func() bool { _, err := h.Try("test -e /srv/held"); return err == nil })
		do(h)
	}
}

func alone(do func(*netns.Host)) func(site, *netns.Host) {
	return func(_ site, h *netns.Host) { do(h) }
}

func keepFromServer(s site, h *netns.Host) { block(h, s.agentAddress) }
func unblockServer(s site, h *netns.Host)  { unblock(h, s.agentAddress) }

func rebootInstalled(s site, h *netns.Host, r run) {
	s.awaitRun(r.ID, "INSTALLED")
	h.Reboot()
	unblockServer(s, h)
}

// cutUntilNoticed plugs the cable in again once the server knows that the machine is not there.
func cutUntilNoticed(s site, h *netns.Host, r run) {
	whileCopying((*netns.Host).LinkDown)(s, h, r)
	harness.Await(s.t, "the run waits for the machine", func() bool { return s.run(r.ID).WaitReason == "SSH_UNREACHABLE" })
	h.LinkUp()
}

// Whatever happens to a machine while it is installed, its run ends joined, or failed with the reason, what the machine said last and what
// became of it. Once the machine is well again it becomes a host, whatever was left on it.
func TestTroubleMidway(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, len(troubles))
	s := startServer(t, hosts[0].Gateway, map[string]string{
		"identifying": identifyingLimit.String(), "installing": installingLimit.String(), "installed": installedLimit.String(),
	})
	alice := s.alice().newTroubledSite(hosts)
	runs := make([]string, len(troubles))
	for i, tr := range troubles {
		tr.before(alice, hosts[i])
		runs[i] = alice.beginTroubled(i, "troubled")
	}
	for i, tr := range troubles {
		if tr.amid != nil {
			tr.amid(alice, hosts[i], run{ID: runs[i]})
		}
	}
	joined, right := 0, 0
	for i, tr := range troubles {
		r := alice.awaitEnd(runs[i])
		t.Logf("%s: %s %+v", tr.name, r.Status, r.Failure)
		checkEnd(t, r, tr)
		switch {
		case r.Status == "JOINED" && tr.reason == "":
			joined++
		case r.Failure != nil && r.Failure.Reason == tr.reason:
			right++
		}
		if tr.mend != nil {
			tr.mend(alice, hosts[i])
		}
	}

	for i, tr := range troubles {
		if clean := alice.awaitCleanup(runs[i]); clean != tr.clean {
			t.Errorf("%s: the cleanup ends %s, want %s", tr.name, clean, tr.clean)
		}
		if tr.mend != nil {
			runs[i] = alice.beginTroubled(i, "mended")
		}
	}
	for i := range troubles {
		alice.awaitHeartbeat(alice.awaitRun(runs[i], "JOINED").HostID)
		checkJoined(t, hosts[i])
	}
	harness.Report(t, t.Name(), 0, "troubles=%d joined=%d failed-with-the-reason=%d otherwise=%d", len(troubles), joined, right, len(troubles)-joined-right)
}

// newTroubledSite has each machine that is to be ordered in a region of its own, so that its offer is no other machine's.
func (c caller) newTroubledSite(hosts []*netns.Host) site {
	c.t.Helper()
	config := c.inventory(hosts...)
	for i, tr := range troubles {
		if tr.offer {
			config["machines"].([]map[string]any)[i]["region"] = machineName(i)
		}
	}
	return site{c, c.createAccount("troubled", config), c.createPool("troubled")}
}

func (s site) beginTroubled(i int, key string) (runID string) {
	s.t.Helper()
	if troubles[i].offer {
		return s.bootstrap("offerId", s.offerIn(machineName(i)), key+machineName(i))
	}
	return s.bootstrap("machineId", machineName(i), key+machineName(i))
}

// offerIn is the only offer of the region.
func (s site) offerIn(region string) string {
	s.t.Helper()
	offers := must[struct{ Offers []struct{ ID, Region string } }](s.caller,
		`query($t: ID!, $a: ID!) { offers(tenantId: $t, accountId: $a) { id region } }`, map[string]any{"t": s.tenant, "a": s.account}).Offers
	for _, o := range offers {
		if o.Region == region {
			return o.ID
		}
	}
	s.t.Fatalf("there is no offer in %s: %+v", region, offers)
	return ""
}

// awaitEnd polls until the run is over.
func (c caller) awaitEnd(id string) run {
	c.t.Helper()
	var r run
	harness.Await(c.t, "run "+id+" ends", func() bool {
		r = c.run(id)
		return r.Status == "JOINED" || r.Status == "FAILED"
	})
	return r
}

// awaitCleanup polls until it is settled what becomes of the machine of a run that is over.
func (c caller) awaitCleanup(id string) (cleanup string) {
	c.t.Helper()
	harness.Await(c.t, "the cleanup of run "+id+" ends", func() bool {
		cleanup = c.run(id).Cleanup
		return cleanup != "PENDING" && cleanup != "RELEASING"
	})
	return cleanup
}

func checkEnd(t *testing.T, r run, want trouble) {
	t.Helper()
	checkWay(t, r, want.way)
	if r.Failure == nil {
		if want.reason != "" {
			t.Errorf("%s: the run is %s, want it to fail with %s", want.name, r.Status, want.reason)
		}
		return
	}
	if r.Failure.Reason != want.reason {
		t.Errorf("%s: the run failed with %s, want %q", want.name, r.Failure.Reason, want.reason)
	}
	for _, part := range want.says {
		if !strings.Contains(r.Failure.Message, part) {
			t.Errorf("%s: the message does not say %q: %s", want.name, part, r.Failure.Message)
		}
	}
	log := r.Failure.LogTail
	if len(log) > 40 || (len(log) == 0) != (want.log == "") || !strings.Contains(strings.Join(log, "\n"), want.log) {
		t.Errorf("%s: the last lines are %q, want %q in up to 40 of them", want.name, log, want.log)
	}
}
