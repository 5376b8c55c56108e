package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// readMachine gathers the facts below root. Each may be missing: what was identified before is for the server to
// compare.
func readMachine(root string) Machine {
	m := Machine{
		MachineID: readLine(root, "etc/machine-id"),
		Serial:    readLine(root, "sys/class/dmi/id/product_serial"),
		Hostname:  readLine(root, "etc/hostname"),
		Arch:      runtime.GOARCH,
		CPUs:      countCPUs(root),
		MemoryMiB: readMemoryMiB(root),
		Kernel:    readLine(root, "proc/sys/kernel/osrelease"),
	}
	if m.Hostname == "" {
		m.Hostname, _ = os.Hostname()
	}
	if m.CPUs == 0 {
		m.CPUs = runtime.NumCPU()
	}
	return m
}

func readLine(root, path string) string {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

func countCPUs(root string) int {
	text, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return 0
	}
	count := 0
	for line := range bytes.Lines(text) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "processor" {
			count++
		}
	}
	return count
}

func readMemoryMiB(root string) int64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib / 1024
		}
	}
	return 0
}

// uptimeSeconds is the machine's, or where that cannot be read the agent's own.
func (a *Agent) uptimeSeconds() int64 {
	fields := strings.Fields(readLine(a.cfg.Root, "proc/uptime"))
	if len(fields) > 0 {
		if seconds, err := strconv.ParseFloat(fields[0], 64); err == nil {
			return int64(seconds)
		}
	}
	return int64(a.now().Sub(a.started) / time.Second)
}
