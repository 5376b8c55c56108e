package openstack

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// Check asks for one server.
func (c *client) Check(ctx context.Context) error {
	var body struct {
		Servers *[]struct{} `json:"servers"`
	}
	if err := c.get(ctx, "servers?limit=1", &body); err != nil {
		return err
	}
	if body.Servers == nil {
		return c.vendor.Errorf(provider.InvalidResponse)
	}
	return nil
}

// flavor is what can be ordered. Its name is as unique as its id, and is all that servers tell of it.
type flavor struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	VCPUs int    `json:"vcpus"`
	RAM   int    `json:"ram"`  // MiB
	Disk  int    `json:"disk"` // GiB; 0 is as large as the image
	Specs specs  `json:"extra_specs"`
}

func (f flavor) id() string { return f.ID }

// specs are what the operator of the cloud says of a flavor to Nova's scheduler. Not every cloud shows them.
type specs map[string]any

func (s specs) text(key string) string {
	text, _ := s[key].(string)
	return text
}

// kind: a flavor of Ironic's nodes asks for one of a resource class, and for no virtual CPU.
func (s specs) kind() model.MachineKind {
	if s.text("resources:VCPU") != "0" {
		return model.VPS
	}
	for key := range s {
		if strings.HasPrefix(key, "resources:CUSTOM_") {
			return model.Metal
		}
	}
	return model.VPS
}

// Offers lists the flavors. Nova tells nothing of prices and stock.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	flavors, err := list[flavor](ctx, c, "flavors")
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[string]bool{}
	for _, f := range flavors {
		if f.ID == "" || f.Name == "" || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		offers = append(offers, c.offer(f, now))
	}
	return offers, nil
}

func (c *client) offer(f flavor, now model.Time) *model.Offer {
	return &model.Offer{
		ID: c.offerID(f.Name), Kind: f.Specs.kind(), Region: strings.ToLower(c.config.Region), ProviderRegion: c.config.Region, Name: f.Name,
		VCPU: positive(f.VCPUs), MemoryGiB: gib(f.RAM), Disks: disksOf(f.Disk), GPU: gpuOf(f.Specs), Price: c.price(f.Name),
		Availability: model.AvailabilityUnknown, ObservedAt: now,
	}
}

func (c *client) offerID(flavorName string) string {
	return provider.OfferID(flavorName, c.config.Region)
}

func (c *client) price(flavorName string) *model.Price {
	i := slices.IndexFunc(c.config.Prices, func(p price) bool { return p.Flavor == flavorName })
	if i < 0 {
		return nil
	}
	return provider.NewPrice(c.config.Prices[i].Currency, c.config.Prices[i].Hourly, c.config.Prices[i].Monthly)
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

// disksOf counts in GiB, as Nova does.
func disksOf(gib int) []*model.Disk {
	if gib <= 0 {
		return []*model.Disk{}
	}
	return []*model.Disk{{SizeGB: int64(gib), Count: 1, Media: "unknown"}}
}

var vgpu = regexp.MustCompile(`\Aresources[A-Za-z0-9_-]*:VGPU\z`)

// gpuOf reads the devices that are passed through, whose aliases the operator chooses (`h100:8`), or the shares of a GPU, whose model a
// trait may tell. An alias that names no GPU that we know, and does not call itself one, is another device.
func gpuOf(s specs) *model.GPU {
	for device := range strings.SplitSeq(s.text("pci_passthrough:alias"), ",") {
		alias, number, _ := strings.Cut(strings.TrimSpace(device), ":")
		count := gpuCount(number)
		name, maker := provider.NormalizeGPU(alias)
		if count > 0 && name != "" && (maker != "" || strings.Contains(strings.ToLower(alias), "gpu")) {
			return &model.GPU{Model: name, Vendor: maker, Count: count}
		}
	}
	shares := 0
	for key := range s {
		if vgpu.MatchString(key) {
			shares += gpuCount(s.text(key))
		}
	}
	if shares == 0 {
		return nil
	}
	name, maker := modelInTraits(s)
	return &model.GPU{Model: name, Vendor: maker, Count: shares}
}

// modelInTraits finds the model of a shared GPU among the traits that the flavor requires: trait:CUSTOM_NVIDIA_L40S.
func modelInTraits(s specs) (name, maker string) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		trait, isTrait := strings.CutPrefix(key, "trait:CUSTOM_")
		if !isTrait || s.text(key) != "required" {
			continue
		}
		if name, maker := provider.NormalizeGPU(strings.ReplaceAll(trait, "_", " ")); maker != "" && name != "" {
			return name, maker
		}
	}
	return "VGPU", ""
}

