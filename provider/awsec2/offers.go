package awsec2

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

// Offers lists the types that the zone of the account's subnet has and the account has an image for, with the price on demand where the account may
// ask for it. Nobody tells the stock.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	sold, err := c.soldInZone(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.types(ctx, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100)})
	if err != nil {
		return nil, err
	}
	hourly := c.hourly(ctx)
	now := model.NewTime(time.Now())
	offers := []*model.Offer{}
	seen := map[types.InstanceType]bool{} // a list that moved between two pages tells an item twice
	for i := range all {
		t := &all[i]
		arch := c.archOf(t)
		if !sold[t.InstanceType] || seen[t.InstanceType] || t.InstanceType == "" || arch == "" || !isOrdered(t) {
			continue
		}
		seen[t.InstanceType] = true
		o := c.offerOf(t, arch, now)
		o.Price = provider.NewPrice(c.market.currency, hourly[o.Name], "")
		offers = append(offers, o)
	}
	return offers, nil
}

// soldInZone is the types that the zone of the account's subnet has.
func (c *client) soldInZone(ctx context.Context) (map[types.InstanceType]bool, error) {
	sold := map[types.InstanceType]bool{}
	err := c.read(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		subnets, err := sdk.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{c.config.SubnetID}})
		if err != nil {
			return err
		}
		if len(subnets.Subnets) != 1 || aws.ToString(subnets.Subnets[0].AvailabilityZone) == "" {
			return errNoList
		}
		zone := aws.ToString(subnets.Subnets[0].AvailabilityZone)
		offerings, err := vendor.Cursors(c.vendor, func(cursor string) ([]types.InstanceTypeOffering, string, error) {
			out, err := sdk.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{
				LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{{Name: aws.String("location"), Values: []string{zone}}},
				MaxResults: aws.Int32(1000), NextToken: optional(cursor),
			})
			if err == nil && out.InstanceTypeOfferings == nil {
				err = errNoList
			}
			if err != nil {
				return nil, "", err
			}
			return out.InstanceTypeOfferings, aws.ToString(out.NextToken), nil
		})
		for _, o := range offerings {
			sold[o.InstanceType] = sold[o.InstanceType] || aws.ToString(o.Location) == zone
		}
		return err
	})
	return sold, err
}

// types reads every page of the types that are asked for.
func (c *client) types(ctx context.Context, in *ec2.DescribeInstanceTypesInput) (all []types.InstanceTypeInfo, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		all, err = vendor.Cursors(c.vendor, func(cursor string) ([]types.InstanceTypeInfo, string, error) {
			in.NextToken = optional(cursor)
			out, err := sdk.DescribeInstanceTypes(ctx, in)
			if err == nil && out.InstanceTypes == nil {
				err = errNoList
			}
			if err != nil {
				return nil, "", err
			}
			return out.InstanceTypes, aws.ToString(out.NextToken), nil
		})
		return err
	})
	return all, err
}

// typeOf reads one type.
func (c *client) typeOf(ctx context.Context, name types.InstanceType) (*types.InstanceTypeInfo, error) {
	found, err := c.types(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{name}})
	if err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].InstanceType == name {
			return &found[i], nil
		}
	}
	return nil, c.vendor.Errorf(provider.InvalidResponse)
}

// isOrdered leaves out what only a reservation buys, and what starts from no volume.
func isOrdered(t *types.InstanceTypeInfo) bool {
	return slices.Contains(t.SupportedUsageClasses, types.UsageClassTypeOnDemand) && slices.Contains(t.SupportedRootDeviceTypes, types.RootDeviceTypeEbs)
}

// arches are EC2's names of architectures that there is an agent for.
var arches = map[types.ArchitectureType]string{types.ArchitectureTypeX8664: "amd64", types.ArchitectureTypeArm64: "arm64"}

// archOf is the architecture of a type that the account has an image for; empty when it has none.
func (c *client) archOf(t *types.InstanceTypeInfo) string {
	if t.ProcessorInfo == nil {
		return ""
	}
	for _, a := range t.ProcessorInfo.SupportedArchitectures {
		if arch := arches[a]; arch != "" && c.config.Images[arch] != "" {
			return arch
		}
	}
	return ""
}

func (c *client) offerOf(t *types.InstanceTypeInfo, arch string, now model.Time) *model.Offer {
	return &model.Offer{
		ID: provider.OfferID(string(t.InstanceType), c.config.Region), Kind: kindOf(aws.ToBool(t.BareMetal)), Region: c.config.Region,
		ProviderRegion: c.config.Region, Name: string(t.InstanceType), Arch: &arch, VCPU: vcpuOf(t), MemoryGiB: gib(memoryOf(t)), Disks: disksOf(t),
		GPU: gpuOf(t.GpuInfo), Availability: model.AvailabilityUnknown, ObservedAt: now,
	}
}

func kindOf(isMetal bool) model.MachineKind {
	if isMetal {
		return model.Metal
	}
	return model.VPS
}

