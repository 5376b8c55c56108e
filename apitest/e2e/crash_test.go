package e2e

import (
	"testing"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
)

// The server dies in the middle of two installs. The next one finishes both, and whoever watches misses and repeats nothing. The hosts
// then come back from a reboot by themselves.
func TestKilledServerGoesOn(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	s := startServer(t, hosts[0].Gateway, nil)
	alice := s.alice().newSite("home", hosts...)
	watchers := alice.watchTenant(webSocket, events)
	runs := []string{alice.bootstrap("machineId", "m1", "first"), alice.bootstrap("machineId", "m2", "second")}
	for i, h := range hosts {
		harness.Await(t, "the server installs a machine", func() bool {
			status := alice.run(runs[i]).Status
			return status != "IDENTIFYING" && status != "PREPARING"
		})
		h.FreezeSSHD() // or one install is done before the other has begun
	}
	for _, w := range watchers {
		w.pause() // or they are back before anything happens
	}
	t.Logf("killing the server at %s and %s", alice.run(runs[0]).Status, alice.run(runs[1]).Status)
	s.Kill()
	for _, h := range hosts {
		h.StopSSHD()
		h.StartSSHD()
	}
	s.start()
	for i, id := range runs {
		r := alice.awaitRun(id, "JOINED")
		checkWay(t, r, byMachine)
		for _, w := range watchers {
			w.wake()
			checkSaw(t, w, r)
		}
		alice.awaitHeartbeat(r.HostID)
		checkJoined(t, hosts[i])
		hosts[i].Reboot()
		alice.awaitHeartbeat(r.HostID)
		checkJoined(t, hosts[i])
	}
}