func gpuCount(text string) int {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > 1024 {
		return 0
	}
	return n
}

// operationKey is the metadata item that names the operation that ordered a server. It is no tag, since those have at most 60 characters.
const operationKey = "bcd-operation"

// server is a machine.
type server struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	// TaskState is what is being done with it. The status lags behind: a server that is being rebuilt may be ACTIVE still.
	TaskState string `json:"OS-EXT-STS:task_state"`
	// LaunchedAt is empty until it has been made.
	LaunchedAt string                     `json:"OS-SRV-USG:launched_at"`
	Locked     bool                       `json:"locked"`
	Metadata   map[string]any             `json:"metadata"`
	Addresses  map[string]json.RawMessage `json:"addresses"` // by network
	Flavor     struct {
		Name  string `json:"original_name"`
		VCPUs int    `json:"vcpus"`
		RAM   int    `json:"ram"`
		Disk  int    `json:"disk"`
		Specs specs  `json:"extra_specs"`
	} `json:"flavor"`
	Fault struct {
		Message string `json:"message"`
	} `json:"fault"`
}

func (s server) id() string { return s.ID }

// operation is the one that ordered the server; empty when none did.
func (s server) operation() string {
	text, _ := s.Metadata[operationKey].(string)
	return text
}

// isGone: Nova shows what is being deleted until it is.
func (s server) isGone() bool {
	return s.Status == "DELETED" || s.Status == "SOFT_DELETED" || s.TaskState == "deleting" || s.TaskState == "soft-deleting"
}

func (s server) isBeingMade() bool {
	return s.Status == "BUILD" || s.LaunchedAt == "" && s.Status != statusError
}

// isFailure: it never was, and never will be.
func (s server) isFailure() bool { return s.Status == statusError && s.LaunchedAt == "" }

const (
	statusActive = "ACTIVE"
	statusOff    = "SHUTOFF"
	statusError  = "ERROR"
)

var serverID = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)

// servers lists those that are there.
func (c *client) servers(ctx context.Context) ([]server, error) {
	all, err := list[server](ctx, c, "servers")
	return slices.DeleteFunc(all, func(s server) bool { return s.isGone() || !serverID.MatchString(s.ID) }), err
}

// Machines lists the project's servers.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	all, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	machines := []*model.Machine{}
	for _, s := range all {
		m := &model.Machine{
			ID: s.ID, Name: s.Name, Kind: s.Flavor.Specs.kind(), Region: strings.ToLower(c.config.Region),
			Status: strings.ToLower(cmp.Or(s.Status, "unknown")), Addresses: s.addresses(),
		}
		if s.Flavor.Name != "" {
			m.OfferID = new(c.offerID(s.Flavor.Name))
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// addresses are those of all networks, in an order that stays.
func (s server) addresses() []string {
	addresses := []string{}
	for _, text := range s.Addresses {
		var inNetwork []struct {
			Addr string `json:"addr"`
		}
		if json.Unmarshal(text, &inNetwork) != nil {
			continue
		}
		for _, a := range inNetwork {
			if ip, err := netip.ParseAddr(a.Addr); err == nil {
				addresses = append(addresses, ip.String())
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}
