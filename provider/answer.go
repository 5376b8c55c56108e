package provider

import (
	"cmp"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"better/compute/model"
)

// Bounds of what a provider can plausibly sell.
const (
	maxListed    = 100_000
	maxVCPU      = 1 << 16
	maxMemoryGiB = 1 << 20
	maxGPUs      = 1024
	maxDisks     = 4096
	maxDiskGB    = 1 << 30
	maxName      = 200
	maxAddresses = 256
)

var (
	itemID      = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	decimalForm = regexp.MustCompile(`\A[0-9]{1,12}(?:\.[0-9]{1,18})?\z`)
	currency    = regexp.MustCompile(`\A[A-Z]{3}\z`)
	gpuForm     = regexp.MustCompile(`\A[A-Za-z0-9-]{1,32}\z`)
)

// CheckOffers judges a provider's answer before anybody relies on it, and returns copies that are fit to show: text without control
// characters, numbers that make no sense as not known, disks largest first. An id that is malformed or there twice, or a figure that
// nothing plausible stands for, makes the whole answer an *Error of class InvalidResponse.
func CheckOffers(offers []*model.Offer) ([]*model.Offer, error) {
	if len(offers) > maxListed {
		return nil, Errorf(InvalidResponse, "The provider listed more than %d offers.", maxListed)
	}
	checked := make([]*model.Offer, 0, len(offers))
	seen := make(map[string]bool, len(offers))
	for i, o := range offers {
		if o == nil || !itemID.MatchString(o.ID) {
			return nil, Errorf(InvalidResponse, "Offer %d of the provider has no usable id.", i)
		}
		if seen[o.ID] {
			return nil, Errorf(InvalidResponse, "The provider listed offer %s twice.", o.ID)
		}
		seen[o.ID] = true
		c := *o
		if field := fixOffer(&c); field != "" {
			return nil, Errorf(InvalidResponse, "The provider's offer %s has an implausible %s.", o.ID, field)
		}
		checked = append(checked, &c)
	}
	return checked, nil
}

// fixOffer names the field that cannot be repaired.
func fixOffer(o *model.Offer) (field string) {
	o.Region = strings.ToLower(clean(o.Region, maxName))
	o.ProviderRegion = clean(o.ProviderRegion, maxName)
	o.Name = clean(o.Name, maxName)
	if o.Arch != nil && *o.Arch != "amd64" && *o.Arch != "arm64" {
		o.Arch = nil
	}
	if o.VCPU != nil && *o.VCPU <= 0 {
		o.VCPU = nil
	}
	o.MemoryGiB = knownSize(o.MemoryGiB)
	switch o.Availability {
	case model.Available, model.Limited, model.OutOfStock:
	default:
		o.Availability = model.AvailabilityUnknown
	}
	switch {
	case o.Kind != model.Metal && o.Kind != model.VPS:
		return "kind"
	case o.VCPU != nil && *o.VCPU > maxVCPU:
		return "number of CPUs"
	case o.MemoryGiB != nil && *o.MemoryGiB > maxMemoryGiB:
		return "memory"
	case !fixDisks(o):
		return "disk"
	case !fixGPU(o):
		return "GPU"
	case !fixPrice(o):
		return "price"
	}
	return ""
}

// knownSize takes NaN, infinities and what is not above 0 for not known.
func knownSize(gib *float64) *float64 {
	if gib == nil || math.IsNaN(*gib) || math.IsInf(*gib, 0) || *gib <= 0 {
		return nil
	}
	return gib
}

func fixDisks(o *model.Offer) bool {
	disks := make([]*model.Disk, 0, len(o.Disks))
	for _, d := range o.Disks {
		if d == nil || d.SizeGB <= 0 || d.SizeGB > maxDiskGB || d.Count <= 0 || d.Count > maxDisks {
			return false
		}
		c := *d
		if c.Media != "nvme" && c.Media != "ssd" && c.Media != "hdd" {
			c.Media = "unknown"
		}
		disks = append(disks, &c)
	}
	slices.SortStableFunc(disks, func(a, b *model.Disk) int { return cmp.Compare(b.SizeGB, a.SizeGB) })
	o.Disks = disks
	return len(disks) <= maxDisks
}

func fixGPU(o *model.Offer) bool {
	if o.GPU == nil {
		return true
	}
	gpu := *o.GPU
	gpu.Vendor = strings.ToLower(clean(gpu.Vendor, maxName))
	gpu.MemoryGiB = knownSize(gpu.MemoryGiB)
	if !gpuForm.MatchString(gpu.Model) {
		gpu.Model, _ = NormalizeGPU(gpu.Model)
	}
	o.GPU = &gpu
	return gpu.Count > 0 && gpu.Count <= maxGPUs && (gpu.MemoryGiB == nil || *gpu.MemoryGiB <= maxMemoryGiB)
}

// fixPrice takes a price without a figure for none.
func fixPrice(o *model.Offer) bool {
	if o.Price == nil {
		return true
	}
	p := *o.Price
	for _, figure := range []*string{p.Hourly, p.Monthly, p.Setup} {
		if figure != nil && !decimalForm.MatchString(*figure) {
			return false
		}
	}
	if !currency.MatchString(p.Currency) {
		return false
	}
	o.Price = &p
	if p.Hourly == nil && p.Monthly == nil && p.Setup == nil {
		o.Price = nil
	}
	return true
}

// CheckMachines does for machines what CheckOffers does for offers, and sorts them by id.
func CheckMachines(machines []*model.Machine) ([]*model.Machine, error) {
	if len(machines) > maxListed {
		return nil, Errorf(InvalidResponse, "The provider listed more than %d machines.", maxListed)
	}
	checked := make([]*model.Machine, 0, len(machines))
	seen := make(map[string]bool, len(machines))
	for i, m := range machines {
		if m == nil || !itemID.MatchString(m.ID) {
			return nil, Errorf(InvalidResponse, "Machine %d of the provider has no usable id.", i)
		}
		if seen[m.ID] {
			return nil, Errorf(InvalidResponse, "The provider listed machine %s twice.", m.ID)
		}
		seen[m.ID] = true
		if m.Kind != model.Metal && m.Kind != model.VPS {
			return nil, Errorf(InvalidResponse, "The provider's machine %s has an implausible kind.", m.ID)
		}
		checked = append(checked, fixedMachine(m))
	}
	slices.SortFunc(checked, func(a, b *model.Machine) int { return strings.Compare(a.ID, b.ID) })
	return checked, nil
}

func fixedMachine(m *model.Machine) *model.Machine {
	c := *m
	c.Name = clean(c.Name, maxName)
	c.Region = strings.ToLower(clean(c.Region, maxName))
	c.Status = clean(c.Status, maxName)
	c.Addresses = []string{}
	for _, a := range m.Addresses[:min(len(m.Addresses), maxAddresses)] {
		if ip, err := netip.ParseAddr(a); err == nil {
			c.Addresses = append(c.Addresses, ip.String())
		}
	}
	if c.OfferID != nil && !itemID.MatchString(*c.OfferID) {
		c.OfferID = nil
	}
	return &c
}
