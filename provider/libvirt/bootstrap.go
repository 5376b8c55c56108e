package libvirt

import (
	"bytes"
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the domain's UUID.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, ok := parseID(machineID); !ok {
		return "", errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// described reads a domain and its description, and makes sure that the answer is about it.
func described(l *golibvirt.Libvirt, machineID string) (golibvirt.Domain, *libvirtxml.Domain, error) {
	id, ok := parseID(machineID)
	if !ok {
		return golibvirt.Domain{}, nil, errorf(provider.NotFound)
	}
	d, err := l.DomainLookupByUUID(id)
	if err != nil {
		return d, nil, err
	}
	text, err := l.DomainGetXMLDesc(d, golibvirt.DomainXMLInactive)
	if err != nil {
		return d, nil, err
	}
	description := &libvirtxml.Domain{}
	if err := description.Unmarshal(text); err != nil || d.UUID != id || description.Name != d.Name {
		return d, nil, errorf(provider.InvalidResponse).Because(err)
	}
	return d, description, nil
}

// Identify reads what the domain is. Its serial number is known where libvirt gives it one.
func (c *client) Identify(ctx context.Context, machineID string) (identity *provider.Identity, err error) {
	if _, ok := parseID(machineID); !ok {
		return nil, errorf(provider.NotFound)
	}
	err = c.read(ctx, func(l *golibvirt.Libvirt) error {
		_, description, err := described(l, machineID)
		if err != nil {
			return err
		}
		identity = &provider.Identity{Serial: serialOf(description), Addresses: []string{}}
		if description.VCPU != nil {
			identity.CPUs = int(min(description.VCPU.Value, 1<<20))
		}
		if m := description.Memory; m != nil && (m.Unit == "KiB" || m.Unit == "") {
			identity.MemoryMiB = int64(min(m.Value>>10, 1<<40))
		}
		if description.OS != nil && description.OS.Type != nil {
			identity.Arch = archOf(description.OS.Type.Arch)
		}
		return nil
	})
	return identity, err
}

func serialOf(d *libvirtxml.Domain) string {
	if d.OS == nil || d.OS.SMBios == nil || d.OS.SMBios.Mode != "sysinfo" {
		return ""
	}
	for _, info := range d.SysInfo {
		if info.SMBIOS == nil || info.SMBIOS.System == nil {
			continue
		}
		for _, entry := range info.SMBIOS.System.Entry {
			if entry.Name == "serial" {
				return entry.Value
			}
		}
	}
	return ""
}

// Prepare says whether the domain is one that can be installed. There is nothing to bring about.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	if _, ok := parseID(machineID); !ok {
		return nil, errorf(provider.NotFound)
	}
	err := c.read(ctx, func(l *golibvirt.Libvirt) error {
		_, description, err := described(l, machineID)
		if err != nil {
			return err
		}
		return c.installable(description)
	})
	if err != nil {
		return nil, err
	}
	return &provider.Preparation{Ready: true, Step: "ready to get a new disk"}, nil
}

// installable wants the disks that Order gives a domain: of others nobody knows what is on them.
func (c *client) installable(d *libvirtxml.Domain) error {
	missing := map[string]bool{diskOf(d.Name): true, seedOf(d.Name): true}
	if d.Devices != nil {
		for _, disk := range d.Devices.Disks {
			if disk.Source != nil && disk.Source.Volume != nil && disk.Source.Volume.Pool == c.config.Pool {
				delete(missing, disk.Source.Volume.Volume)
			}
		}
	}
	if len(missing) > 0 {
		return provider.Errorf(provider.Fatal, "The machine has other disks than one that was ordered here; install it with the ssh provider.")
	}
	return nil
}

// installRef is the only one: a machine has one disk.
const installRef = "boot"

