package scaleway

import (
	"cmp"
	"context"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// virtual is the half of a client that is about instances, which are virtual; nil where the account's config has no image for them. Their systems are
// on block volumes, which are things of their own.
type virtual struct {
	*client
	zones []scw.Zone
}

func newVirtual(c *client, chosen []scw.Zone) *virtual {
	if c.config.InstanceImage == "" {
		return nil
	}
	zones := (*instance.API)(nil).Zones()
	if len(chosen) > 0 { // and not each has both
		zones = slices.DeleteFunc(zones, func(z scw.Zone) bool { return !slices.Contains(chosen, z) })
		metal := (*baremetal.API)(nil).Zones()
		c.config.Zones = slices.DeleteFunc(slices.Clone(chosen), func(z scw.Zone) bool { return slices.Contains(zones, z) && !slices.Contains(metal, z) })
	}
	return &virtual{c, zones}
}

func (v *virtual) check(ctx context.Context) error {
	return v.read(ctx, func(a apis, o scw.RequestOption) error {
		_, err := a.compute.ListServers(&instance.ListServersRequest{Zone: v.zones[0], Project: &v.config.ProjectID, PerPage: new(uint32(1))}, o)
		return err
	})
}

// apis are what the SDK has for instances.
type apis struct {
	compute *instance.API
	images  *marketplace.API
	volumes *block.API
}

type virtualCall = func(apis, scw.RequestOption) error

func (v *virtual) read(ctx context.Context, calls virtualCall) error {
	return v.vendor.Read(ctx, func(ctx context.Context) error { return v.with(ctx, calls) })
}

func (v *virtual) change(ctx context.Context, call virtualCall) error {
	return v.vendor.Change(ctx, func(ctx context.Context) error { return v.with(ctx, call) })
}

func (v *virtual) with(ctx context.Context, calls virtualCall) error {
	return v.using(ctx, func(sdk *scw.Client, o scw.RequestOption) error {
		return calls(apis{instance.NewAPI(sdk), marketplace.NewAPI(sdk), block.NewAPI(sdk)}, o)
	})
}

// kind is an instance type in a zone.
type kind struct {
	name  string
	zone  scw.Zone
	about *instance.ServerType
	stock instance.ServerTypesAvailability
}

func (k kind) offerID() string { return provider.OfferID(k.name, k.zone.String()) }

// kinds lists the types of the zones that can start from a block volume and run a free system.
func (v *virtual) kinds(ctx context.Context, zones []scw.Zone) ([]kind, error) {
	all := []kind{}
	err := v.read(ctx, func(a apis, o scw.RequestOption) error {
		for _, zone := range zones {
			sold, err := v.typesIn(a, o, zone)
			if err != nil {
				return err
			}
			stock, err := v.stockIn(a, o, zone)
			if err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(sold)) {
				if k := (kind{name, zone, sold[name], stock[name]}); k.isOrdered() {
					all = append(all, k)
				}
			}
		}
		return nil
	})
	return all, err
}

// named is an entry of a list that Scaleway keys by name.
type named[T any] struct {
	name string
	item T
}

func entries[T any](m map[string]T) []*named[T] {
	if m == nil {
		return nil
	}
	list := make([]*named[T], 0, len(m))
	for name, item := range m {
		list = append(list, &named[T]{name, item})
	}
	return list
}

func byName[T any](list []*named[T]) map[string]T {
	m := map[string]T{}
	for _, n := range list {
		m[n.name] = n.item
	}
	return m
}

func (v *virtual) typesIn(a apis, o scw.RequestOption, zone scw.Zone) (map[string]*instance.ServerType, error) {
	list, err := pages(v.client, func(page *int32, size *uint32) ([]*named[*instance.ServerType], uint32, error) {
		r, err := a.compute.ListServersTypes(&instance.ListServersTypesRequest{Zone: zone, Page: page, PerPage: size}, o)
		if err != nil {
			return nil, 0, err
		}
		return entries(r.Servers), r.TotalCount, nil
	})
	return byName(list), err
}

