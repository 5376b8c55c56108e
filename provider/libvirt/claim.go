package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/xml"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"better/compute/provider"
)

// Claims lists the domains whose name is an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	owned := []provider.OwnedMachine{}
	err := c.read(ctx, func(l *golibvirt.Libvirt) error {
		domains, err := all(l)
		for _, d := range domains {
			if provider.IsOperationID(d.Name) {
				owned = append(owned, provider.OwnedMachine{OperationID: d.Name, MachineID: machineID(d)})
			}
		}
		return err
	})
	return owned, err
}

// FindClaim looks for the domain with the operation's name.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	var d golibvirt.Domain
	err := c.read(ctx, func(l *golibvirt.Libvirt) (err error) {
		d, err = l.DomainLookupByName(operationID)
		return err
	})
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case d.Name != operationID:
		return nil, errorf(provider.InvalidResponse)
	}
	return &provider.Claim{State: provider.ClaimReady, MachineID: machineID(d), OrderRef: d.Name}, nil
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// Order defines a domain, named after the operation. The same operation again defines the same one. Its disk is made by Install.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	s, ok := c.size(order.OfferID)
	if !ok {
		return nil, errorf(provider.OfferGone)
	}
	r, err := c.room(ctx)
	switch {
	case err != nil:
		return nil, provider.NotSent(err)
	case !r.fits(s):
		return nil, errorf(provider.OutOfStock)
	}
	description, err := c.domain(order.OperationID, s).Marshal()
	if err != nil {
		return nil, errorf(provider.Fatal).Because(err)
	}
	var d golibvirt.Domain
	err = c.change(ctx, func(l *golibvirt.Libvirt) (err error) {
		d, err = l.DomainDefineXMLFlags(description, 0)
		if is(err, golibvirt.ErrOperationFailed, golibvirt.ErrDomExist) {
			// The name is the operation's, so it has ordered before: look for what.
			return errorf(provider.UnknownOutcome).Because(err)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case d.Name != order.OperationID:
		return nil, errorf(provider.UnknownOutcome)
	}
	return &provider.Claim{State: provider.ClaimPending, OrderRef: d.Name}, nil
}

func (c *client) size(offerID string) (size, bool) {
	for _, s := range c.config.Sizes {
		if provider.OfferID(s.Name, c.config.Region) == offerID {
			return s, true
		}
	}
	return size{}, false
}

// uuidOf follows from the operation, so that libvirt refuses a second domain by two ways.
func uuidOf(operationID string) uuid.UUID {
	sum := sha256.Sum256([]byte("domain of " + operationID))
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: its maker's own
	return id
}

// domain describes the machine. Its serial number is its UUID.
func (c *client) domain(operationID string, s size) *libvirtxml.Domain {
	id := uuidOf(operationID).String()
	kind, cpu := c.config.Hypervisor, (*libvirtxml.DomainCPU)(nil)
	if kind == "kvm" {
		cpu = &libvirtxml.DomainCPU{Mode: "host-passthrough"}
	}
	network := &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: c.config.Network}}
	if c.config.Network == "user" {
		network = &libvirtxml.DomainInterfaceSource{User: &libvirtxml.DomainInterfaceSourceUser{}}
	}
	volume := func(name string) *libvirtxml.DomainDiskSource {
		return &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: c.config.Pool, Volume: name}}
	}
	return &libvirtxml.Domain{
		Type: kind, Name: operationID, UUID: id, CPU: cpu, Metadata: &libvirtxml.DomainMetadata{XML: fmt.Sprintf(orderedForm, s.DiskGB)},
		Memory: &libvirtxml.DomainMemory{Value: s.MemoryMiB, Unit: "MiB"}, VCPU: &libvirtxml.DomainVCPU{Value: s.VCPU},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}, SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"}},
		SysInfo: []libvirtxml.DomainSysInfo{{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: "serial", Value: id}},
		}}}},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}},
		Devices: &libvirtxml.DomainDeviceList{
			Disks: []libvirtxml.DomainDisk{
				{
					Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2"}, Source: volume(diskOf(operationID)),
					Target: &libvirtxml.DomainDiskTarget{Dev: "vda", Bus: "virtio"},
				},
				{
					Device: "cdrom", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}, Source: volume(seedOf(operationID)),
					Target: &libvirtxml.DomainDiskTarget{Dev: "sda", Bus: "scsi"}, ReadOnly: &libvirtxml.DomainDiskReadOnly{},
				},
			},
			Controllers: []libvirtxml.DomainController{{Type: "scsi", Model: "virtio-scsi"}},
			Interfaces: []libvirtxml.DomainInterface{{
				Source: network, Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"},
			}},
			Consoles: []libvirtxml.DomainConsole{{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}},
		},
	}
}

// orderedForm is how the size of the disk is kept at the domain until Install makes it.
const orderedForm = `<compute:ordered xmlns:compute="urn:compute:ordered:1" disk="%d"/>`

// orderedBytes is the size of the disk that was ordered; 0 when that is not told.
func orderedBytes(d *libvirtxml.Domain) uint64 {
	if d.Metadata == nil {
		return 0
	}
	var ordered struct {
		Disk uint64 `xml:"disk,attr"`
	}
	if err := xml.Unmarshal([]byte(d.Metadata.XML), &ordered); err != nil {
		return 0
	}
	return min(ordered.Disk, 100_000) * 1_000_000_000
}

// diskOf and seedOf name a machine's volumes.
func diskOf(machineName string) string { return machineName + ".qcow2" }
func seedOf(machineName string) string { return machineName + "-seed.iso" }

// Release stops the domain, deletes its volumes and undefines it, in this order: while there is anything left there is the domain.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	id, ok := parseID(machineID)
	if !ok {
		return nil
	}
	err := c.change(ctx, func(l *golibvirt.Libvirt) error {
		d, err := l.DomainLookupByUUID(id)
		if err != nil {
			return err
		}
		if d.Name != operationID || d.UUID != id {
			return errorf(provider.IdentityChanged)
		}
		if err := stop(l, d); err != nil {
			return err
		}
		for _, volume := range []string{diskOf(d.Name), seedOf(d.Name)} {
			if err := c.deleteVolume(l, volume); err != nil {
				return err
			}
		}
		return l.DomainUndefineFlags(d, golibvirt.DomainUndefineManagedSave|golibvirt.DomainUndefineSnapshotsMetadata)
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

// stop takes the power from a domain, if it has any.
func stop(l *golibvirt.Libvirt, d golibvirt.Domain) error {
	state, _, err := l.DomainGetState(d, 0)
	if err != nil || golibvirt.DomainState(state) == golibvirt.DomainShutoff {
		return err
	}
	err = l.DomainDestroy(d)
	if is(err, golibvirt.ErrOperationInvalid) { // it stopped meanwhile
		return nil
	}
	return err
}

// deleteVolume deletes a volume of the pool, if there is one.
func (c *client) deleteVolume(l *golibvirt.Libvirt, volume string) error {
	pool, err := l.StoragePoolLookupByName(c.config.Pool)
	if is(err, golibvirt.ErrNoStoragePool) {
		return nil
	}
	if err != nil {
		return err
	}
	v, err := l.StorageVolLookupByName(pool, volume)
	if err == nil {
		err = l.StorageVolDelete(v, 0)
	}
	if is(err, golibvirt.ErrNoStorageVol) {
		return nil
	}
	return err
}

// parseID takes nothing but what machineID gives.
func parseID(machineID string) (golibvirt.UUID, bool) {
	id, err := uuid.Parse(machineID)
	return golibvirt.UUID(id), err == nil && id.String() == machineID
}
