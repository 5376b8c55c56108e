package scaleway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/model"
	"better/compute/provider"
)

// Offers lists every server type that is sold by the hour, in each zone, and every type of instance where the account has those. What is sold by the month cannot be given back before its end.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	listed, err := everywhere(ctx, c, c.hourly(nil))
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	if c.virtual != nil {
		if offers, err = c.virtual.offers(ctx, now); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, l := range listed {
		o := offerOf(l, now)
		if !seen[o.ID] {
			seen[o.ID] = true
			offers = append(offers, o)
		}
	}
	return offers, nil
}

// hourly lists a zone's types, or the one with the name.
func (c *client) hourly(called *string) func(*baremetal.API, scw.RequestOption, scw.Zone) ([]*baremetal.Offer, error) {
	return func(sdk *baremetal.API, o scw.RequestOption, zone scw.Zone) ([]*baremetal.Offer, error) {
		all, err := pages(c, func(page *int32, size *uint32) ([]*baremetal.Offer, uint32, error) {
			r, err := sdk.ListOffers(&baremetal.ListOffersRequest{
				Zone: zone, Page: page, PageSize: size, SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly, Name: called,
			}, o)
			if err != nil {
				return nil, 0, err
			}
			return r.Offers, r.TotalCount, nil
		})
		kept := all[:0]
		for _, offer := range all {
			if offer.Name != "" && offer.ID != "" && offer.SubscriptionPeriod == baremetal.OfferSubscriptionPeriodHourly {
				offer.Zone = zone // as it was asked for
				kept = append(kept, offer)
			}
		}
		return kept, err
	}
}

func offerOf(l *baremetal.Offer, now model.Time) *model.Offer {
	zone := l.Zone.String()
	o := &model.Offer{
		ID: provider.OfferID(l.Name, zone), Kind: model.Metal, Region: zone, ProviderRegion: zone, Name: l.Name,
		Arch: archOf(l.CPUs), VCPU: threadsOf(l.CPUs), MemoryGiB: memoryOf(l.Memories), Disks: disksOf(l.Disks), GPU: gpuOf(l.Gpus),
		Price: priceOf(l), Availability: availabilityOf(l), ObservedAt: now,
	}
	return o
}

func availabilityOf(l *baremetal.Offer) model.Availability {
	switch {
	case !l.Enable || l.Stock == baremetal.OfferStockEmpty:
		return model.OutOfStock
	case l.Stock == baremetal.OfferStockLow:
		return model.Limited
	case l.Stock == baremetal.OfferStockAvailable:
		return model.Available
	}
	return model.AvailabilityUnknown
}

// priceOf takes the hour, and the fee for setting up where there is one.
func priceOf(l *baremetal.Offer) *model.Price {
	if l.PricePerHour == nil {
		return nil
	}
	p := provider.NewPrice(l.PricePerHour.CurrencyCode, decimal(l.PricePerHour), "")
	if p != nil && l.Fee != nil && l.Fee.CurrencyCode == p.Currency {
		if fee := provider.NewPrice(p.Currency, decimal(l.Fee), ""); fee != nil {
			p.Setup = fee.Hourly
		}
	}
	return p
}

// decimal is empty for zero, which is no price.
func decimal(m *scw.Money) string {
	if m.Units < 0 || m.Nanos < 0 || m.Nanos > 999_999_999 || m.Units == 0 && m.Nanos == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%09d", m.Units, m.Nanos)
}

// archOf reads the makers off the names of the CPUs; Scaleway has servers of RISC-V too, which no agent is made for.
func archOf(cpus []*baremetal.CPU) *string {
	for _, cpu := range cpus {
		if cpu == nil {
			continue
		}
		switch called := strings.ToLower(cpu.Name); {
		case strings.Contains(called, "intel"), strings.Contains(called, "amd"):
			return new("amd64")
		case strings.Contains(called, "ampere"):
			return new("arm64")
		}
	}
	return nil
}

func threadsOf(cpus []*baremetal.CPU) *int {
	n := 0
	for _, cpu := range cpus {
		if cpu != nil && cpu.ThreadCount < 1<<16 {
			n += int(cpu.ThreadCount)
		}
	}
	if n == 0 {
		return nil
	}
	return &n
}

const giga = 1_000_000_000

// memoryOf counts in GiB what Scaleway calls GB: 32000000000 bytes are a module of 32 GiB.
func memoryOf(memories []*baremetal.Memory) *float64 {
	gib := 0.0
	for _, m := range memories {
		if m != nil {
			gib += float64(m.Capacity) / giga
		}
	}
	if !(gib > 0 && gib < 1<<20) {
		return nil
	}
	return &gib
}

