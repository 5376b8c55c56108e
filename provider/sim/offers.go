package sim

import (
	"context"
	"regexp"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// cloudOffer is an offer as the cloud tells it, as far as we read it.
type cloudOffer struct {
	ID        string `json:"id"`
	Category  string `json:"category"`
	Title     string `json:"title"`
	Location  string `json:"location"`
	Arch      string `json:"arch"`
	VCPU      int    `json:"vcpu"`
	MemoryMiB int64  `json:"memoryMiB"`
	Disks     []struct {
		SizeGB int64  `json:"sizeGB"`
		Count  int    `json:"count"`
		Type   string `json:"type"`
	} `json:"disks"`
	GPU *struct {
		Name         string `json:"name"`
		Count        int    `json:"count"`
		VRAMTotalGiB int64  `json:"vramTotalGiB"`
	} `json:"gpu"`
	Price *struct {
		Hourly      string `json:"hourly"`
		Monthly     string `json:"monthly"`
		Setup       string `json:"setup"`
		Currency    string `json:"currency"`
		VATIncluded bool   `json:"vatIncluded"`
	} `json:"price"`
	Stock string `json:"stock"`
}

// Check asks for one machine, which any token may.
func (c *client) Check(ctx context.Context) error {
	return c.call(ctx, "GET", "/v1/machines", map[string][]string{"per_page": {"1"}}, nil, nil)
}

// Offers lists what the cloud sells, in the account's region if it has one.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	told, err := list[cloudOffer](ctx, c, "offers", nil)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	for _, t := range told {
		offer := t.offer(now)
		if offer == nil || seen[offer.ID] || c.region != "" && offer.Region != c.region {
			continue
		}
		seen[offer.ID] = true
		offers = append(offers, offer)
	}
	return offers, nil
}

// offer puts it into our words; nil when it is not a machine that we know how to name.
func (t cloudOffer) offer(now model.Time) *model.Offer {
	id, ok := encodeID(t.ID)
	kind, known := kinds[t.Category]
	region := regionOf(t.Location)
	if !ok || !known || region == "" {
		return nil
	}
	return &model.Offer{
		ID: id, Kind: kind, Region: region, ProviderRegion: t.Location, Name: t.Title, Arch: archOf(t.Arch),
		VCPU: positive(t.VCPU), MemoryGiB: memoryGiB(t.MemoryMiB), Disks: t.disks(), GPU: t.gpu(), Price: t.price(),
		Availability: availabilityOf(t.Stock), ObservedAt: now,
	}
}

var kinds = map[string]model.MachineKind{"vps": model.VPS, "bare_metal": model.Metal}

var notInRegion = regexp.MustCompile(`[^a-z0-9._-]+`)

// regionOf folds a location to a region: lower case, and `-` for what a region cannot have.
func regionOf(location string) string {
	region := strings.Trim(notInRegion.ReplaceAllString(strings.ToLower(location), "-"), "._-")
	return region[:min(len(region), 63)]
}

func archOf(told string) *string {
	switch told {
	case "x86_64":
		return new("amd64")
	case "aarch64":
		return new("arm64")
	}
	return nil
}

func availabilityOf(stock string) model.Availability {
	switch stock {
	case "in_stock":
		return model.Available
	case "low":
		return model.Limited
	case "none":
		return model.OutOfStock
	}
	return model.AvailabilityUnknown
}

func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func memoryGiB(mib int64) *float64 {
	if mib <= 0 {
		return nil
	}
	return new(float64(mib) / 1024)
}

func (t cloudOffer) disks() []*model.Disk {
	disks := []*model.Disk{}
	for _, d := range t.Disks {
		if d.SizeGB > 0 && d.Count > 0 {
			disks = append(disks, &model.Disk{SizeGB: d.SizeGB, Count: d.Count, Media: mediaOf(d.Type)})
		}
	}
	return disks
}

func mediaOf(told string) string {
	told = strings.ToLower(told)
	for _, media := range []string{"nvme", "ssd", "hdd"} {
		if strings.Contains(told, media) {
			return media
		}
	}
	return "unknown"
}

func (t cloudOffer) gpu() *model.GPU {
	if t.GPU == nil || t.GPU.Count <= 0 {
		return nil
	}
	var memory *float64
	if t.GPU.VRAMTotalGiB > 0 {
		memory = new(float64(t.GPU.VRAMTotalGiB) / float64(t.GPU.Count))
	}
	name, vendor := provider.NormalizeGPU(t.GPU.Name)
	return &model.GPU{Model: name, Vendor: vendor, Count: t.GPU.Count, MemoryGiB: memory}
}

var (
	amountPattern   = regexp.MustCompile(`\A[0-9]{1,12}(\.[0-9]{1,9})?\z`)
	currencyPattern = regexp.MustCompile(`\A[A-Z]{3}\z`)
)

// price is nil when the cloud states none that can be understood.
func (t cloudOffer) price() *model.Price {
	if t.Price == nil || !currencyPattern.MatchString(t.Price.Currency) {
		return nil
	}
	hourly, monthly := amount(t.Price.Hourly), amount(t.Price.Monthly)
	if hourly == nil && monthly == nil {
		return nil
	}
	return &model.Price{
		Hourly: hourly, Monthly: monthly, Setup: amount(t.Price.Setup), Currency: t.Price.Currency, TaxIncluded: t.Price.VATIncluded,
	}
}

func amount(told string) *string {
	if !amountPattern.MatchString(told) {
		return nil
	}
	return &told
}

// cloudMachine is a machine as the cloud tells it.
type cloudMachine struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	OfferID     string            `json:"offerId"`
	Category    string            `json:"category"`
	Location    string            `json:"location"`
	Status      string            `json:"status"`
	Serial      string            `json:"serial"`
	OSMachineID string            `json:"osMachineId"`
	Addresses   []string          `json:"addresses"`
}

// Machines lists what the project has.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	told, err := list[cloudMachine](ctx, c, "machines", nil)
	if err != nil {
		return nil, err
	}
	machines := []*model.Machine{}
	seen := map[string]bool{}
	for _, t := range told {
		if m := t.machine(); m != nil && !seen[m.ID] {
			seen[m.ID] = true
			machines = append(machines, m)
		}
	}
	return machines, nil
}

func (t cloudMachine) machine() *model.Machine {
	id, ok := encodeID(t.ID)
	kind, known := kinds[t.Category]
	if !ok || !known {
		return nil
	}
	m := &model.Machine{
		ID: id, Name: t.Name, Kind: kind, Region: regionOf(t.Location), Status: t.Status,
		Addresses: append([]string{}, t.Addresses...),
	}
	if offer, ok := encodeID(t.OfferID); ok {
		m.OfferID = &offer
	}
	return m
}