func vcpuOf(t *types.InstanceTypeInfo) *int {
	if t.VCpuInfo == nil || aws.ToInt32(t.VCpuInfo.DefaultVCpus) <= 0 {
		return nil
	}
	return new(int(*t.VCpuInfo.DefaultVCpus))
}

// memoryOf is in MiB; 0 when it is not known.
func memoryOf(t *types.InstanceTypeInfo) int64 {
	if t.MemoryInfo == nil {
		return 0
	}
	return max(aws.ToInt64(t.MemoryInfo.SizeInMiB), 0)
}

func gib(mib int64) *float64 {
	if mib <= 0 {
		return nil
	}
	return new(float64(mib) / 1024)
}

// disksOf is the disks that come with a type. The volume that the system is on is the image's, or as large as the account's config says.
func disksOf(t *types.InstanceTypeInfo) []*model.Disk {
	disks := []*model.Disk{}
	if t.InstanceStorageInfo == nil {
		return disks
	}
	for _, d := range t.InstanceStorageInfo.Disks {
		size, count := aws.ToInt64(d.SizeInGB), aws.ToInt32(d.Count)
		if size <= 0 || count <= 0 {
			continue
		}
		media := "ssd"
		if d.Type == types.DiskTypeHdd {
			media = "hdd"
		}
		disks = append(disks, &model.Disk{SizeGB: size, Count: int(count), Media: media})
	}
	return disks
}

// gpuOf takes the first kind of GPU of a type, of which no type has two. Parts of a GPU are counted as none.
func gpuOf(info *types.GpuInfo) *model.GPU {
	if info == nil || len(info.Gpus) == 0 {
		return nil
	}
	g := info.Gpus[0]
	if aws.ToInt32(g.Count) <= 0 || aws.ToString(g.Name) == "" || g.GpuPartitionSize != nil && *g.GpuPartitionSize < 1 {
		return nil
	}
	gpu := &model.GPU{Count: int(*g.Count)}
	spelled := aws.ToString(g.Manufacturer) + " " + *g.Name
	if g.MemoryInfo != nil && aws.ToInt32(g.MemoryInfo.SizeInMiB) > 0 {
		gpu.MemoryGiB = gib(int64(*g.MemoryInfo.SizeInMiB))
		if *g.Name == "A100" || *g.Name == "V100" { // which are sold with two sizes, and EC2 names them alike
			spelled += " " + strconv.Itoa(int(*g.MemoryInfo.SizeInMiB)/1024) + "GB"
		}
	}
	gpu.Model, gpu.Vendor = provider.NormalizeGPU(spelled)
	return gpu
}

// Machines lists the region's instances, without those that are terminated, which EC2 shows for an hour.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	instances, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(instances))
	for i := range instances {
		if !isGone(&instances[i]) {
			machines = append(machines, c.machineOf(&instances[i]))
		}
	}
	return machines, nil
}

func (c *client) machineOf(i *types.Instance) *model.Machine {
	m := &model.Machine{
		ID: aws.ToString(i.InstanceId), Name: aws.ToString(i.InstanceId), Kind: kindOf(isMetal(i.InstanceType)), Region: c.config.Region,
		Status: cmp.Or(string(stateOf(i)), "unknown"), Addresses: addressesOf(i),
	}
	for _, tag := range i.Tags {
		if aws.ToString(tag.Key) == "Name" && aws.ToString(tag.Value) != "" {
			m.Name = *tag.Value
		}
	}
	if i.InstanceType != "" {
		m.OfferID = new(provider.OfferID(string(i.InstanceType), c.config.Region))
	}
	return m
}

// addressesOf gives the public addresses first.
func addressesOf(i *types.Instance) []string {
	addresses := []string{}
	for _, text := range []*string{i.PublicIpAddress, i.Ipv6Address, i.PrivateIpAddress} {
		if ip, err := netip.ParseAddr(aws.ToString(text)); err == nil {
			addresses = append(addresses, ip.String())
		}
	}
	return addresses
}

// instances reads every page, and each instance once. It leaves out what has no id of an instance.
func (c *client) instances(ctx context.Context, filters ...types.Filter) (instances []types.Instance, err error) {
	seen := map[string]bool{}
	err = c.read(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		reservations, err := vendor.Cursors(c.vendor, func(cursor string) ([]types.Reservation, string, error) {
			out, err := sdk.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: aws.Int32(1000), NextToken: optional(cursor)})
			if err == nil && out.Reservations == nil {
				err = errNoList
			}
			if err != nil {
				return nil, "", err
			}
			return out.Reservations, aws.ToString(out.NextToken), nil
		})
		for _, r := range reservations {
			for _, i := range r.Instances {
				if id := aws.ToString(i.InstanceId); isInstanceID(id) && !seen[id] {
					seen[id] = true
					instances = append(instances, i)
				}
			}
		}
		return err
	})
	return instances, err
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
