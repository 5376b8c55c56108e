package netns

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

//go:embed boot.sh
var bootScript string

// upLimit is how long a machine may take to answer on its SSH port. It bounds a failure; success waits for nothing.
const upLimit = 5 * time.Minute

// greetLimit is how long a greeting may take: where no cable is plugged in, none comes.
const greetLimit = 10 * time.Second

const sshdConfig = `HostKey /etc/ssh/netns_host_key
AuthorizedKeysFile /etc/ssh/netns_authorized_keys
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
`

// sshdStart knows that newer servers shut out an address that fails often, as tests do.
const sshdStart = `sshd="/usr/sbin/sshd -f /etc/ssh/netns.conf -E /var/log/sshd.log"
if $sshd -t -o PerSourcePenalties=no 2>/dev/null; then sshd="$sshd -o PerSourcePenalties=no"; fi
exec $sshd "$@"
`

// sshdUnit leaves nothing behind for the unit's own limits to end: stopping and starting is the test's.
const sshdUnit = `[Service]
Type=forking
ExecStart=/bin/sh /etc/ssh/netns-start
KillMode=process
`

// Host is a machine. Its methods fail the test when they cannot do what they say, and are for the test's goroutine.
type Host struct {
	// Name is its host name.
	Name string
	// Address is where its sshd listens, on port 22. Gateway is the test's own address on the same network.
	Address, Gateway netip.Addr
	// Fingerprint is that of the host key it was made with: "SHA256:...".
	Fingerprint string
	// PrivateKey is a private key in PEM that may log in as root.
	PrivateKey string
	// MachineID and Serial are who it says it is.
	MachineID, Serial string

	t       testing.TB
	dir     string
	netns   string
	init    string // small or systemd
	process *process
}

// process is PID 1 of a machine that is on.
type process struct {
	pid  int
	done chan struct{} // closed when it is gone, and everything on the machine with it
}

// newHost lays a machine out without starting it.
func (n *network) newHost(t testing.TB, index int, options Options) *Host {
	t.Helper()
	name := n.name + "-" + strconv.Itoa(index)
	address := n.gateway.As4()
	address[3] = byte(10 + index)
	h := &Host{
		Name: name, Address: netip.AddrFrom4(address), Gateway: n.gateway, Serial: "SN-" + strings.ToUpper(name),
		MachineID: strings.ReplaceAll(uuid(), "-", ""), t: t, dir: filepath.Join(n.dir, name), netns: name, init: "small",
	}
	if options.Systemd {
		h.init = "systemd"
	}
	if index <= len(options.Serials) {
		h.Serial = options.Serials[index-1]
	}
	t.Cleanup(h.destroy)
	h.mountDisk(options)
	h.seed(options)
	h.connect(n)
	return h
}

func (h *Host) mountDisk(options Options) {
	h.t.Helper()
	size := options.DiskMiB
	if size == 0 {
		size = 256
	}
	disk := filepath.Join(h.dir, "disk")
	h.check(os.MkdirAll(disk, 0o755), os.Mkdir(filepath.Join(h.dir, "root"), 0o755))
	h.check(syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", size)))
	h.check(os.Mkdir(filepath.Join(disk, "upper"), 0o755), os.Mkdir(filepath.Join(disk, "work"), 0o755))
}

// seed writes what the first boot copies onto the machine's disk, and the hardware that every boot shows in /sys.
func (h *Host) seed(options Options) {
	h.t.Helper()
	hostKey, fingerprint := h.newHostKey()
	h.Fingerprint = fingerprint
	login, loginPEM := h.newKey()
	h.PrivateKey = loginPEM
	for path, content := range map[string]string{
		"seed/etc/ssh/netns.conf":                    sshdConfig,
		"seed/etc/ssh/netns-start":                   sshdStart,
		"seed/etc/ssh/netns_host_key":                hostKey,
		"seed/etc/systemd/system/netns-sshd.service": sshdUnit,
		"seed/etc/ssh/netns_authorized_keys":         string(ssh.MarshalAuthorizedKey(login.PublicKey())),
		"seed/etc/machine-id":                        h.MachineID + "\n",
		"seed/etc/hostname":                          h.Name + "\n",
		"sys/class/dmi/id/product_serial":            h.Serial + "\n",
		"sys/class/dmi/id/product_name":              "Namespace\n",
		"sys/block/vda/size":                         "83886080\n", // 40 GiB in sectors of 512
		"sys/block/vda/removable":                    "0\n",
		"sys/block/vda/queue/rotational":             "0\n",
		"sys/block/loop0/size":                       "2048\n",
	} {
		h.seedFile(path, content, 0o644)
	}
	h.check(os.Chmod(filepath.Join(h.dir, "sys/class/dmi/id/product_serial"), 0o400))
	if vendor, device, ok := strings.Cut(options.GPU, ":"); ok {
		pci := "sys/bus/pci/devices/0000:01:00.0/"
		h.seedFile(pci+"class", "0x030200\n", 0o444)
		h.seedFile(pci+"vendor", "0x"+vendor+"\n", 0o444)
		h.seedFile(pci+"device", "0x"+device+"\n", 0o444)
	}
}

func (h *Host) seedFile(path, content string, mode fs.FileMode) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	h.check(os.MkdirAll(filepath.Dir(path), 0o755))
	h.check(os.WriteFile(path, []byte(content), mode))
}

