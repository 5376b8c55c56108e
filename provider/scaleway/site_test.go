package scaleway_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
)

// TestBootstraps makes a host of a server that is ordered, through every state that Scaleway takes it, and gives back one that Scaleway turns
// out not to have.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	f := newFake()
	f.address = host.Address.String()
	f.boot = func(userData string) { host.TakeUserData(userData) }
	cloud := httptest.NewServer(f)
	t.Cleanup(cloud.Close)
	var config map[string]any
	if err := json.Unmarshal([]byte(plainConfig), &config); err != nil {
		t.Fatal(err)
	}
	s := site.Start(t, site.Options{
		At:       host.Gateway,
		Provider: map[string]any{"name": "scaleway", "endpoint": cloud.URL, "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   config, Secrets: map[string]string{"scw": secret, "scw-ssh": netns.NewKey()}, Class: "METAL_HOST",
	})
	if run := s.Bootstrap("offerId", offerID); run.Status != "JOINED" || run.HostID == "" {
		t.Errorf("bootstrap: %+v, %+v", run, run.Failure)
	}
	f.mu.Lock()
	f.late, f.boot = true, nil
	f.mu.Unlock()
	run := s.Bootstrap("offerId", "EM-A310R-NVME:fr-par-1")
	if run.Status != "FAILED" || run.Failure == nil || run.Failure.Reason != "OUT_OF_STOCK" {
		t.Errorf("without stock: %+v, %+v", run, run.Failure)
	}
}
