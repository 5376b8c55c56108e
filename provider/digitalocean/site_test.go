package digitalocean_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider/providertest"
)

// TestBootstraps makes a host of a droplet that is ordered: the machine takes the order's user data as cloud-init does, and the server
// installs on it over SSH.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	// A droplet's serial number, as it reads it itself, is its id.
	host := netns.HostsWith(t, 1, netns.Options{Serials: []string{fmt.Sprint(first + 2)}})[0]
	f := newFake()
	f.address = host.Address.String()
	var boots sync.WaitGroup
	f.boot = func(userData string) { boots.Go(func() { host.TakeUserData(userData) }) }
	cloud := httptest.NewServer(providertest.Contract(t, "testdata/openapi.json", "", f))
	t.Cleanup(func() { boots.Wait(); cloud.Close() })
	s := site.Start(t, site.Options{
		At:       host.Gateway,
		Provider: map[string]any{"name": "digitalocean", "endpoint": cloud.URL, "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   map[string]any{"apiToken": "secret://do", "sshPrivateKey": "secret://do-ssh", "sshKeyIds": []int{512189}},
		Secrets:  map[string]string{"do": secret, "do-ssh": netns.NewKey()}, Class: "VPS_HOST",
	})
	if run := s.Bootstrap("offerId", "s-2vcpu-2gb:fra1"); run.Status != "JOINED" || run.HostID == "" {
		t.Errorf("%+v, %+v", run, run.Failure)
	}
}