// connect makes the namespace and the cable between it and the bridge.
func (h *Host) connect(n *network) {
	h.t.Helper()
	command(h.t, "ip", "netns", "add", h.netns)
	command(h.t, "ip", "link", "add", h.cable(), "type", "veth", "peer", "name", "eth0", "netns", h.netns)
	command(h.t, "ip", "link", "set", h.cable(), "master", n.name, "up")
	command(h.t, "ip", "-n", h.netns, "link", "set", "lo", "up")
	command(h.t, "ip", "-n", h.netns, "address", "add", h.Address.String()+"/24", "dev", "eth0")
	command(h.t, "ip", "-n", h.netns, "link", "set", "eth0", "up")
}

// cable is the name of the machine's link on our side.
func (h *Host) cable() string { return h.Name }

// start turns the machine on.
func (h *Host) start() {
	console, err := os.OpenFile(h.console(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		h.t.Error(err)
		return
	}
	cmd := exec.Command("ip", "netns", "exec", h.netns, "/bin/sh", "-c", bootScript, "boot", h.dir, h.Name, uuid(), h.init)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	started := make(chan error)
	p := &process{done: make(chan struct{})}
	go func() {
		// The kernel kills the machine when the thread that started it ends, so the thread must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer func() { _ = console.Close() }()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		h.t.Error(err)
		return
	}
	p.pid = cmd.Process.Pid
	h.process = p
}

func (h *Host) console() string { return filepath.Join(h.dir, "console.log") }

// mustBeUp waits until sshd greets.
func (h *Host) mustBeUp() {
	h.t.Helper()
	if h.process == nil {
		h.t.FailNow()
	}
	for deadline := time.Now().Add(upLimit); !h.greets(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-h.process.done:
			h.t.Fatalf("machine %s ended:\n%s", h.Name, h.read(h.console()))
		default:
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("machine %s does not answer on its SSH port:\n%s", h.Name, h.read(h.console()))
		}
	}
}

func (h *Host) greets() bool {
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(h.Address, 22).String(), greetLimit)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(greetLimit))
	greeting := make([]byte, 4)
	_, err = conn.Read(greeting)
	return err == nil && string(greeting) == "SSH-"
}

// destroy takes the machine away. It runs at the end of the test whatever state the machine is in.
func (h *Host) destroy() {
	h.PowerOff()
	if h.t.Failed() {
		h.t.Logf("console of %s:\n%s", h.Name, h.read(h.console()))
	}
	if h.init == "systemd" {
		removeGroups(h.t, h.dir, h.Name)
	}
	command(h.t, "ip", "netns", "delete", h.netns)
	// The link goes with the namespace, but a little later; its name must be free before the test ends.
	_ = exec.Command("ip", "link", "delete", h.cable()).Run()
	if err := syscall.Unmount(filepath.Join(h.dir, "disk"), syscall.MNT_DETACH); err != nil {
		h.t.Errorf("unmounting the disk of %s: %v", h.Name, err)
	}
}

// PowerOff cuts the power. Only what is on the disk stays.
func (h *Host) PowerOff() {
	if h.process == nil {
		return
	}
	_ = syscall.Kill(h.process.pid, syscall.SIGKILL)
	<-h.process.done
	h.process = nil
}

// PowerOn boots the machine and waits until it is up: with another boot id, and with what was enabled to start at boot.
func (h *Host) PowerOn() {
	h.t.Helper()
	h.start()
	h.mustBeUp()
}

// Reboot cuts the power and turns it on again.
func (h *Host) Reboot() {
	h.t.Helper()
	h.PowerOff()
	h.PowerOn()
}

// LinkDown pulls the network cable; open connections hang.
func (h *Host) LinkDown() {
	h.t.Helper()
	command(h.t, "ip", "link", "set", h.cable(), "down")
}

// LinkUp plugs the network cable in again.
func (h *Host) LinkUp() {
	h.t.Helper()
	command(h.t, "ip", "link", "set", h.cable(), "up")
	// Else we would go on believing for a while that nobody is there.
	command(h.t, "ip", "neighbour", "flush", "to", h.Address.String())
}

