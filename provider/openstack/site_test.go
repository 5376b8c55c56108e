package openstack_test

import (
	"encoding/json"
	"net/http/httptest"
	"sync"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
)

// TestBootstraps makes hosts of a server that is ordered and of one that was there: each runs its user data as cloud-init does.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.building = 1
	// A server's serial number, as it reads it itself, is its UUID.
	hosts := netns.HostsWith(t, 2, netns.Options{Serials: []string{uuid(1), uuid(2)}})
	machines := map[string]*netns.Host{uuid(1): hosts[0], uuid(2): hosts[1]}
	var boots sync.WaitGroup
	f.boot = func(id, userData string) {
		boots.Go(func() {
			if out, err := machines[id].Try(userData); err != nil {
				t.Errorf("the first boot of server %s: %v\n%s", id, err, out)
			}
		})
	}
	cloud := httptest.NewServer(f)
	t.Cleanup(func() { boots.Wait(); cloud.Close() })
	var config map[string]any
	if err := json.Unmarshal([]byte(plain), &config); err != nil {
		t.Fatal(err)
	}
	s := site.Start(t, site.Options{
		At:       hosts[0].Gateway,
		Provider: map[string]any{"name": "openstack", "endpoint": cloud.URL + "/v3", "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   config, Secrets: map[string]string{"openstack": secret}, Class: "VPS_HOST",
	})
	for by, id := range map[string]string{"machineId": uuid(1), "offerId": "vps.2:RegionOne"} {
		if run := s.Bootstrap(by, id); run.Status != "JOINED" || run.HostID == "" {
			t.Errorf("bootstrap by %s: %+v, %+v", by, run, run.Failure)
		}
	}
}
