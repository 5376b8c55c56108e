package linode

import (
	"context"
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// linodeType is what can be ordered.
type linodeType struct {
	ID           string        `json:"id"`
	Label        string        `json:"label"`
	Class        string        `json:"class"`
	VCPUs        int           `json:"vcpus"`
	Memory       int           `json:"memory"` // MiB
	Disk         int           `json:"disk"`   // MiB
	GPUs         int           `json:"gpus"`
	Price        price         `json:"price"`
	RegionPrices []regionPrice `json:"region_prices"`
}

type price struct {
	Hourly  json.Number `json:"hourly"`
	Monthly json.Number `json:"monthly"`
}

type regionPrice struct {
	ID string `json:"id"`
	price
}

// region is a data centre.
type region struct {
	ID           string   `json:"id"`
	Capabilities []string `json:"capabilities"`
	SiteType     string   `json:"site_type"`
}

// stock is whether a type can be had in a region. Linode tells it of some types alone.
type stock struct {
	Region    string `json:"region"`
	Plan      string `json:"plan"`
	Available bool   `json:"available"`
}

// Offers lists the types in the regions where they are sold. Linode says of its common types neither where they are sold nor whether any are
// left: those are taken to be sold in every region, with nothing known of the stock.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	types, err := list[linodeType](ctx, c, "/linode/types", nil)
	if err != nil {
		return nil, err
	}
	regions, err := list[region](ctx, c, "/regions", nil)
	if err != nil {
		return nil, err
	}
	stocks, err := list[stock](ctx, c, "/regions/availability", nil)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	known := stocksOf(stocks)
	offers := []*model.Offer{}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, t := range types {
		for _, r := range regions {
			availability, sold := soldAt(t, r, known)
			if !sold || t.ID == "" || r.ID == "" {
				continue
			}
			o := offerOf(t, r.ID, now)
			o.Availability = availability
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

// stocksOf sorts the stock by type and region.
func stocksOf(stocks []stock) map[string]map[string]bool {
	known := map[string]map[string]bool{}
	for _, s := range stocks {
		if known[s.Plan] == nil {
			known[s.Plan] = map[string]bool{}
		}
		known[s.Plan][s.Region] = s.Available
	}
	return known
}

// capabilities are what a region must be able to do for a class of types; others are for every region that has Linodes.
var capabilities = map[string]string{"gpu": "GPU Linodes", "premium": "Premium Plans"}

// soldAt leaves out the regions that give machines no user data, since nothing could be installed there, and the distributed ones, which
// have types of their own.
func soldAt(t linodeType, r region, known map[string]map[string]bool) (model.Availability, bool) {
	if !slices.Contains(r.Capabilities, "Metadata") || !slices.Contains(r.Capabilities, "Linodes") || r.SiteType == "distributed" {
		return "", false
	}
	if regions := known[t.ID]; regions != nil {
		available, listed := regions[r.ID]
		if available {
			return model.Available, true
		}
		return model.OutOfStock, listed
	}
	need := capabilities[t.Class]
	return model.AvailabilityUnknown, need == "" || slices.Contains(r.Capabilities, need)
}

func offerOf(t linodeType, at string, now model.Time) *model.Offer {
	p := t.Price
	if i := slices.IndexFunc(t.RegionPrices, func(p regionPrice) bool { return p.ID == at }); i >= 0 {
		p = t.RegionPrices[i].price
	}
	return &model.Offer{
		ID: provider.OfferID(t.ID, at), Kind: model.VPS, Region: strings.ToLower(at), ProviderRegion: at, Name: firstOf(t.Label, t.ID), Arch: new("amd64"),
		VCPU: positive(t.VCPUs), MemoryGiB: gib(t.Memory), Disks: disksOf(t.Disk), GPU: gpuOf(t), Price: provider.NewPrice("USD", p.Hourly.String(), p.Monthly.String()),
		ObservedAt: now,
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func gib(mib int) *float64 {
	if mib <= 0 {
		return nil
	}
	return new(float64(mib) / 1024)
}

// disksOf counts in GiB, as Linode shows its disks, all of which are SSDs.
func disksOf(mib int) []*model.Disk {
	if mib < 1024 {
		return []*model.Disk{}
	}
	return []*model.Disk{{SizeGB: int64(mib / 1024), Count: 1, Media: "ssd"}}
}

// cards are what ids say that labels do not: which RTX 6000 it is, and the memory of each, in GiB.
var cards = []struct {
	prefix, model string
	memory        float64
}{
	{"g1-gpu-rtx6000-", "Quadro-RTX-6000", 24},
	{"g1-gpu-rtx4000a", "RTX-4000-Ada", 20},
	{"g2-gpu-rtx4000a", "RTX-4000-Ada", 20},
}

// inLabel finds the card in a label like "Dedicated 32GB + RTX6000 GPU x1".
var inLabel = regexp.MustCompile(`\A(?:.*\+ *)?(.*?)(?: +GPU)?(?: +x[0-9]+.*)?\z`)

func gpuOf(t linodeType) *model.GPU {
	if t.GPUs <= 0 {
		return nil
	}
	for _, c := range cards {
		if strings.HasPrefix(t.ID, c.prefix) {
			return &model.GPU{Model: c.model, Vendor: "nvidia", Count: t.GPUs, MemoryGiB: &c.memory}
		}
	}
	gpu := &model.GPU{Count: t.GPUs}
	label := t.Label
	if m := inLabel.FindStringSubmatch(label); m != nil {
		label = m[1]
	}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(label)
	return gpu
}

// instance is a Linode.
type instance struct {
	ID     int      `json:"id"`
	Label  string   `json:"label"`
	Status string   `json:"status"`
	Type   string   `json:"type"`
	Region string   `json:"region"`
	IPv4   []string `json:"ipv4"`
	IPv6   string   `json:"ipv6"`
	Specs  struct {
		Disk   int `json:"disk"`
		Memory int `json:"memory"`
		VCPUs  int `json:"vcpus"`
	} `json:"specs"`
}

// Machines lists the account's Linodes.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	instances, err := list[instance](ctx, c, "/linode/instances", nil)
	if err != nil {
		return nil, err
	}
	machines := []*model.Machine{}
	seen := map[int]bool{}
	for _, i := range instances {
		if !seen[i.ID] {
			seen[i.ID] = true
			machines = append(machines, machineOf(i))
		}
	}
	return machines, nil
}

func machineOf(i instance) *model.Machine {
	m := &model.Machine{
		ID: machineID(i), Name: i.Label, Kind: model.VPS, Region: strings.ToLower(i.Region), Status: firstOf(i.Status, "unknown"), Addresses: addressesOf(i),
	}
	if i.Type != "" && i.Region != "" {
		m.OfferID = new(provider.OfferID(i.Type, i.Region))
	}
	return m
}

func addressesOf(i instance) []string {
	addresses := []string{}
	v6, _, _ := strings.Cut(i.IPv6, "/")
	for _, text := range append(slices.Clone(i.IPv4), v6) {
		if ip, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, ip.String())
		}
	}
	return addresses
}