func (v *virtual) stockIn(a apis, o scw.RequestOption, zone scw.Zone) (map[string]instance.ServerTypesAvailability, error) {
	list, err := pages(v.client, func(page *int32, size *uint32) ([]*named[*instance.GetServerTypesAvailabilityResponseAvailability], uint32, error) {
		r, err := a.compute.GetServerTypesAvailability(&instance.GetServerTypesAvailabilityRequest{Zone: zone, Page: page, PerPage: size}, o)
		if err != nil {
			return nil, 0, err
		}
		return entries(r.Servers), r.TotalCount, nil
	})
	stock := map[string]instance.ServerTypesAvailability{}
	for name, told := range byName(list) {
		if told != nil {
			stock[name] = told.Availability
		}
	}
	return stock, err
}

var instanceArches = map[instance.Arch]string{instance.ArchX86_64: "amd64", instance.ArchArm64: "arm64"}

// isOrdered leaves out what ends, what runs Windows, and what there is no agent or no block volume for.
func (k kind) isOrdered() bool {
	t := k.about
	return k.name != "" && t != nil && !t.EndOfService && instanceArches[t.Arch] != "" && !strings.Contains(k.name, "WIN") &&
		t.Capabilities != nil && t.Capabilities.BlockStorage != nil && *t.Capabilities.BlockStorage
}

func (k kind) offer(now model.Time) *model.Offer {
	zone := k.zone.String()
	arch := instanceArches[k.about.Arch]
	o := &model.Offer{
		ID: k.offerID(), Kind: model.VPS, Region: zone, ProviderRegion: zone, Name: k.name, Arch: &arch, Disks: []*model.Disk{}, GPU: k.gpu(),
		Price: provider.NewPrice("EUR", perHour(k.about.HourlyPrice), ""), Availability: k.availability(), ObservedAt: now,
	}
	if n := k.about.Ncpus; n > 0 && n < 1<<16 {
		o.VCPU = new(int(n))
	}
	if gib := float64(k.about.RAM) / (1 << 30); gib > 0 && gib < 1<<20 {
		o.MemoryGiB = &gib
	}
	return o
}

func (k kind) availability() model.Availability {
	switch k.stock {
	case instance.ServerTypesAvailabilityAvailable:
		return model.Available
	case instance.ServerTypesAvailabilityScarce:
		return model.Limited
	case instance.ServerTypesAvailabilityShortage:
		return model.OutOfStock
	}
	return model.AvailabilityUnknown
}

// gpu tells no size where it is of several GPUs' parts.
func (k kind) gpu() *model.GPU {
	n, info := k.about.Gpu, k.about.GpuInfo
	if n == nil || *n == 0 || *n > 1024 || info == nil || info.GpuName == "" {
		return nil
	}
	gpu := &model.GPU{Count: int(*n), MemoryGiB: vramOf(uint64(info.GpuMemory))}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(info.GpuManufacturer + " " + info.GpuName)
	return gpu
}

// perHour writes a price as Scaleway did, before it was a float32.
func perHour(price float32) string {
	if !(price > 0 && price < 1e6) {
		return ""
	}
	return strconv.FormatFloat(float64(price), 'f', -1, 32)
}

func (v *virtual) offers(ctx context.Context, now model.Time) ([]*model.Offer, error) {
	kinds, err := v.kinds(ctx, v.zones)
	offers := make([]*model.Offer, 0, len(kinds))
	for _, k := range kinds {
		offers = append(offers, k.offer(now))
	}
	return offers, err
}

