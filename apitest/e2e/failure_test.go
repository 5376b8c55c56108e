package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"better/compute/apitest/netns"
)

// identifyingLimit is shorter than anybody would want it, but longer than any answer takes of a machine that is busy.
const identifyingLimit = 30 * time.Second

// fault is something that is wrong with a machine.
type fault struct {
	name   string
	cause  func(*netns.Host)
	reason string
	says   []string // what to do, or what it looks like
	waits  bool     // until the time of the state is up, since the machine may come back
	mend   func(*netns.Host)
}

var faults = []fault{
	{
		name: "reinstalled", cause: func(h *netns.Host) { h.Fingerprint = h.ReplaceHostKey() },
		reason: "HOST_KEY_CHANGED", says: []string{"not the pinned one", "If the machine was reinstalled, update hostFingerprint"},
		mend: func(*netns.Host) {}, // the account is updated for all
	},
	{
		name: "key refused", cause: (*netns.Host).RefuseKey,
		reason: "SSH_AUTH_FAILED", says: []string{"refuses the login", "Add its public key", "authorized_keys"}, mend: acceptKey,
	},
	{
		name: "sshd stopped", cause: (*netns.Host).StopSSHD,
		reason: "SSH_UNREACHABLE", says: []string{"could not be reached over SSH in time", "Nothing listens at the SSH port"}, waits: true,
		mend: func(h *netns.Host) { h.StartSSHD() },
	},
	{
		name: "unplugged", cause: (*netns.Host).LinkDown,
		reason: "SSH_UNREACHABLE", says: []string{"could not be reached over SSH in time"}, waits: true, mend: (*netns.Host).LinkUp,
	},
}

func acceptKey(h *netns.Host) {
	key, err := ssh.ParsePrivateKey([]byte(h.PrivateKey))
	if err == nil {
		h.Write("/etc/ssh/netns_authorized_keys", string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	}
}

// A run on a machine with a fault says what is wrong, with which machine, and what a person can do; once that is done, the machine
// becomes a host.
func TestFailuresHelp(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, len(faults))
	s := startServer(t, hosts[0].Gateway, map[string]string{"identifying": identifyingLimit.String()})
	alice := s.alice().newSite("home", hosts...)
	pinned := hosts[0].Fingerprint
	runs := make([]string, len(faults))
	for i, f := range faults {
		f.cause(hosts[i])
		runs[i] = alice.bootstrap("machineId", machineName(i), "broken-"+machineName(i))
	}
	for i, f := range faults {
		r := alice.awaitRun(runs[i], "FAILED")
		checkWay(t, r, []string{"IDENTIFYING", "FAILED"})
		t.Logf("%s: %s: %s", f.name, r.Failure.Reason, r.Failure.Message)
		if r.Failure.Reason != f.reason {
			t.Errorf("%s: the run failed with %s, want %s", f.name, r.Failure.Reason, f.reason)
		}
		says := append([]string{machineName(i), hosts[i].Address.String()}, f.says...)
		if i == 0 {
			says = append(says, pinned, hosts[0].Fingerprint)
		}
		for _, part := range says {
			if !strings.Contains(r.Failure.Message, part) {
				t.Errorf("%s: the message does not say %q: %s", f.name, part, r.Failure.Message)
			}
		}
		if took := r.took(t); f.waits && took < identifyingLimit {
			t.Errorf("%s: the run was given up after %s; it has %s", f.name, took, identifyingLimit)
		}
	}

	for i, f := range faults {
		f.mend(hosts[i])
	}
	mustChange[struct{}](alice.caller, "updateProviderAccount", "UpdateProviderAccountInput", "{ providerAccount { id } }",
		map[string]any{"accountId": alice.account, "config": alice.inventory(hosts...)})
	for i := range faults {
		runs[i] = alice.bootstrap("machineId", machineName(i), "mended-"+machineName(i))
	}
	for i := range faults {
		alice.awaitRun(runs[i], "JOINED")
	}
}

// took is the time from a run's first transition to its last.
func (r run) took(t testing.TB) time.Duration {
	t.Helper()
	first, err := time.Parse(time.RFC3339, r.History[0].At)
	if err != nil {
		t.Fatal(err)
	}
	last, err := time.Parse(time.RFC3339, r.History[len(r.History)-1].At)
	if err != nil {
		t.Fatal(err)
	}
	return last.Sub(first)
}
