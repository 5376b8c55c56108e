package e2e

import (
	"testing"

	"better/compute/apitest/netns"
)

// The server dies in the middle of installing two machines. The next one finishes both, and whoever watches misses and repeats
// nothing.
func TestKilledServerGoesOn(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	s := startServer(t, hosts[0].Gateway, nil)
	alice := s.alice().newSite("home", hosts...)
	watchers := alice.watchTenant(webSocket, events)
	runs := []string{alice.bootstrap("machineId", "m1", "first"), alice.bootstrap("machineId", "m2", "second")}
	await(t, "the server installs a machine", func() bool {
		first, second := alice.run(runs[0]), alice.run(runs[1])
		if first.Status == "JOINED" && second.Status == "JOINED" {
			t.Fatal("the installs were not seen")
		}
		return first.Status == "INSTALLING" || second.Status == "INSTALLING"
	})
	s.kill()
	s.start()
	for i, id := range runs {
		r := alice.awaitRun(id, "JOINED")
		checkWay(t, r, byMachine)
		for _, w := range watchers {
			w.awaitCount(id, len(byMachine))
			checkSaw(t, w.name, w.all(), r)
		}
		alice.awaitHeartbeat(r.HostID)
		checkJoined(t, hosts[i])
	}
}