// instances reads every page of the project's instances in each zone, and each instance once.
func (v *virtual) instances(ctx context.Context, tag string) ([]*instance.Server, error) {
	servers := []*instance.Server{}
	seen := map[string]bool{}
	err := v.read(ctx, func(a apis, o scw.RequestOption) error {
		for _, zone := range v.zones {
			listed, err := pages(v.client, func(page *int32, size *uint32) ([]*instance.Server, uint32, error) {
				in := &instance.ListServersRequest{Zone: zone, Project: &v.config.ProjectID, Page: page, PerPage: size}
				if tag != "" {
					in.Tags = []string{tag}
				}
				r, err := a.compute.ListServers(in, o)
				if err != nil {
					return nil, 0, err
				}
				return r.Servers, r.TotalCount, nil
			})
			if err != nil {
				return err
			}
			for _, s := range listed {
				s.Zone = zone // as it was asked for
				if isUUID(s.ID) && !seen[s.ID] && s.Project == v.config.ProjectID {
					seen[s.ID] = true
					servers = append(servers, s)
				}
			}
		}
		return nil
	})
	return servers, err
}

func (v *virtual) machines(ctx context.Context) ([]*model.Machine, error) {
	servers, err := v.instances(ctx, "")
	machines := make([]*model.Machine, 0, len(servers))
	for _, s := range servers {
		m := &model.Machine{
			ID: instanceID(s), Name: s.Name, Kind: model.VPS, Region: s.Zone.String(), Status: cmp.Or(string(s.State), "unknown"), Addresses: instanceAddresses(s),
		}
		if s.CommercialType != "" {
			m.OfferID = new(provider.OfferID(s.CommercialType, s.Zone.String()))
		}
		machines = append(machines, m)
	}
	return machines, err
}

// instanceAddresses is addressesOf, of an instance.
func instanceAddresses(s *instance.Server) []string {
	ips := make([]net.IP, 0, len(s.PublicIPs))
	for _, ip := range s.PublicIPs {
		if ip != nil {
			ips = append(ips, ip.Address)
		}
	}
	return foursFirst(ips)
}

const instancePrefix = "instance:"

var instanceForm = regexp.MustCompile(`\Ainstance:([a-z]{2}-[a-z]{3}-[1-9]):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\z`)

// instanceID has the zone in it, without which Scaleway finds no server.
func instanceID(s *instance.Server) string { return instancePrefix + s.Zone.String() + ":" + s.ID }

// isInstance reports whether a machine's id is of an instance, and the account has those.
func (c *client) isInstance(machineID string) bool {
	return c.virtual != nil && instanceForm.MatchString(machineID)
}

// instance reads one instance by our id, and makes sure that the answer is about it and that it is the project's.
func (v *virtual) instance(ctx context.Context, machineID string) (s *instance.Server, err error) {
	m := instanceForm.FindStringSubmatch(machineID)
	if m == nil {
		return nil, v.vendor.Errorf(provider.NotFound)
	}
	err = v.read(ctx, func(a apis, o scw.RequestOption) error {
		r, err := a.compute.GetServer(&instance.GetServerRequest{Zone: scw.Zone(m[1]), ServerID: m[2]}, o)
		if err == nil {
			s = r.Server
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s == nil || s.ID != m[2] || s.State == "":
		return nil, v.vendor.Errorf(provider.InvalidResponse)
	case s.Project != v.config.ProjectID:
		return nil, v.vendor.Errorf(provider.NotFound)
	}
	s.Zone = scw.Zone(m[1])
	return s, nil
}

// up is an instance that runs and has an address.
func (v *virtual) up(ctx context.Context, machineID string) (*instance.Server, error) {
	s, err := v.instance(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case s.State != instance.ServerStateRunning || len(instanceAddresses(s)) == 0:
		return nil, provider.Errorf(provider.Unavailable, "The instance at %s does not run: its state is %q.", vendorName, s.State)
	}
	return s, nil
}

func (v *virtual) identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	s, err := v.up(ctx, machineID)
	if err != nil {
		return nil, err
	}
	pin, err := v.Fingerprint(ctx, machineID, instanceOperation(s))
	if err != nil {
		return nil, err
	}
	return &provider.Identity{Addresses: instanceAddresses(s), SSHHostKey: pin, Arch: instanceArches[s.Arch]}, nil
}

func (v *virtual) find(ctx context.Context, machineID string) (ssh.Found, error) {
	s, err := v.up(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	return ssh.Found{Address: instanceAddresses(s)[0], OperationID: instanceOperation(s), Kind: model.VPS}, nil
}
