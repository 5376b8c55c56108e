package hetznercloud_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider/providertest"
)

// startSite is a server with an account on the fake, whose servers are machines: each runs its user data as cloud-init does.
func startSite(t *testing.T, f *fake, at netip.Addr, machines map[int64]*netns.Host) *site.Site {
	t.Helper()
	var boots sync.WaitGroup
	f.boot = func(server int64, userData string) {
		boots.Go(func() {
			if out, err := machines[server].Try(userData); err != nil {
				t.Errorf("the first boot of server %d: %v\n%s", server, err, out)
			}
		})
	}
	cloud := httptest.NewServer(providertest.Contract(t, "testdata/openapi.json", "/v1", f))
	t.Cleanup(func() { boots.Wait(); cloud.Close() })
	return site.Start(t, site.Options{
		At:       at,
		Provider: map[string]any{"name": "hetzner-cloud", "endpoint": cloud.URL + "/v1", "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   map[string]any{"apiToken": "secret://hetzner"}, Secrets: map[string]string{"hetzner": secret}, Class: "VPS_HOST",
	})
}

// TestBootstraps makes hosts of a server that is ordered and of one that was there, and gives back one whose rebuild fails.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	f := newFake()
	existing, ordered := f.servers[0]["id"].(int64), f.nextID+1
	// A server's serial number, as it reads it itself, is its id.
	hosts := netns.HostsWith(t, 2, netns.Options{Serials: []string{fmt.Sprint(existing), fmt.Sprint(ordered)}})
	s := startSite(t, f, hosts[0].Gateway, map[int64]*netns.Host{existing: hosts[0], ordered: hosts[1]})
	for by, id := range map[string]string{"machineId": fmt.Sprint(existing), "offerId": "cpx22:fsn1"} {
		if run := s.Bootstrap(by, id); run.Status != "JOINED" || run.HostID == "" {
			t.Errorf("bootstrap by %s: %+v, %+v", by, run, run.Failure)
		}
	}
	if _, got := f.userData[ordered]; !got {
		t.Errorf("the ordered server is not number %d", ordered)
	}
	f.mu.Lock()
	f.failRebuilds = true
	f.mu.Unlock()
	run := s.Bootstrap("offerId", "cpx32:fsn1")
	if run.Status != "FAILED" || run.Failure == nil || run.Failure.Reason != "INSTALL_FAILED" || run.Cleanup != "RELEASED" {
		t.Errorf("a rebuild that fails: %+v, %+v", run, run.Failure)
	}
	if f.find(run.MachineID) != nil {
		t.Errorf("server %s is still there", run.MachineID)
	}
}
