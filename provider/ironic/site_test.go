package ironic_test

import (
	"context"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
)

// userDataOf reads a node's config drive out of Ironic's own tables, since Ironic shows it to nobody. Fake hardware leaves it as it came.
const userDataOf = `
import json, sqlite3, sys
info, = sqlite3.connect(sys.argv[1]).execute("select instance_info from nodes where uuid = ?", sys.argv[2:]).fetchone()
print(json.loads(info)["configdrive"]["user_data"])
`

// boot waits until the node is deployed, and has the machine run what its config drive says, as cloud-init does.
func (s *server) boot(ctx context.Context, node string, machine *netns.Host) {
	for ; ; time.Sleep(200 * time.Millisecond) {
		var n struct {
			ProvisionState string `json:"provision_state"`
		}
		if ctx.Err() != nil {
			return
		}
		if err := s.try(http.MethodGet, "/v1/nodes/"+node, nil, &n); err == nil && n.ProvisionState == "active" {
			break
		}
	}
	userData, err := exec.CommandContext(ctx, "python3", "-c", userDataOf, s.dir+"/ironic.db", node).Output()
	if err != nil {
		s.t.Errorf("reading the config drive: %v", err)
		return
	}
	if out, err := machine.Try(string(userData)); err != nil {
		s.t.Errorf("the first boot: %v\n%s", err, out)
	}
}

// TestBootstrap makes a host of a node that is ordered: allocated and deployed by Ironic, and joined by the agent that the config drive brought.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	host := netns.HostsWith(t, 1, netns.Options{Serials: []string{"SN007"}})[0]
	s := startServer(t)
	node := s.enroll(class, 7)
	var boots sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	boots.Go(func() { s.boot(ctx, node, host) })
	t.Cleanup(func() { cancel(); boots.Wait() })
	run := site.Start(t, site.Options{
		At:       host.Gateway,
		Provider: map[string]any{"name": "ironic", "endpoint": s.url + "/v1", "allowNetworks": []string{"127.0.0.0/8"}},
		Config: map[string]any{
			"username": "compute", "password": "secret://ironic", "imageUrl": "http://images.test/debian.raw",
			"imageSha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		},
		Secrets: map[string]string{"ironic": secret}, Class: "METAL_HOST",
	}).Bootstrap("offerId", class+":default")
	if run.Status != "JOINED" || run.HostID == "" || run.MachineID != node {
		t.Errorf("%+v, %+v", run, run.Failure)
	}
}
