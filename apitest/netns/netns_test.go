package netns_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
)

func TestHostsAreMachinesOfTheirOwn(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	a, b := hosts[0], hosts[1]
	for _, h := range hosts {
		got := strings.Fields(h.Run("hostname; cat /etc/machine-id /sys/class/dmi/id/product_serial"))
		if want := []string{h.Name, h.MachineID, h.Serial}; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("host %s is %q, want %q", h.Name, got, want)
		}
	}
	if a.Fingerprint == b.Fingerprint || a.MachineID == b.MachineID || a.Address == b.Address {
		t.Errorf("two machines share an identity: %+v, %+v", a, b)
	}
	a.Run("echo mine >/srv/file")
	if out, err := b.Try("cat /srv/file"); err == nil {
		t.Errorf("one machine reads the other's disk: %q", out)
	}
	if _, err := os.Stat("/srv/file"); err == nil {
		t.Error("a machine wrote to the disk of the machine below it")
	}
}

func TestRebootKeepsTheDiskAndStartsServices(t *testing.T) {
	t.Parallel()
	h := netns.Hosts(t, 1)[0]
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	before := h.Run(bootID)
	h.Run("echo kept >/srv/file; echo gone >/run/file")
	h.Write("/etc/rc2.d/S50x", "#!/bin/sh\necho \"$1\" >/run/started\n")
	h.Run("chmod 755 /etc/rc2.d/S50x")
	h.Reboot()
	if after := h.Run(bootID); after == before {
		t.Errorf("the boot id is %q before and after", after)
	}
	if got := h.Run("cat /srv/file /run/started"); got != "kept\nstart\n" {
		t.Errorf("after the reboot: %q", got)
	}
	if _, err := h.Try("cat /run/file"); err == nil {
		t.Error("/run outlived the reboot")
	}
}

func TestClockAndDisk(t *testing.T) {
	t.Parallel()
	h := netns.HostsWith(t, 1, netns.Options{DiskMiB: 64})[0]
	h.SetClock(-48 * time.Hour)
	if got, want := h.Run("date +%s"), time.Now().Add(-47*time.Hour).Unix(); got > strconv.FormatInt(want, 10) {
		t.Errorf("the clock shows %s", got)
	}
	h.FillDisk(1 << 20)
	if out, err := h.Try("head -c 2000000 /dev/zero >/srv/big"); err == nil {
		t.Errorf("the disk is not full: %s", out)
	}
	h.EmptyDisk()
	h.Run("head -c 2000000 /dev/zero >/srv/big")
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	h := netns.HostsWith(t, 1, netns.Options{Systemd: true})[0]
	h.Write("/etc/systemd/system/x.service", "[Service]\nExecStart=sleep 3600\n[Install]\nWantedBy=multi-user.target\n")
	h.Run("systemctl enable --now x.service")
	h.Reboot()
	if got := h.Run("systemctl is-active x.service"); got != "active\n" {
		t.Errorf("after a reboot the service is %q", got)
	}
}

func TestAKilledRunIsCleanedUp(t *testing.T) {
	if os.Getenv("NETNS_TEST_CRASH") != "" {
		h := netns.Hosts(t, 1)[0]
		_ = os.WriteFile(os.Getenv("NETNS_TEST_CRASH"), []byte(h.Name), 0o600)
		process, _ := os.FindProcess(os.Getpid())
		_ = process.Kill()
		select {}
	}
	if os.Geteuid() != 0 {
		netns.Hosts(t, 1)
	}
	note := t.TempDir() + "/name"
	child := exec.Command(os.Args[0], "-test.run=^TestAKilledRunIsCleanedUp$")
	child.Env = append(os.Environ(), "NETNS_TEST_CRASH="+note)
	if err := child.Run(); err == nil {
		t.Fatal("the child was to be killed")
	}
	name, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	netns.Hosts(t, 1)
	for _, args := range [][]string{{"netns", "list"}, {"link", "show"}} {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), string(name)) {
			t.Errorf("ip %s still shows %s", strings.Join(args, " "), name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), string(name)) {
		t.Errorf("%s is still mounted", name)
	}
}

// Debian's cloud-init runs what it finds as at a first boot, from either of the sources that drivers fill.
func TestFirstBoot(t *testing.T) {
	t.Parallel()
	netns.NeedCloudInit(t)
	const script = "#!/bin/sh\necho done by $(id -un) >/srv/first-boot\n"
	hosts := netns.Hosts(t, 2)
	for i, seeds := range []map[string]string{
		{"nocloud/user-data": script, "nocloud/meta-data": `{"instance-id": "one"}`},
		{"config_drive/openstack/latest/user_data": script, "config_drive/openstack/latest/meta_data.json": `{"uuid": "two"}`},
	} {
		if err := hosts[i].FirstBoot(seeds); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(hosts[i].Run("cat /srv/first-boot")); got != "done by root" {
			t.Errorf("after the first boot: %q", got)
		}
	}
}
