package vultr

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// plan is what can be ordered: an instance, or a machine of bare metal.
type plan struct {
	ID          string      `json:"id"`
	VCPUs       int         `json:"vcpu_count"`
	Threads     int         `json:"cpu_threads"`
	Cores       int         `json:"cpu_count"`
	RAM         int         `json:"ram"`  // MiB
	Disk        json.Number `json:"disk"` // GB
	DiskCount   int         `json:"disk_count"`
	Type        string      `json:"type"`
	GPUType     string      `json:"gpu_type"`
	GPUMemory   float64     `json:"gpu_vram_gb"`
	HourlyCost  json.Number `json:"hourly_cost"`
	MonthlyCost json.Number `json:"monthly_cost"`
	Locations   []string    `json:"locations"`
	kind        model.MachineKind
}

// Offers lists every plan in each region that has it.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	plans, err := c.plans(ctx)
	if err != nil {
		return nil, err
	}
	stock := map[string][]string{} // plans, by region
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, p := range plans {
		for _, region := range p.Locations {
			if p.ID == "" || region == "" {
				continue
			}
			if _, known := stock[region]; !known {
				if stock[region], err = c.stock(ctx, region); err != nil {
					return nil, err
				}
			}
			o := offerOf(p, region, now)
			if slices.Contains(stock[region], p.ID) {
				o.Availability = model.Available
			}
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

func (c *client) plans(ctx context.Context) ([]plan, error) {
	instances, err := list[plan](ctx, c, "/plans", "plans", nil)
	if err != nil {
		return nil, err
	}
	metal, err := list[plan](ctx, c, "/plans-metal", "plans_metal", nil)
	if err != nil {
		return nil, err
	}
	for i := range instances {
		instances[i].kind = model.VPS
	}
	for i := range metal {
		metal[i].kind = model.Metal
	}
	return append(instances, metal...), nil
}

// stock lists the plans that can be had in a region now.
func (c *client) stock(ctx context.Context, region string) ([]string, error) {
	var answer struct {
		Plans *[]string `json:"available_plans"`
	}
	if err := c.get(ctx, "/regions/"+url.PathEscape(region)+"/availability", &answer); err != nil {
		return nil, err
	}
	if answer.Plans == nil {
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return *answer.Plans, nil
}

func offerOf(p plan, region string, now model.Time) *model.Offer {
	return &model.Offer{
		ID: provider.OfferID(p.ID, region), Kind: p.kind, Region: strings.ToLower(region), ProviderRegion: region, Name: p.ID, Arch: new(archOf(p.ID)),
		VCPU: positive(max(p.VCPUs, p.Threads)), MemoryGiB: gib(p.RAM), Disks: disksOf(p), GPU: gpuOf(p),
		Price: provider.NewPrice("USD", p.HourlyCost.String(), p.MonthlyCost.String()), Availability: model.OutOfStock, ObservedAt: now,
	}
}

// archOf: of all that Vultr has, the machines with Grace CPUs alone are of another architecture.
func archOf(planID string) string {
	if strings.Contains(planID, "gh200") {
		return "arm64"
	}
	return "amd64"
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

func disksOf(p plan) []*model.Disk {
	size, err := p.Disk.Int64()
	if err != nil || size <= 0 {
		return []*model.Disk{}
	}
	media := "ssd"
	switch kind := strings.ToLower(p.Type); {
	case strings.Contains(kind, "nvme"), strings.Contains(kind, "vhp"):
		media = "nvme"
	case strings.Contains(kind, "hdd"):
		media = "hdd"
	}
	return []*model.Disk{{SizeGB: size, Count: max(p.DiskCount, 1), Media: media}}
}

// cardMemory is that of a whole card, in GB. Vultr tells the memory of a plan, and not how many cards that is.
var cardMemory = map[string]float64{
	"A16": 16, "A40": 48, "A100-80GB": 80, "L40S": 48, "H100": 80, "GH200": 96, "H200": 141, "B200": 180, "MI300X": 192, "MI325X": 256, "MI355X": 288,
}

// inMetalID finds how many cards of what a plan of bare metal has, like vbm-112c-2048gb-8-h100-gpu: nothing else tells.
var inMetalID = regexp.MustCompile(`-(?:([0-9]{1,2})-)?([a-z0-9]+)-gpu\z`)

// gpuOf leaves out parts of a card, since who asks for a GPU wants a whole one.
func gpuOf(p plan) *model.GPU {
	if p.kind == model.Metal {
		return metalGPU(p.ID)
	}
	if p.GPUType == "" || !(p.GPUMemory > 0) {
		return nil
	}
	gpu := &model.GPU{Count: 1}
	gpu.Model, gpu.Vendor = normalize(p.GPUType)
	card, known := cardMemory[gpu.Model]
	switch {
	case !known:
		gpu.MemoryGiB = &p.GPUMemory
	case p.GPUMemory < card:
		return nil
	default:
		gpu.Count, gpu.MemoryGiB = int(min(p.GPUMemory/card, 1024)), &card
	}
	return gpu
}

// normalize: the A100 that Vultr has is the larger one.
func normalize(name string) (gpu, maker string) {
	gpu, maker = provider.NormalizeGPU(name)
	if gpu == "A100" {
		gpu = "A100-80GB"
	}
	return gpu, maker
}

func metalGPU(id string) *model.GPU {
	m := inMetalID.FindStringSubmatch(id)
	if m == nil {
		return nil
	}
	gpu := &model.GPU{Count: 1}
	if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
		gpu.Count = n
	}
	gpu.Model, gpu.Vendor = normalize(m[2])
	if card, known := cardMemory[gpu.Model]; known {
		gpu.MemoryGiB = &card
	}
	return gpu
}

// Machines lists the account's instances and its bare metal.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	all, err := c.machines(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(all))
	for _, m := range all {
		shown := &model.Machine{
			ID: m.id(), Name: m.Label, Kind: m.kind, Region: strings.ToLower(m.Region), Status: m.Status, Addresses: addressesOf(m),
		}
		if m.Status == "" {
			shown.Status = "unknown"
		}
		if m.Plan != "" && m.Region != "" {
			shown.OfferID = new(provider.OfferID(m.Plan, m.Region))
		}
		machines = append(machines, shown)
	}
	return machines, nil
}
