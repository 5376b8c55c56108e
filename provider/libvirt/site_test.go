package libvirt_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"sync"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
)

// boot waits until QEMU runs the machine, whose disk nothing boots from, and has the host's cloud-init find in its place what the seed holds.
func (s *server) boot(ctx context.Context, machineID string, host *netns.Host) {
	machine := golibvirt.Domain{UUID: golibvirt.UUID(uuid.MustParse(machineID)), ID: -1}
	for ; ; time.Sleep(200 * time.Millisecond) {
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		state, _, err := s.operator.DomainGetState(machine, 0)
		s.mu.Unlock()
		if err == nil && golibvirt.DomainState(state) == golibvirt.DomainRunning {
			break
		}
	}
	seeds := map[string]string{}
	for name, file := range map[string]string{"nocloud/user-data": "/USER-DATA.;1", "nocloud/meta-data": "/META-DATA.;1"} {
		text, err := exec.CommandContext(ctx, "isoinfo", "-x", file, "-i", s.dir+"/pool/existing-seed.iso").Output()
		if err != nil {
			s.t.Errorf("reading the seed: %v", err)
			return
		}
		seeds[name] = string(text)
	}
	if err := host.FirstBoot(seeds); err != nil {
		s.t.Error(err)
	}
}

// TestBootstrap makes a host of a machine that is there: libvirtd gives it a new disk and a seed and has QEMU run it, and the agent that Debian's
// cloud-init installed as the seed told it joins.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	netns.NeedCloudInit(t)
	s := startServer(t, golibvirt.QEMUSystem, "qemu-system-x86_64", "qemu-img", "isoinfo")
	s.pool(t)
	machine := s.existing(t, "qemu")
	t.Cleanup(func() { // QEMU would outlive libvirtd
		if err := s.operator.DomainDestroy(golibvirt.Domain{UUID: golibvirt.UUID(uuid.MustParse(machine)), ID: -1}); err != nil {
			t.Errorf("ending the machine: %v", err)
		}
	})
	host := netns.HostsWith(t, 1, netns.Options{Serials: []string{machine}})[0]
	var boots sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	boots.Go(func() { s.boot(ctx, machine, host) })
	t.Cleanup(func() { cancel(); boots.Wait() })
	var config map[string]any
	if err := json.Unmarshal([]byte(s.config("qemu", s.port)), &config); err != nil {
		t.Fatal(err)
	}
	run := site.Start(t, site.Options{
		At:       host.Gateway,
		Provider: map[string]any{"name": "libvirt", "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   config, Secrets: map[string]string{"hypervisor": s.key}, Class: "VPS_HOST",
	}).Bootstrap("machineId", machine)
	if run.Status != "JOINED" || run.HostID == "" || run.MachineID != machine {
		t.Errorf("%+v, %+v", run, run.Failure)
	}
}
