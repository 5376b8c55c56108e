package ssh_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/provider"
)

func TestSystemd(t *testing.T) {
	t.Parallel()
	h := netns.HostsWith(t, 1, netns.Options{Systemd: true})[0]
	a := accountOn(h)
	c := a.open(t)
	status := func(ref string) *provider.InstallStatus {
		t.Helper()
		return must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref))
	}
	wrong := payload(t, h, 1)
	wrong.CAPin = "nonsense"
	ref := must[string](t)(c.Install(t.Context(), h.Name, wrong))
	var s *provider.InstallStatus
	eventually(t, "the agent ends", func() bool { s = status(ref); return s.State == provider.InstallFailed })
	if s.ExitCode != 2 || !strings.Contains(strings.Join(s.Log, "\n"), "caPin") {
		t.Errorf("install %+v, want exit code 2 and why", s)
	}

	ref = must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 2)))
	if s := status(ref); s.State != provider.InstallSucceeded || !strings.Contains(strings.Join(s.Log, "\n"), "bcd starts") {
		t.Errorf("install %+v", s)
	}
	before := agents(h)
	ref = must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, 3)))
	if after := agents(h); len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("agents %v before and %v after, want one and another one", before, after)
	}
	h.Run("kill -KILL " + agents(h)[0])
	eventually(t, "the agent runs after it was killed", func() bool { return status(ref).State == provider.InstallSucceeded })
	h.Reboot()
	eventually(t, "the agent runs after a reboot", func() bool { return status(ref).State == provider.InstallSucceeded })
	if got := h.Run("cat /etc/bcd/join-token; stat -c '%a %U' /etc/bcd/join-token"); got != token+"\n600 root\n" {
		t.Errorf("the token is %q", got)
	}
	for range 2 {
		if err := c.Uninstall(t.Context(), h.Name); err != nil {
			t.Error(err)
		}
	}
	if left := h.Run(runningAgents + "; ls -d /etc/bcd /var/lib/bcd /usr/local/bin/bcd /etc/systemd/system/bcd.service 2>/dev/null || true"); left != "" {
		t.Errorf("left on the machine: %s", left)
	}
}

func TestBusyBox(t *testing.T) {
	t.Parallel()
	box, err := exec.LookPath("busybox")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no busybox to try: make deps installs it")
		}
		t.Skip("there is no busybox to try")
	}
	h := netns.Hosts(t, 1)[0]
	h.Run(`for name in sh $(` + box + ` --list); do
		for dir in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
			[ ! -e $dir/$name ] || case $name in ip|mount|busybox) ;; *) ln -sf ` + box + ` $dir/$name ;; esac
		done
	done
	rm -f /usr/sbin/update-rc.d`)
	if got := h.Run("for file in /bin/sh /usr/bin/tail; do readlink $file; done"); got != box+"\n"+box+"\n" {
		t.Fatalf("the machine does not use busybox: %s", got)
	}
	c := accountOn(h).open(t)
	if got := must[*provider.Identity](t)(c.Identify(t.Context(), h.Name)); got.Serial != h.Serial || got.CPUs < 1 || len(got.Disks) != 1 {
		t.Errorf("identified as %+v", got)
	}
	must[*provider.Preparation](t)(c.Prepare(t.Context(), h.Name))
	for generation := range 2 {
		ref := must[string](t)(c.Install(t.Context(), h.Name, payload(t, h, generation)))
		if s := must[*provider.InstallStatus](t)(c.InstallStatus(t.Context(), h.Name, ref)); s.State != provider.InstallSucceeded {
			t.Errorf("install %+v", s)
		}
		if n := len(agents(h)); n != 1 {
			t.Errorf("%d agents run", n)
		}
	}
	if log := h.Run("cat /var/log/bcd-install.log"); !strings.Contains(log, "a reboot ends it") {
		t.Errorf("the log does not say that a reboot ends the agent: %s", log)
	}
	if err := c.Uninstall(t.Context(), h.Name); err != nil {
		t.Error(err)
	}
	if n := len(agents(h)); n != 0 {
		t.Errorf("%d agents run", n)
	}
}
