package digitalocean

import (
	"context"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"better/compute/model"
	"better/compute/provider"
)

// Offers lists every size in each region that has it.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	sizes, err := c.sizes(ctx)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, s := range sizes {
		for _, region := range s.Regions {
			if s.Slug == "" || region == "" {
				continue
			}
			o := offerOf(s, region, now)
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

func (c *client) sizes(ctx context.Context) (sizes []godo.Size, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *godo.Client) error {
		sizes, err = pages(c, func(o *godo.ListOptions) ([]godo.Size, *godo.Response, error) { return sdk.Sizes.List(ctx, o) })
		return err
	})
	return sizes, err
}

// offerOf takes a size that is listed for a region for one that can be had there: DigitalOcean takes the region away when it has none left.
func offerOf(s godo.Size, region string, now model.Time) *model.Offer {
	o := &model.Offer{
		ID: provider.OfferID(s.Slug, region), Kind: model.VPS, Region: strings.ToLower(region), ProviderRegion: region, Name: nameOf(s),
		Arch: new("amd64"), VCPU: positive(s.Vcpus), MemoryGiB: memoryGiB(s.Memory), Disks: disksOf(s), GPU: gpuOf(s.GPUInfo),
		Price: provider.NewPrice("USD", decimal(s.PriceHourly), decimal(s.PriceMonthly)), Availability: model.OutOfStock, ObservedAt: now,
	}
	if s.Available {
		o.Availability = model.Available
	}
	return o
}

func nameOf(s godo.Size) string {
	if s.Description == "" {
		return s.Slug
	}
	return s.Description + " (" + s.Slug + ")" // many sizes have one description
}

func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func memoryGiB(mib int) *float64 {
	if mib <= 0 {
		return nil
	}
	return new(float64(mib) / 1024)
}

// decimal writes what DigitalOcean sends as a floating point number, 0.00743999984115362 among them. Zero is no price.
func decimal(f float64) string {
	if !(f > 0) || math.IsInf(f, 0) {
		return ""
	}
	return strconv.FormatFloat(f, 'f', 8, 64)
}

// disksOf counts the disk that the system is on and the scratch disks. All of DigitalOcean's are SSDs.
func disksOf(s godo.Size) []*model.Disk {
	disks := []*model.Disk{}
	for _, d := range s.DiskInfo {
		if d.Size != nil && d.Size.Amount > 0 && strings.EqualFold(d.Size.Unit, "gib") {
			disks = append(disks, &model.Disk{SizeGB: int64(d.Size.Amount), Count: 1, Media: "ssd"})
		}
	}
	if len(disks) == 0 && s.Disk > 0 {
		disks = append(disks, &model.Disk{SizeGB: int64(s.Disk), Count: 1, Media: "ssd"})
	}
	return disks
}

// gpuOf parts the memory, which DigitalOcean tells of all GPUs together.
func gpuOf(g *godo.GPUInfo) *model.GPU {
	if g == nil || g.Count <= 0 || g.Model == "" {
		return nil
	}
	gpu := &model.GPU{Count: g.Count}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(g.Model)
	if g.VRAM != nil && g.VRAM.Amount > 0 && strings.EqualFold(g.VRAM.Unit, "gib") {
		gpu.MemoryGiB = new(float64(g.VRAM.Amount) / float64(g.Count))
	}
	return gpu
}

// Machines lists the account's droplets.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	droplets, err := c.droplets(ctx, list, listGPUs)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(droplets))
	for _, d := range droplets {
		machines = append(machines, machineOf(d))
	}
	return machines, nil
}

func machineOf(d *godo.Droplet) *model.Machine {
	m := &model.Machine{ID: machineID(d), Name: d.Name, Kind: model.VPS, Status: d.Status, Addresses: addressesOf(d)}
	if m.Status == "" {
		m.Status = "unknown"
	}
	if d.Region != nil {
		m.Region = strings.ToLower(d.Region.Slug)
		if d.SizeSlug != "" && d.Region.Slug != "" {
			m.OfferID = new(provider.OfferID(d.SizeSlug, d.Region.Slug))
		}
	}
	return m
}

// addressesOf gives the public addresses first.
func addressesOf(d *godo.Droplet) []string {
	addresses := []string{}
	if d.Networks == nil {
		return addresses
	}
	add := func(text string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, ip.String())
		}
	}
	for _, public := range []bool{true, false} {
		for _, n := range d.Networks.V4 {
			if (n.Type == "public") == public {
				add(n.IPAddress)
			}
		}
		for _, n := range d.Networks.V6 {
			if (n.Type == "public") == public {
				add(n.IPAddress)
			}
		}
	}
	return addresses
}

// listing is a way to list droplets. DigitalOcean leaves those with GPUs out of the plain list.
type listing func(context.Context, *godo.Client, *godo.ListOptions) ([]godo.Droplet, *godo.Response, error)

func list(ctx context.Context, sdk *godo.Client, o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) {
	return sdk.Droplets.List(ctx, o)
}

func listGPUs(ctx context.Context, sdk *godo.Client, o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) {
	return sdk.Droplets.ListWithGPUs(ctx, o)
}

// droplets reads every page of the lists, and each droplet once.
func (c *client) droplets(ctx context.Context, listings ...listing) (droplets []*godo.Droplet, err error) {
	seen := map[int]bool{}
	err = c.read(ctx, func(ctx context.Context, sdk *godo.Client) error {
		for _, l := range listings {
			listed, err := pages(c, func(o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) { return l(ctx, sdk, o) })
			if err != nil {
				return err
			}
			for i := range listed {
				if d := &listed[i]; !seen[d.ID] {
					seen[d.ID] = true
					droplets = append(droplets, d)
				}
			}
		}
		return nil
	})
	return droplets, err
}
