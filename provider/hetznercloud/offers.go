package hetznercloud

import (
	"context"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

// Offers lists every server type in each location that has it, at net prices.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	var types []*hcloud.ServerType
	var currency string
	err := c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) (err error) {
		if types, err = c.serverTypes(ctx, sdk); err != nil {
			return err
		}
		pricing, _, err := sdk.Pricing.Get(ctx)
		currency = pricing.Currency
		return err
	})
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, t := range types {
		for _, at := range placesOf(t) {
			o := at.offer(t, currency, now)
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

func (c *client) serverTypes(ctx context.Context, sdk *hcloud.Client) ([]*hcloud.ServerType, error) {
	return vendor.Pages(c.vendor, func(number int) ([]*hcloud.ServerType, int, error) {
		return page(sdk.ServerType.List(ctx, hcloud.ServerTypeListOpts{ListOpts: hcloud.ListOpts{Page: number, PerPage: perPage}}))
	})
}

// place is what is told of a server type at one location.
type place struct {
	location     string
	price        *hcloud.ServerTypeLocationPricing
	availability model.Availability
}

// placesOf joins the two lists of locations that a type has. Where only a price is told, nothing is known of the stock.
func placesOf(t *hcloud.ServerType) []*place {
	var places []*place
	byName := map[string]*place{}
	at := func(l *hcloud.Location) *place {
		p := byName[l.Name]
		if p == nil {
			p = &place{location: l.Name, availability: model.AvailabilityUnknown}
			byName[l.Name], places = p, append(places, p)
		}
		return p
	}
	for _, l := range t.Locations {
		if l.Location == nil || l.Location.Name == "" {
			continue
		}
		p := at(l.Location)
		p.availability = model.OutOfStock
		if l.Available && (!l.IsDeprecated() || time.Now().Before(l.UnavailableAfter())) {
			p.availability = model.Available
		}
	}
	for _, priced := range t.Pricings {
		if priced.Location != nil && priced.Location.Name != "" {
			at(priced.Location).price = &priced
		}
	}
	return places
}

func (p *place) offer(t *hcloud.ServerType, currency string, now model.Time) *model.Offer {
	return &model.Offer{
		ID: provider.OfferID(t.Name, p.location), Kind: model.VPS, Region: strings.ToLower(p.location), ProviderRegion: p.location,
		Name: firstOf(t.Description, t.Name), Arch: archOf(t.Architecture), VCPU: positive(t.Cores), MemoryGiB: memoryGiB(t.Memory),
		Disks: disksOf(t), Price: p.priceIn(currency), Availability: p.availability, ObservedAt: now,
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func archOf(a hcloud.Architecture) *string {
	switch a {
	case hcloud.ArchitectureX86:
		return new("amd64")
	case hcloud.ArchitectureARM:
		return new("arm64")
	}
	return nil
}

func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func memoryGiB(gb float32) *float64 {
	if !(gb > 0) {
		return nil
	}
	return new(float64(gb))
}

// disksOf takes local disks for NVMe, which they are in every type.
func disksOf(t *hcloud.ServerType) []*model.Disk {
	if t.Disk <= 0 {
		return []*model.Disk{}
	}
	media := "unknown"
	if t.StorageType == hcloud.StorageTypeLocal {
		media = "nvme"
	}
	return []*model.Disk{{SizeGB: int64(t.Disk), Count: 1, Media: media}}
}

func (p *place) priceIn(currency string) *model.Price {
	if p.price == nil {
		return nil
	}
	return provider.NewPrice(currency, p.price.Hourly.Net, p.price.Monthly.Net)
}

// Machines lists the project's servers.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	servers, err := c.servers(ctx, hcloud.ServerListOpts{})
	if err != nil {
		return nil, err
	}
	machines := []*model.Machine{}
	seen := map[string]bool{}
	for _, s := range servers {
		m := machineOf(s)
		if !seen[m.ID] {
			seen[m.ID] = true
			machines = append(machines, m)
		}
	}
	return machines, nil
}

func machineOf(s *hcloud.Server) *model.Machine {
	m := &model.Machine{
		ID: machineID(s), Name: s.Name, Kind: model.VPS, Status: firstOf(string(s.Status), "unknown"), Addresses: addressesOf(s),
	}
	if s.Location != nil {
		m.Region = strings.ToLower(s.Location.Name)
		if s.ServerType != nil && s.ServerType.Name != "" && s.Location.Name != "" {
			m.OfferID = new(provider.OfferID(s.ServerType.Name, s.Location.Name))
		}
	}
	return m
}

// addressesOf gives the addresses that the server has by itself: of its IPv6 network the first.
func addressesOf(s *hcloud.Server) []string {
	addresses := []string{}
	if ip := s.PublicNet.IPv4.IP; len(ip) > 0 {
		addresses = append(addresses, ip.String())
	}
	if ip := s.PublicNet.IPv6.IP.To16(); ip != nil && !s.PublicNet.IPv6.IsUnspecified() {
		first := append(ip[:0:0], ip...)
		first[15] |= 1
		addresses = append(addresses, first.String())
	}
	for _, n := range s.PrivateNet {
		if len(n.IP) > 0 {
			addresses = append(addresses, n.IP.String())
		}
	}
	return addresses
}

// servers reads every page of a list.
func (c *client) servers(ctx context.Context, o hcloud.ServerListOpts) (servers []*hcloud.Server, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		servers, err = vendor.Pages(c.vendor, func(number int) ([]*hcloud.Server, int, error) {
			o.Page, o.PerPage = number, perPage
			return page(sdk.Server.List(ctx, o))
		})
		return err
	})
	return servers, err
}