// Install makes the machine's disk anew from the image, writes a seed whose user data installs the agent at the first boot, and starts it.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	userData, err := ssh.UserData(c.account.ID, payload)
	if err != nil {
		return "", err
	}
	err = c.change(ctx, func(l *golibvirt.Libvirt) error {
		d, description, err := described(l, machineID)
		if err != nil {
			return err
		}
		if err := c.installable(description); err != nil {
			return err
		}
		if err := stop(l, d); err != nil {
			return err
		}
		if err := c.makeDisk(l, description); err != nil {
			return err
		}
		if err := c.makeSeed(l, d.Name, seed(userData, fmt.Sprintf("%s-%d", machineID, payload.Generation))); err != nil {
			return err
		}
		return l.DomainCreate(d)
	})
	if err != nil {
		return "", err
	}
	return installRef, nil
}

// makeDisk makes a disk of the ordered size that begins as the image, and is no smaller than that.
func (c *client) makeDisk(l *golibvirt.Libvirt, d *libvirtxml.Domain) error {
	pool, err := l.StoragePoolLookupByName(c.config.Pool)
	if err != nil {
		return err
	}
	v, err := l.StorageVolLookupByName(pool, c.config.Image)
	if err != nil {
		return err
	}
	text, err := l.StorageVolGetXMLDesc(v, 0)
	if err != nil {
		return err
	}
	image := &libvirtxml.StorageVolume{}
	if err := image.Unmarshal(text); err != nil || image.Target == nil || image.Target.Format == nil || image.Capacity == nil || image.Capacity.Unit != "bytes" {
		return errorf(provider.InvalidResponse).Because(err)
	}
	disk := &libvirtxml.StorageVolume{
		Name: diskOf(d.Name), Capacity: &libvirtxml.StorageVolumeSize{Value: max(image.Capacity.Value, orderedBytes(d)), Unit: "bytes"},
		Target:       &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
		BackingStore: &libvirtxml.StorageVolumeBackingStore{Path: image.Target.Path, Format: &libvirtxml.StorageVolumeTargetFormat{Type: image.Target.Format.Type}},
	}
	_, err = c.replaceVolume(l, pool, disk)
	return err
}

func (c *client) makeSeed(l *golibvirt.Libvirt, machineName string, contents []byte) error {
	pool, err := l.StoragePoolLookupByName(c.config.Pool)
	if err != nil {
		return err
	}
	v, err := c.replaceVolume(l, pool, &libvirtxml.StorageVolume{
		Name: seedOf(machineName), Capacity: &libvirtxml.StorageVolumeSize{Value: uint64(len(contents)), Unit: "bytes"},
		Target: &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	})
	if err != nil {
		return err
	}
	return l.StorageVolUpload(v, bytes.NewReader(contents), 0, uint64(len(contents)), 0)
}

func (c *client) replaceVolume(l *golibvirt.Libvirt, pool golibvirt.StoragePool, v *libvirtxml.StorageVolume) (made golibvirt.StorageVol, err error) {
	if err := c.deleteVolume(l, v.Name); err != nil {
		return made, err
	}
	text, err := v.Marshal()
	if err != nil {
		return made, errorf(provider.Fatal).Because(err)
	}
	return l.StorageVolCreateXML(pool, text, 0)
}

// InstallStatus tells whether the machine runs. From then on it is the agent's turn.
func (c *client) InstallStatus(ctx context.Context, machineID, ref string) (*provider.InstallStatus, error) {
	id, ok := parseID(machineID)
	if !ok || ref != installRef {
		return nil, errorf(provider.NotFound)
	}
	status := &provider.InstallStatus{State: provider.InstallSucceeded}
	err := c.read(ctx, func(l *golibvirt.Libvirt) error {
		state, _, err := l.DomainGetState(golibvirt.Domain{UUID: id, ID: -1}, 0)
		if word := statusOf(state); err == nil && word != "running" && word != "blocked" {
			status = &provider.InstallStatus{State: provider.InstallFailed, ExitCode: 1, Log: []string{"the machine is " + word}}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return status, nil
}

// Uninstall can do nothing: nobody but the machine's owner can log in there. Its token counts no more, and its agent is refused.
func (c *client) Uninstall(context.Context, string) error { return nil }
