// Package netns makes machines for tests: network namespaces on a bridge, each with its own root, host name, machine-id,
// process space and OpenSSH server, reachable from the test like machines in a rack.
//
// It knows nothing of this project's server or agent. The invariant: whatever a test makes goes away with it, and what a
// killed test left behind goes away with the next one that runs.
package netns

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// base holds one folder per process, named by its id.
const base = "/run/compute-netns"

// networks counts those of this process, for names that do not repeat.
var networks struct {
	sync.Mutex
	made int
	lock *os.File // says to others that this process lives
}

// Options changes what a machine is like.
type Options struct {
	// DiskMiB is the size of a machine's disk beyond what is in its system; 0 means 256.
	DiskMiB int
	// GPU is a PCI "vendor:device" in hex, such as 10de:20b5; empty for none.
	GPU string
	// Systemd makes systemd the init; without it there is a small one that starts /etc/rc2.d. The test is skipped where systemd is
	// not installed.
	Systemd bool
	// Serials are what the machines, in order, say that their serial numbers are; those for whom there is none have one of their own.
	Serials []string
}

// Hosts makes n machines that are up, and ends them with the test. It needs root, iproute2 and openssh-server: without root the
// test is skipped, but not in CI.
func Hosts(t testing.TB, n int) []*Host {
	t.Helper()
	return HostsWith(t, n, Options{})
}

// HostsWith is Hosts with options.
func HostsWith(t testing.TB, n int, options Options) []*Host {
	t.Helper()
	require(t)
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil && options.Systemd {
		t.Skip("machines with systemd need the package systemd")
	}
	network := newNetwork(t)
	hosts := make([]*Host, n)
	var wait sync.WaitGroup
	for i := range hosts {
		hosts[i] = network.newHost(t, i+1, options)
		wait.Go(func() { hosts[i].start() })
	}
	wait.Wait()
	for _, h := range hosts {
		h.mustBeUp()
	}
	return hosts
}

// Gateway makes a network without machines, for others that this machine lets onto it, and returns the test's own address there.
func Gateway(t testing.TB) netip.Addr {
	t.Helper()
	require(t)
	return newNetwork(t).gateway
}

// require skips or fails a test that cannot have machines, and says what is missing.
func require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		const why = "machines in network namespaces need root"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	for _, need := range []struct{ program, pkg string }{
		{"ip", "iproute2"}, {"/usr/sbin/sshd", "openssh-server"}, {"nsenter", "util-linux"}, {"mount", "mount"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			t.Fatalf("machines in network namespaces need %s: install the package %s", need.program, need.pkg)
		}
	}
}

// network is a bridge with a subnet of its own. The test has the first address of it.
type network struct {
	name    string // of the bridge, and the beginning of every name on it
	dir     string
	gateway netip.Addr
}

// newNetwork makes the bridge, under a lock over all processes so that no two choose one subnet.
func newNetwork(t testing.TB) *network {
	t.Helper()
	networks.Lock()
	defer networks.Unlock()
	unlock := lockAll(t)
	defer unlock()
	reap(t)
	dir := filepath.Join(base, strconv.Itoa(os.Getpid()))
	if networks.lock == nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		networks.lock = openLocked(t, filepath.Join(dir, "lock"), syscall.LOCK_EX)
	}
	networks.made++
	name := fmt.Sprintf("%s%d", prefix(strconv.Itoa(os.Getpid())), networks.made)
	n := &network{name: name, dir: filepath.Join(dir, name), gateway: freeSubnet(t)}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command(t, "ip", "link", "delete", n.name)
		if err := os.RemoveAll(n.dir); err != nil {
			t.Error(err)
		}
	})
	command(t, "ip", "link", "add", n.name, "type", "bridge")
	command(t, "ip", "address", "add", n.gateway.String()+"/24", "dev", n.name)
	command(t, "ip", "link", "set", n.name, "up")
	return n
}

// prefix begins the names of all links and namespaces of a process. A link's name has at most 15 characters.
func prefix(pid string) string {
	n, _ := strconv.ParseInt(pid, 10, 64)
	return "cn" + strconv.FormatInt(n, 36) + "-"
}

// freeSubnet is the first address of a /24 in 10.231.0.0/16 that this machine has no address in.
func freeSubnet(t testing.TB) netip.Addr {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var used [256]bool
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			if b := p.Addr().As4(); b[0] == 10 && b[1] == 231 {
				used[b[2]] = true
			}
		}
	}
	for i, taken := range used {
		if !taken {
			return netip.AddrFrom4([4]byte{10, 231, byte(i), 1})
		}
	}
	t.Fatal("no subnet of 10.231.0.0/16 is free")
	return netip.Addr{}
}

// lockAll keeps other processes out until the returned function is called.
func lockAll(t testing.TB) (unlock func()) {
	t.Helper()
	if err := os.MkdirAll(base, 0o700); err != nil {
		t.Fatal(err)
	}
	f := openLocked(t, filepath.Join(base, "lock"), syscall.LOCK_EX)
	return func() { _ = f.Close() }
}

func openLocked(t testing.TB, path string, how int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		t.Fatalf("locking %s: %v", path, err)
	}
	return f
}

// reap takes away what processes that are gone have left. The system has freed their locks.
func reap(t testing.TB) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(base, "*", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			reapProcess(t, filepath.Dir(path))
		}
		_ = f.Close()
	}
}

func reapProcess(t testing.TB, dir string) {
	t.Helper()
	names := prefix(filepath.Base(dir))
	for line := range strings.Lines(command(t, "ip", "netns", "list")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, names) {
			continue
		}
		for pid := range strings.FieldsSeq(command(t, "ip", "netns", "pids", name)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		command(t, "ip", "netns", "delete", name)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Name, names) {
			// The end of a pair may have gone with its namespace meanwhile.
			_ = exec.Command("ip", "link", "delete", l.Name).Run()
		}
	}
	removeGroups(t, dir, names)
	disks, _ := filepath.Glob(filepath.Join(dir, "*", "*", "disk"))
	for _, d := range disks {
		_ = syscall.Unmount(d, syscall.MNT_DETACH)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Logf("removing what an earlier run left: %v", err)
	}
}

// removeGroups removes the control groups whose names begin so, once nothing runs in them. It sees them at a mount of its own in
// dir, which must exist.
func removeGroups(t testing.TB, dir, names string) {
	t.Helper()
	at := filepath.Join(dir, "groups")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Error(err)
		return
	}
	if err := syscall.Mount("cgroup2", at, "cgroup2", 0, ""); err != nil {
		return // then no machine had any
	}
	defer func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) }()
	roots, _ := filepath.Glob(filepath.Join(at, names+"*"))
	for _, root := range roots {
		var groups []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		for _, g := range slices.Backward(groups) {
			if err := os.Remove(g); err != nil {
				t.Errorf("removing a control group: %v", err)
			}
		}
	}
}

// command runs a program that ends by itself, and fails the test when it fails.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
