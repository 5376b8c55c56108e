package ssh

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"better/compute/model"
	"better/compute/provider"
)

// Identify reads who the machine is. Facts that the machine does not give are left empty.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	var identity *provider.Identity
	err := c.session(ctx, machineID, c.limits.call, func(conn *connection) error {
		r, err := conn.script(nil, "identify.sh")
		if err != nil {
			return err
		}
		identity = r.identity(conn.machine)
		return nil
	})
	return identity, err
}

func (r *result) identity(m *machine) *provider.Identity {
	return &provider.Identity{
		Serial: provider.RealSerial(r.value("serial")), OSMachineID: r.value("machine_id"), MACs: r.macs(),
		Addresses: r.addresses(m), SSHHostKey: m.HostFingerprint,
		Arch: goArch(r.value("arch")), CPUs: int(min(max(r.number("cpus"), 0), 1<<20)), MemoryMiB: max(r.number("memory_kib"), 0) / 1024,
		Disks: r.disks(), GPUs: r.gpus(),
	}
}

// goArch is the agent's word for what `uname -m` says.
func goArch(machine string) string {
	switch machine {
	case "x86_64", "amd64":
		return "amd64"
	case "aarch64", "arm64":
		return "arm64"
	}
	return machine
}

// macs are the addresses of the network cards, without those that are none.
func (r *result) macs() []string {
	var macs []string
	for _, text := range r.values("mac") {
		mac, err := net.ParseMAC(text)
		if err == nil && len(bytes.Trim(mac, "\x00")) > 0 && !slices.Contains(macs, mac.String()) {
			macs = append(macs, mac.String())
		}
	}
	return macs
}

func (r *result) addresses(m *machine) []string {
	addresses := []string{}
	for _, text := range append([]string{m.Address}, r.values("address")...) {
		text, _, _ = strings.Cut(text, "/")
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(addresses, ip.String()) {
			addresses = append(addresses, ip.String())
		}
	}
	return addresses
}

// disks counts equal disks together. A line is the name, the size in sectors of 512 bytes, and whether it turns.
func (r *result) disks() []*model.Disk {
	var disks []*model.Disk
	for _, line := range r.values("disk") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		sectors, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || sectors <= 0 || sectors > 1<<52 {
			continue
		}
		d := model.Disk{SizeGB: (sectors*512 + 5e8) / 1e9, Count: 1, Media: media(fields)}
		same := slices.IndexFunc(disks, func(o *model.Disk) bool { return o.SizeGB == d.SizeGB && o.Media == d.Media })
		if same >= 0 {
			disks[same].Count++
			continue
		}
		disks = append(disks, &d)
	}
	return disks
}

func media(disk []string) string {
	switch {
	case strings.HasPrefix(disk[0], "nvme"):
		return "nvme"
	case len(disk) < 3:
		return "unknown"
	case disk[2] == "0":
		return "ssd"
	case disk[2] == "1":
		return "hdd"
	}
	return "unknown"
}

// gpus trusts NVIDIA's own tool where it is, and the PCI bus for the rest. Of a card without a driver only its number is known.
func (r *result) gpus() []*model.GPU {
	var gpus []*model.GPU
	add := func(g model.GPU) {
		same := slices.IndexFunc(gpus, func(o *model.GPU) bool { return o.Model == g.Model && o.Vendor == g.Vendor })
		if same >= 0 {
			gpus[same].Count++
			return
		}
		gpus = append(gpus, &g)
	}
	tool := r.values("nvidia")
	for _, line := range tool {
		name, memory, _ := strings.Cut(line, ",")
		gpuModel, _ := provider.NormalizeGPU(name)
		g := model.GPU{Model: gpuModel, Vendor: "nvidia", Count: 1}
		if mib, err := strconv.ParseFloat(strings.TrimSpace(memory), 64); err == nil && mib > 0 && mib < 1<<30 {
			gib := mib / 1024
			g.MemoryGiB = &gib
		}
		add(g)
	}
	for _, line := range r.values("pci") {
		vendor, device, _ := strings.Cut(line, " ")
		switch {
		case vendor == "0x10de" && len(tool) == 0:
			add(model.GPU{Model: "pci-10de-" + strings.TrimPrefix(device, "0x"), Vendor: "nvidia", Count: 1})
		case vendor == "0x1002":
			add(model.GPU{Model: "pci-1002-" + strings.TrimPrefix(device, "0x"), Vendor: "amd", Count: 1})
		}
	}
	return gpus
}
