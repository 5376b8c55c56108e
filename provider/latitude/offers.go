package latitude

import (
	"context"
	"encoding/json"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// plan is a server type.
type plan struct {
	Slug     string   `json:"slug"`
	Name     string   `json:"name"`
	Features []string `json:"features"`
	Specs    struct {
		CPU struct {
			Type         string
			Cores, Count number
		}
		Memory struct{ Total number }
		Drives []struct {
			Count number
			Size  number
			Type  string
		}
		GPU struct {
			Count number
			Type  string
			VRAM  number `json:"vram_per_gpu"`
		}
	} `json:"specs"`
	Regions []region `json:"regions"`
}

// region is a country, with its sites.
type region struct {
	Locations struct {
		Available []string `json:"available"`
		InStock   []string `json:"in_stock"`
	} `json:"locations"`
	StockLevel string `json:"stock_level"`
	Pricing    struct {
		USD struct {
			Hour  number `json:"hour"`
			Month number `json:"month"`
		} `json:"USD"`
	} `json:"pricing"`
}

// number is one that Latitude.sh writes as such, as a text, or as a text with a unit: 32, "32", "500 GB", "3.8 TB". It counts in GB where there
// is a unit. What it cannot read is 0, which is not known.
type number float64

// UnmarshalJSON never fails: one odd figure is no reason to show no offer.
func (n *number) UnmarshalJSON(text []byte) error {
	*n = 0
	figure, unit, _ := strings.Cut(strings.Trim(string(text), `" `), " ")
	scale, known := map[string]float64{"": 1, "GB": 1, "TB": 1000}[strings.ToUpper(unit)]
	if f, err := strconv.ParseFloat(figure, 64); err == nil && known && f > 0 && f < math.MaxInt32 {
		*n = number(f * scale)
	}
	return nil
}

var _ json.Unmarshaler = (*number)(nil)

// Offers lists every plan that takes user data, at each site that has it.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	plans, err := c.plans(ctx)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{}
	for _, p := range plans {
		for _, s := range p.sites() {
			o := p.offer(s, now)
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

func (c *client) plans(ctx context.Context) ([]plan, error) {
	listed, err := list[plan](ctx, c, "/plans", url.Values{})
	if err != nil {
		return nil, err
	}
	plans := []plan{}
	for _, l := range listed {
		if l.Attributes.Slug != "" && slices.Contains(l.Attributes.Features, "user_data") {
			plans = append(plans, l.Attributes)
		}
	}
	return plans, nil
}

// site is where a plan can be had, and what its country has of it.
type site struct {
	code   string
	region region
}

func (p plan) sites() []site {
	sites := []site{}
	for _, r := range p.Regions {
		for _, code := range r.Locations.Available {
			if code != "" {
				sites = append(sites, site{code, r})
			}
		}
	}
	return sites
}

func (s site) availability() model.Availability {
	switch {
	case !slices.Contains(s.region.Locations.InStock, s.code) || s.region.StockLevel == "unavailable":
		return model.OutOfStock
	case s.region.StockLevel == "low":
		return model.Limited
	}
	return model.Available
}

func (p plan) offer(s site, now model.Time) *model.Offer {
	o := &model.Offer{
		ID: provider.OfferID(p.Slug, s.code), Kind: model.Metal, Region: strings.ToLower(s.code), ProviderRegion: s.code, Name: p.Name,
		Arch: new("amd64"), // all of its systems are for it
		VCPU: p.cores(), MemoryGiB: positive(p.Specs.Memory.Total), Disks: p.disks(), GPU: p.gpu(), Availability: s.availability(), ObservedAt: now,
	}
	if o.Name == "" {
		o.Name = p.Slug
	}
	o.Price = provider.NewPrice("USD", decimal(s.region.Pricing.USD.Hour), decimal(s.region.Pricing.USD.Month))
	return o
}

// cores are what Latitude.sh tells of; the threads of one it does not.
func (p plan) cores() *int {
	n := int(p.Specs.CPU.Cores * p.Specs.CPU.Count)
	if n <= 0 || n > 1<<16 {
		return nil
	}
	return &n
}

func positive(n number) *float64 {
	if n <= 0 || n > 1<<20 {
		return nil
	}
	return new(float64(n))
}

func decimal(n number) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n), 'f', 6, 64)
}

func (p plan) disks() []*model.Disk {
	disks := []*model.Disk{}
	for _, d := range p.Specs.Drives {
		if d.Size < 1 || d.Count < 1 || d.Count > 1000 {
			continue
		}
		media := strings.ToLower(d.Type)
		if media != "nvme" && media != "ssd" && media != "hdd" {
			media = "unknown"
		}
		disks = append(disks, &model.Disk{SizeGB: int64(d.Size), Count: int(d.Count), Media: media})
	}
	return disks
}

func (p plan) gpu() *model.GPU {
	g := p.Specs.GPU
	if g.Count < 1 || g.Count > 1000 || g.Type == "" {
		return nil
	}
	gpu := &model.GPU{Count: int(g.Count), MemoryGiB: positive(g.VRAM)}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(g.Type)
	return gpu
}

// server is a machine. Its site and project are things of their own.
type server struct {
	Hostname    string    `json:"hostname"`
	Label       string    `json:"label"`
	Status      string    `json:"status"`
	Locked      bool      `json:"locked"`
	PrimaryIPv4 string    `json:"primary_ipv4"`
	PrimaryIPv6 string    `json:"primary_ipv6"`
	CreatedAt   time.Time `json:"created_at"`
	Region      struct {
		Site struct {
			Slug string `json:"slug"`
		} `json:"site"`
	} `json:"region"`
	Plan struct {
		Slug string `json:"slug"`
	} `json:"plan"`
	Project struct {
		ID string `json:"id"`
	} `json:"project"`
}

// Machines lists the project's servers.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	servers, err := c.servers(ctx, "")
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(servers))
	for _, s := range servers {
		a := s.Attributes
		m := &model.Machine{
			ID: s.ID, Name: a.Hostname, Kind: model.Metal, Region: strings.ToLower(a.Region.Site.Slug), Status: a.Status, Addresses: addressesOf(a),
		}
		if m.Status == "" {
			m.Status = "unknown"
		}
		if a.Plan.Slug != "" && a.Region.Site.Slug != "" {
			m.OfferID = new(provider.OfferID(a.Plan.Slug, a.Region.Site.Slug))
		}
		machines = append(machines, m)
	}
	return machines, nil
}

func addressesOf(s server) []string {
	addresses := []string{}
	for _, text := range []string{s.PrimaryIPv4, s.PrimaryIPv6} {
		if ip, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, ip.String())
		}
	}
	return addresses
}

// servers lists the project's servers, or those with the host name.
func (c *client) servers(ctx context.Context, hostname string) ([]item[server], error) {
	query := url.Values{"filter[project]": {c.config.ProjectID}}
	if hostname != "" {
		query.Set("filter[hostname]", hostname)
	}
	listed, err := list[server](ctx, c, "/servers", query)
	return slices.DeleteFunc(listed, func(s item[server]) bool { return !isMachineID(s.ID) }), err
}
