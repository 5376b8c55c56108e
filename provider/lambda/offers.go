package lambda

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// instanceType is what can be launched.
type instanceType struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	GPU         string `json:"gpu_description"`
	Cents       int    `json:"price_cents_per_hour"`
	Specs       struct {
		VCPUs   int `json:"vcpus"`
		Memory  int `json:"memory_gib"`
		Storage int `json:"storage_gib"`
		GPUs    int `json:"gpus"`
	} `json:"specs"`
}

// capacity is where a type can be launched now.
type capacity struct {
	Type    instanceType `json:"instance_type"`
	Regions []struct {
		Name string `json:"name"`
	} `json:"regions_with_capacity_available"`
}

// Offers lists every type in each region that has capacity for it now. Where a type is sold without that, Lambda does not tell.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	types, err := get[map[string]capacity](ctx, c, "/instance-types")
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(*types)) {
		t := (*types)[key]
		for _, r := range t.Regions {
			if t.Type.Name == "" || r.Name == "" {
				continue
			}
			o := offerOf(t.Type, r.Name, now)
			if !seen[o.ID] {
				seen[o.ID] = true
				offers = append(offers, o)
			}
		}
	}
	return offers, nil
}

func offerOf(t instanceType, region string, now model.Time) *model.Offer {
	o := &model.Offer{
		ID: provider.OfferID(t.Name, region), Kind: model.VPS, Region: strings.ToLower(region), ProviderRegion: region, Name: t.Description,
		Arch: new(archOf(t.Name)), VCPU: positive(t.Specs.VCPUs), Disks: disksOf(t), GPU: gpuOf(t), Availability: model.Available, ObservedAt: now,
	}
	if o.Name == "" {
		o.Name = t.Name
	}
	if t.Specs.Memory > 0 {
		o.MemoryGiB = new(float64(t.Specs.Memory))
	}
	if t.Cents > 0 {
		o.Price = provider.NewPrice("USD", fmt.Sprintf("%d.%02d", t.Cents/100, t.Cents%100), "")
	}
	return o
}

// archOf: of all that Lambda has, the machines with Grace CPUs alone are of another architecture.
func archOf(typeName string) string {
	if strings.Contains(typeName, "gh200") {
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

func disksOf(t instanceType) []*model.Disk {
	if t.Specs.Storage <= 0 {
		return []*model.Disk{}
	}
	return []*model.Disk{{SizeGB: int64(t.Specs.Storage), Count: 1, Media: "ssd"}}
}

var inBrackets = regexp.MustCompile(`\(([0-9]{1,4}) GB`)

// gpuOf reads descriptions like "H100 (80 GB SXM5)". The memory is part of the name only where the card is made with several.
func gpuOf(t instanceType) *model.GPU {
	if t.Specs.GPUs <= 0 {
		return nil
	}
	gpu := &model.GPU{Count: t.Specs.GPUs}
	card, _, _ := strings.Cut(t.GPU, "(")
	card = strings.TrimSpace(card)
	switch card {
	case "RTX 6000":
		card = "Quadro RTX 6000" // and not the one that is called Ada
	case "A100", "V100", "Tesla V100":
		card = t.GPU
	}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(card)
	if m := inBrackets.FindStringSubmatch(t.GPU); m != nil {
		if gb, err := strconv.Atoi(m[1]); err == nil && gb > 0 {
			gpu.MemoryGiB = new(float64(gb))
		}
	}
	return gpu
}

// Machines lists the account's instances.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	instances, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(instances))
	for _, i := range instances {
		m := &model.Machine{
			ID: i.ID, Name: i.Name, Kind: model.VPS, Region: strings.ToLower(i.Region.Name), Status: i.Status, Addresses: addressesOf(i),
		}
		if m.Status == "" {
			m.Status = "unknown"
		}
		if i.Type.Name != "" && i.Region.Name != "" {
			m.OfferID = new(provider.OfferID(i.Type.Name, i.Region.Name))
		}
		machines = append(machines, m)
	}
	return machines, nil
}
