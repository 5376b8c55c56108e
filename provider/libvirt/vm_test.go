//go:build nightly

package libvirt_test

import (
	"encoding/json"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider"
)

// vmPatience is for a machine whose every instruction is emulated.
const vmPatience = 45 * time.Minute

// TestVM orders a machine of which nothing is faked: QEMU boots Debian from the disk that the driver makes, Debian's cloud-init finds the driver's
// seed, and the agent joins from there. VM_IMAGE names the image.
func TestVM(t *testing.T) {
	image := os.Getenv("VM_IMAGE")
	if image == "" {
		t.Fatal("VM_IMAGE names no image: see make nightly")
	}
	gateway := netns.Gateway(t) // QEMU's own network lets the machine out as one of ours
	s := startServer(t, golibvirt.QEMUSystem, "qemu-system-x86_64", "qemu-img")
	s.pool(t)
	output(t, "cp", image, s.dir+"/pool/debian.qcow2")
	var config map[string]any
	if err := json.Unmarshal([]byte(s.config("qemu", s.port)), &config); err != nil {
		t.Fatal(err)
	}
	config["sizes"] = []map[string]any{{"name": "small", "vcpu": 1, "memoryMiB": 512, "diskGB": 3}}
	console := s.watchConsole(t)
	t.Cleanup(s.endMachines)
	run := site.Start(t, site.Options{
		At:       gateway,
		Provider: map[string]any{"name": "libvirt", "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   config, Secrets: map[string]string{"hypervisor": s.key}, Class: "VPS_HOST", Patience: vmPatience,
	}).Bootstrap("offerId", "small:default")
	if run.Status != "JOINED" || run.HostID == "" {
		t.Fatalf("%+v, %+v; the machine's console:\n%s", run, run.Failure, console.Text())
	}
	s.testReleased(t, run.MachineID)
}

// testReleased gives the machine back, and looks for what is left of it.
func (s *server) testReleased(t *testing.T, machineID string) {
	t.Helper()
	name := s.machines()[0].Name
	client := s.client(s.config("qemu", s.port), s.key, 0)
	if err := client.(provider.Orderer).Release(t.Context(), name, machineID); err != nil {
		t.Errorf("release: %v", err)
	}
	if left, _ := os.ReadDir(s.dir + "/pool"); len(left) != 1 || len(s.machines()) != 0 {
		t.Errorf("%d volumes are left, and %d machines", len(left), len(s.machines()))
	}
}

// machines are libvirtd's, running or not.
func (s *server) machines() []golibvirt.Domain {
	s.mu.Lock()
	defer s.mu.Unlock()
	machines, _, err := s.operator.ConnectListAllDomains(1, 0)
	if err != nil {
		s.t.Errorf("listing the machines: %v", err)
	}
	return machines
}

// endMachines ends what would outlive libvirtd.
func (s *server) endMachines() {
	for _, m := range s.machines() {
		_ = s.operator.DomainDestroy(m) // it may not run
	}
}

// watchConsole reads what the machine, as soon as one runs, says on its console.
func (s *server) watchConsole(t *testing.T) *harness.Log {
	t.Helper()
	said := &harness.Log{}
	var reader sync.WaitGroup
	reader.Go(func() {
		for t.Context().Err() == nil {
			if terminal := s.terminal(); terminal != "" {
				if from, err := os.OpenFile(terminal, os.O_RDONLY|syscall.O_NOCTTY, 0); err == nil {
					_, _ = io.Copy(said, from) // until QEMU ends
					_ = from.Close()
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Cleanup(reader.Wait)
	return said
}

// terminal is the one that a machine's console is at; empty while none runs.
func (s *server) terminal() string {
	for _, m := range s.machines() {
		s.mu.Lock()
		text, err := s.operator.DomainGetXMLDesc(m, 0)
		s.mu.Unlock()
		var d libvirtxml.Domain
		if err == nil && d.Unmarshal(text) == nil && d.Devices != nil && len(d.Devices.Consoles) > 0 {
			return d.Devices.Consoles[0].TTY
		}
	}
	return ""
}
