package ironic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

const perPage = 500

// Check asks for one node.
func (c *client) Check(ctx context.Context) error {
	return c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		_, _, err := page(ctx, nodes.List(sdk, nodes.ListOpts{Limit: 1}), nodes.ExtractNodes)
		return err
	})
}

// page reads the first page that a pager leads to, and the marker of the next. The link to the next is not followed: it has the host that
// Ironic takes for its own.
func page[T any](ctx context.Context, pager pagination.Pager, extract func(pagination.Page) ([]T, error)) (items []T, marker string, err error) {
	err = pager.EachPage(ctx, func(_ context.Context, p pagination.Page) (bool, error) {
		if items, err = extract(p); err != nil {
			return false, err
		}
		next, err := p.NextPageURL()
		if err != nil || next == "" {
			return false, err
		}
		link, err := url.Parse(next)
		if err != nil {
			return false, fmt.Errorf("reading the link to the next page: %w", err)
		}
		if marker = link.Query().Get("marker"); marker == "" {
			return false, errors.New("the link to the next page has no marker")
		}
		return false, nil
	})
	return items, marker, err
}

// nodes reads every node, each once.
func (c *client) nodes(ctx context.Context) (all []nodes.Node, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		all, err = vendor.Cursors(c.vendor, func(marker string) ([]nodes.Node, string, error) {
			return page(ctx, nodes.ListDetail(sdk, nodes.ListOpts{Limit: perPage, Marker: marker}), nodes.ExtractNodes)
		})
		return err
	})
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	return slices.DeleteFunc(all, func(n nodes.Node) bool {
		twice := seen[n.UUID] || !isNodeID(n.UUID)
		seen[n.UUID] = true
		return twice
	}), err
}

var nodeID = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)

func isNodeID(id string) bool { return nodeID.MatchString(id) }

// Offers lists each resource class that some node has.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	all, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	var classes []string
	of := map[string][]nodes.Node{}
	for _, n := range all {
		if n.ResourceClass == "" {
			continue
		}
		if of[n.ResourceClass] == nil {
			classes = append(classes, n.ResourceClass)
		}
		of[n.ResourceClass] = append(of[n.ResourceClass], n)
	}
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	for _, class := range classes {
		offers = append(offers, c.offer(class, of[class], now))
	}
	return offers, nil
}

func (c *client) offer(class string, members []nodes.Node, now model.Time) *model.Offer {
	common := factsOf(members[0])
	availability := model.OutOfStock
	for _, n := range members {
		common = common.and(factsOf(n))
		if isFree(n) {
			availability = model.Available
		}
	}
	return &model.Offer{
		ID: provider.OfferID(class, c.config.Region), Kind: model.Metal, Region: c.config.Region, ProviderRegion: c.config.Region, Name: class,
		Arch: known(common.arch), VCPU: known(int(common.cpus)), MemoryGiB: known(float64(common.memoryMiB) / 1024),
		Disks: common.disks(), GPU: common.gpu(), Price: c.price(class), Availability: availability, ObservedAt: now,
	}
}

// isFree is what Ironic asks of a node before it allocates it. One whose power state it does not know is never taken.
func isFree(n nodes.Node) bool {
	return n.ProvisionState == string(nodes.Available) && !n.Maintenance && n.InstanceUUID == "" && n.PowerState != ""
}

func (c *client) price(class string) *model.Price {
	i := slices.IndexFunc(c.config.Prices, func(p price) bool { return p.ResourceClass == class })
	if i < 0 {
		return nil
	}
	return provider.NewPrice(c.config.Prices[i].Currency, c.config.Prices[i].Hourly, c.config.Prices[i].Monthly)
}

// facts are what Ironic's inspection, or a person, wrote into a node's properties. Zero is unknown.
type facts struct {
	arch            string
	cpus, memoryMiB int64
	diskGB          int64
	gpuName         string
	gpus            int64
}

func factsOf(n nodes.Node) facts {
	text := func(name string) string { s, _ := n.Properties[name].(string); return s }
	f := facts{
		arch: archOf(text("cpu_arch")), cpus: number(n.Properties["cpus"], 1<<20), memoryMiB: number(n.Properties["memory_mb"], 1<<30),
		diskGB: number(n.Properties["local_gb"], 1<<30),
	}
	for capability := range strings.SplitSeq(text("capabilities"), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(capability), ":")
		switch key {
		case "gpu_model":
			f.gpuName = value
		case "gpu_count":
			f.gpus = number(value, 1<<10)
		}
	}
	accelerators, _ := n.Properties["accelerators"].([]any)
	if f.gpuName == "" {
		f.gpuName, f.gpus = inspectedGPUs(accelerators)
	}
	return f
}

// inspectedGPUs reads what the inspection hook for accelerators writes. Nodes with several kinds are told as having none.
func inspectedGPUs(accelerators []any) (name string, count int64) {
	for _, a := range accelerators {
		a, _ := a.(map[string]any)
		info, _ := a["device_info"].(string)
		switch {
		case a["type"] != "GPU" || info == "":
		case name != "" && name != info:
			return "", 0
		default:
			name = info
			count++
		}
	}
	return name, count
}

func archOf(cpuArch string) string {
	switch cpuArch {
	case "x86_64", "amd64":
		return "amd64"
	case "aarch64", "arm64":
		return "arm64"
	}
	return ""
}

// number reads a property, which is a number or the text of one; 0 when it is neither or not from 1 to the most that makes sense.
func number(v any, most int64) int64 {
	var n float64
	switch v := v.(type) {
	case float64:
		n = v
	case string:
		n, _ = strconv.ParseFloat(v, 64)
	}
	if !(n >= 1 && n <= float64(most)) {
		return 0
	}
	return int64(math.Floor(n))
}

// and keeps what both are alike in: of a class whose nodes differ nobody knows which one comes.
func (f facts) and(other facts) facts {
	if f.gpuName != other.gpuName || f.gpus != other.gpus {
		f.gpuName, f.gpus = "", 0
	}
	return facts{
		arch: same(f.arch, other.arch), cpus: same(f.cpus, other.cpus), memoryMiB: same(f.memoryMiB, other.memoryMiB),
		diskGB: same(f.diskGB, other.diskGB), gpuName: f.gpuName, gpus: f.gpus,
	}
}

func same[T comparable](a, b T) (value T) {
	if a == b {
		return a
	}
	return value
}

func known[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// disks knows of the disk that the image goes to alone.
func (f facts) disks() []*model.Disk {
	if f.diskGB == 0 {
		return []*model.Disk{}
	}
	return []*model.Disk{{SizeGB: f.diskGB, Count: 1, Media: "unknown"}}
}

func (f facts) gpu() *model.GPU {
	if f.gpuName == "" || f.gpus == 0 {
		return nil
	}
	name, maker := provider.NormalizeGPU(f.gpuName)
	return &model.GPU{Model: name, Vendor: maker, Count: int(f.gpus)}
}

// Machines lists every node. Ironic by itself does not know their addresses.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	all, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	machines := []*model.Machine{}
	for _, n := range all {
		m := &model.Machine{
			ID: n.UUID, Name: n.Name, Kind: model.Metal, Region: c.config.Region, Status: n.ProvisionState, Addresses: []string{},
		}
		if m.Status == "" {
			m.Status = "unknown"
		}
		if n.ResourceClass != "" {
			m.OfferID = new(provider.OfferID(n.ResourceClass, c.config.Region))
		}
		machines = append(machines, m)
	}
	return machines, nil
}