// disksOf counts equal disks.
func disksOf(listed []*baremetal.Disk) []*model.Disk {
	disks := []*model.Disk{}
	for _, d := range listed {
		if d == nil || d.Capacity < giga || d.Capacity > 1<<60 {
			continue
		}
		media, size := mediaOf(d.Type), int64(d.Capacity/giga)
		if n := len(disks); n > 0 && disks[n-1].SizeGB == size && disks[n-1].Media == media {
			disks[n-1].Count++
			continue
		}
		disks = append(disks, &model.Disk{SizeGB: size, Count: 1, Media: media})
	}
	return disks
}

func mediaOf(kind string) string {
	switch kind = strings.ToLower(kind); kind {
	case "nvme", "ssd", "hdd":
		return kind
	}
	return "unknown"
}

// gpuOf counts the GPUs that are like the first.
func gpuOf(listed []*baremetal.GPU) *model.GPU {
	var gpu *model.GPU
	for _, g := range listed {
		if g == nil || g.Name == "" {
			continue
		}
		called, maker := provider.NormalizeGPU(g.Name)
		if gpu == nil {
			gpu = &model.GPU{Model: called, Vendor: maker, MemoryGiB: vramOf(g.Vram)}
		}
		if called == gpu.Model {
			gpu.Count++
		}
	}
	return gpu
}

// vramOf takes a round number of GB for as many GiB, as with the memory.
func vramOf(bytes uint64) *float64 {
	switch {
	case bytes < giga || bytes > 1<<50:
		return nil
	case bytes%giga == 0:
		return new(float64(bytes / giga))
	}
	return new(float64(bytes) / (1 << 30))
}

// Machines lists the project's servers.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(servers))
	for _, s := range servers {
		m := &model.Machine{ID: machineID(s), Name: s.Name, Kind: model.Metal, Region: s.Zone.String(), Status: statusOf(s), Addresses: addressesOf(s)}
		if s.OfferName != "" {
			m.OfferID = new(provider.OfferID(s.OfferName, s.Zone.String()))
		}
		machines = append(machines, m)
	}
	if c.virtual == nil {
		return machines, nil
	}
	instances, err := c.virtual.machines(ctx)
	if err != nil {
		return nil, err
	}
	return append(machines, instances...), nil
}

// statusOf tells of the install where the server is there.
func statusOf(s *baremetal.Server) string {
	switch {
	case s.Status == "":
		return "unknown"
	case s.Status == baremetal.ServerStatusReady && s.Install != nil && s.Install.Status != baremetal.ServerInstallStatusCompleted:
		return "install: " + string(s.Install.Status)
	}
	return string(s.Status)
}

// addressesOf gives the IPv4 addresses first: those are logged in at.
func addressesOf(s *baremetal.Server) []string {
	ips := make([]net.IP, 0, len(s.IPs))
	for _, ip := range s.IPs {
		if ip != nil {
			ips = append(ips, ip.Address)
		}
	}
	return foursFirst(ips)
}

func foursFirst(ips []net.IP) []string {
	addresses, sixes := []string{}, []string{}
	for _, ip := range ips {
		switch a, ok := netip.AddrFromSlice(ip); {
		case !ok:
		case a.Unmap().Is4():
			addresses = append(addresses, a.Unmap().String())
		default:
			sixes = append(sixes, a.String())
		}
	}
	return append(addresses, sixes...)
}

// servers reads every page of the servers of each zone, and each server once.
func (c *client) servers(ctx context.Context) ([]*baremetal.Server, error) {
	listed, err := everywhere(ctx, c, func(sdk *baremetal.API, o scw.RequestOption, zone scw.Zone) ([]*baremetal.Server, error) {
		listed, err := pages(c, func(page *int32, size *uint32) ([]*baremetal.Server, uint32, error) {
			r, err := sdk.ListServers(&baremetal.ListServersRequest{Zone: zone, ProjectID: &c.config.ProjectID, Page: page, PageSize: size}, o)
			if err != nil {
				return nil, 0, err
			}
			return r.Servers, r.TotalCount, nil
		})
		for _, s := range listed {
			s.Zone = zone // as it was asked for
		}
		return listed, err
	})
	if err != nil {
		return nil, err
	}
	servers := []*baremetal.Server{}
	seen := map[string]bool{}
	for _, s := range listed {
		if isUUID(s.ID) && !seen[s.ID] {
			seen[s.ID] = true
			servers = append(servers, s)
		}
	}
	return servers, nil
}
