package ironic_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
)

// driveOf reads a node's config drive out of Ironic's own tables, since Ironic shows it to nobody. Fake hardware leaves it as it came.
const driveOf = `
import json, sqlite3, sys
info, = sqlite3.connect(sys.argv[1]).execute("select instance_info from nodes where uuid = ?", sys.argv[2:]).fetchone()
print(json.dumps(json.loads(info)["configdrive"]))
`

// boot waits until the node is deployed, and has the machine's cloud-init find what a config drive holds.
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
	text, err := exec.CommandContext(ctx, "python3", "-c", driveOf, s.dir+"/ironic.db", node).Output()
	var drive struct {
		UserData string          `json:"user_data"`
		MetaData json.RawMessage `json:"meta_data"`
	}
	if err == nil {
		err = json.Unmarshal(text, &drive)
	}
	if err != nil {
		s.t.Errorf("reading the config drive: %v", err)
		return
	}
	err = machine.FirstBoot(map[string]string{
		"config_drive/openstack/latest/user_data": drive.UserData, "config_drive/openstack/latest/meta_data.json": string(drive.MetaData),
	})
	if err != nil {
		s.t.Error(err)
	}
}

// TestBootstrap makes a host of a node that is ordered: allocated and deployed by Ironic, and joined by the agent that Debian's cloud-init installed
// as the config drive told it.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	netns.NeedCloudInit(t)
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
