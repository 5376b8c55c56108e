package linode_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider/providertest"
)

// TestBootstraps makes hosts of a Linode that is ordered and of one that was there: each runs its user data as cloud-init does.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	f := newFake()
	// A Linode's serial number, as it reads it itself, is its id.
	hosts := netns.HostsWith(t, 2, netns.Options{Serials: []string{"123", "124"}})
	machines := map[int]*netns.Host{123: hosts[0], 124: hosts[1]}
	var boots sync.WaitGroup
	f.boot = func(id int, userData string) {
		boots.Go(func() {
			if out, err := machines[id].Try(userData); err != nil {
				t.Errorf("the first boot of Linode %d: %v\n%s", id, err, out)
			}
		})
	}
	cloud := httptest.NewServer(providertest.Contract(t, "testdata/openapi.json", "", f))
	t.Cleanup(func() { boots.Wait(); cloud.Close() })
	s := site.Start(t, site.Options{
		At:       hosts[0].Gateway,
		Provider: map[string]any{"name": "linode", "endpoint": cloud.URL + "/v4", "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   map[string]any{"apiToken": "secret://linode"}, Secrets: map[string]string{"linode": secret}, Class: "VPS_HOST",
	})
	for by, id := range map[string]string{"machineId": fmt.Sprint(123), "offerId": "g6-standard-2:us-east"} {
		if run := s.Bootstrap(by, id); run.Status != "JOINED" || run.HostID == "" {
			t.Errorf("bootstrap by %s: %+v, %+v", by, run, run.Failure)
		}
	}
}
