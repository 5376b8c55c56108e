package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"better/compute/model"
	"better/compute/provider"
)

// Check asks for the hypervisor's version.
func (c *client) Check(ctx context.Context) error {
	return c.read(ctx, func(l *golibvirt.Libvirt) error {
		_, err := l.ConnectGetVersion()
		return err
	})
}

// room is what a hypervisor has.
type room struct {
	arch               string
	cpus               int32
	memoryMiB, freeMiB uint64
}

func (c *client) room(ctx context.Context) (r room, err error) {
	err = c.read(ctx, func(l *golibvirt.Libvirt) error {
		machine, memoryKiB, cpus, _, _, _, _, _, err := l.NodeGetInfo()
		if err != nil {
			return err
		}
		free, err := l.NodeGetFreeMemory()
		r = room{arch: archOf(text(machine[:])), cpus: cpus, memoryMiB: memoryKiB >> 10, freeMiB: free >> 20}
		return err
	})
	return r, err
}

func text(chars []int8) string {
	var bytes []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		bytes = append(bytes, byte(c)) //nolint:gosec // C has characters with a sign
	}
	return string(bytes)
}

func archOf(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return ""
}

// fits says whether a machine of the size could be started now.
func (r room) fits(s size) bool {
	return int64(s.VCPU) <= int64(r.cpus) && uint64(s.MemoryMiB) <= min(r.memoryMiB, r.freeMiB) //nolint:gosec // the schema bounds both
}

// Offers lists the sizes of the config. One that the hypervisor has no room for is out of stock.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	r, err := c.room(ctx)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	for _, s := range c.config.Sizes {
		o := &model.Offer{
			ID: provider.OfferID(s.Name, c.config.Region), Kind: model.VPS, Region: c.config.Region, ProviderRegion: c.config.Region, Name: s.Name,
			VCPU: new(int(s.VCPU)), MemoryGiB: new(float64(s.MemoryMiB) / 1024), Disks: disksOf(s.DiskGB),
			Price: provider.NewPrice(s.Currency, s.Hourly, s.Monthly), Availability: model.OutOfStock, ObservedAt: now,
		}
		if r.arch != "" {
			o.Arch = &r.arch
		}
		if r.fits(s) {
			o.Availability = model.Available
		}
		offers = append(offers, o)
	}
	return offers, nil
}

func disksOf(gb int64) []*model.Disk {
	return []*model.Disk{{SizeGB: gb, Count: 1, Media: "unknown"}}
}

// Machines lists every domain, running or not.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	machines := []*model.Machine{}
	err := c.read(ctx, func(l *golibvirt.Libvirt) error {
		domains, err := all(l)
		if err != nil {
			return err
		}
		for _, d := range domains {
			state, _, err := l.DomainGetState(d, 0)
			if is(err, golibvirt.ErrNoDomain) {
				continue // it has gone meanwhile
			}
			if err != nil {
				return err
			}
			machines = append(machines, &model.Machine{
				ID: machineID(d), Name: d.Name, Kind: model.VPS, Region: c.config.Region, Status: statusOf(state), Addresses: []string{},
			})
		}
		return nil
	})
	return machines, err
}

// all lists the domains, each once.
func all(l *golibvirt.Libvirt) ([]golibvirt.Domain, error) {
	domains, _, err := l.ConnectListAllDomains(1, 0)
	seen := map[golibvirt.UUID]bool{}
	var each []golibvirt.Domain
	for _, d := range domains {
		if !seen[d.UUID] {
			seen[d.UUID] = true
			each = append(each, d)
		}
	}
	return each, err
}

func machineID(d golibvirt.Domain) string { return uuid.UUID(d.UUID).String() }

func statusOf(state int32) string {
	switch golibvirt.DomainState(state) {
	case golibvirt.DomainRunning:
		return "running"
	case golibvirt.DomainBlocked:
		return "blocked"
	case golibvirt.DomainPaused:
		return "paused"
	case golibvirt.DomainShutdown:
		return "shutting down"
	case golibvirt.DomainShutoff:
		return "off"
	case golibvirt.DomainCrashed:
		return "crashed"
	case golibvirt.DomainPmsuspended:
		return "suspended"
	default:
		return "unknown"
	}
}