// StopSSHD ends the SSH server and every session: connections are refused.
func (h *Host) StopSSHD() {
	h.t.Helper()
	h.Run(`kill "$(cat /run/sshd.pid)"
		for p in /proc/[0-9]*; do
			read -r name <"$p/comm" || continue
			case $name in sshd*) kill -KILL "${p##*/}" ;; esac
		done 2>/dev/null || true`)
	for deadline := time.Now().Add(upLimit); h.greets(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("sshd of %s does not stop", h.Name)
		}
	}
}

// StartSSHD starts the SSH server with further options, such as "ForceCommand=sleep 3600" for one that hangs after the login.
func (h *Host) StartSSHD(options ...string) {
	h.t.Helper()
	command := []string{"sh /etc/ssh/netns-start"}
	for _, o := range options {
		command = append(command, "-o '"+o+"'")
	}
	h.Run(strings.Join(command, " "))
	h.mustBeUp()
}

// FreezeSSHD stops the SSH server without ending it: connections are accepted and never greeted, open ones hang.
func (h *Host) FreezeSSHD() {
	h.t.Helper()
	h.Run(`for p in /proc/[0-9]*; do
		read -r name <"$p/comm" || continue
		case $name in sshd*) kill -STOP "${p##*/}" ;; esac
	done 2>/dev/null || true`)
}

// ReplaceHostKey gives the machine another host key, as reinstalling it would, and returns its fingerprint.
func (h *Host) ReplaceHostKey() (fingerprint string) {
	h.t.Helper()
	key, fingerprint := h.newHostKey()
	h.StopSSHD()
	h.Write("/etc/ssh/netns_host_key", key)
	h.StartSSHD()
	return fingerprint
}

// RefuseKey makes the machine refuse the private key.
func (h *Host) RefuseKey() {
	h.t.Helper()
	h.Write("/etc/ssh/netns_authorized_keys", "")
}

// SetClock sets the clock that `date` on the machine shows off by so much, in whole seconds. No namespace shifts the kernel's own
// clock, so every other program sees the right time.
func (h *Host) SetClock(offset time.Duration) {
	h.t.Helper()
	h.Run(`[ -e /bin/date.real ] || mv /bin/date /bin/date.real`)
	h.Write("/bin/date", fmt.Sprintf("#!/bin/sh\nexec /bin/date.real -d '%+d seconds' \"$@\"\n", int(offset.Seconds())))
	h.Run("chmod 755 /bin/date")
}

// FillDisk leaves so many bytes free on the machine's disk.
func (h *Host) FillDisk(free int64) {
	h.t.Helper()
	h.Run(fmt.Sprintf(`blocks=$(df -Pk / | awk 'NR==2 {print $4}'); dd if=/dev/zero of=/filler bs=1024 count=$((blocks - %d)) 2>/dev/null`, free/1024))
}

// EmptyDisk undoes FillDisk.
func (h *Host) EmptyDisk() {
	h.t.Helper()
	h.Run("rm -f /filler")
}

// Run runs a POSIX shell script on the machine as root, past SSH, and returns what it printed.
func (h *Host) Run(script string) string {
	h.t.Helper()
	out, err := h.enter(script, "")
	if err != nil {
		h.t.Fatalf("running on %s: %v\n%s\n%s", h.Name, err, script, out)
	}
	return out
}

// Try is Run for a script that may fail.
func (h *Host) Try(script string) (string, error) { return h.enter(script, "") }

// Write replaces the content of a file on the machine.
func (h *Host) Write(path, content string) {
	h.t.Helper()
	if out, err := h.enter("umask 077; cat >"+path, content); err != nil {
		h.t.Fatalf("writing %s on %s: %v\n%s", path, h.Name, err, out)
	}
}

func (h *Host) enter(script, stdin string) (string, error) { return h.enterFor(upLimit, script, stdin) }

func (h *Host) enterFor(limit time.Duration, script, stdin string) (string, error) {
	if h.process == nil {
		return "", fmt.Errorf("machine %s is off", h.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(h.process.pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// newHostKey makes a host key in PEM.
func (h *Host) newHostKey() (key, fingerprint string) {
	h.t.Helper()
	signer, text := h.newKey()
	return text, ssh.FingerprintSHA256(signer.PublicKey())
}

func (h *Host) newKey() (ssh.Signer, string) {
	h.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	h.check(err)
	signer, err := ssh.NewSignerFromKey(private)
	h.check(err)
	block, err := ssh.MarshalPrivateKey(private, "")
	h.check(err)
	return signer, string(pem.EncodeToMemory(block))
}

func (h *Host) check(errs ...error) {
	h.t.Helper()
	for _, err := range errs {
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *Host) read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
