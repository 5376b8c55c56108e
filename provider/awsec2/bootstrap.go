package awsec2

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the instance's id, which EC2 gives out once.
func (c *client) MachineKey(machineID string) (string, error) {
	if !isInstanceID(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the instance is. It has no serial number: what an instance reads of itself there is another id, which the API does not
// tell. Its host key is what it is known by.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if isNew(i) {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	pin, err := c.Fingerprint(ctx, machineID, operationOf(i))
	if err != nil {
		return nil, err
	}
	t, err := c.typeOf(ctx, i.InstanceType)
	if err != nil {
		return nil, err
	}
	identity := &provider.Identity{
		Addresses: addressesOf(i), SSHHostKey: pin, Arch: arches[types.ArchitectureType(i.Architecture)], MemoryMiB: memoryOf(t), Disks: disksOf(t),
	}
	if cpus := vcpuOf(t); cpus != nil {
		identity.CPUs = *cpus
	}
	if gpu := gpuOf(t.GpuInfo); gpu != nil {
		identity.GPUs = []*model.GPU{gpu}
	}
	return identity, nil
}

// find is where ssh.Fleet logs in.
func (c *client) find(ctx context.Context, machineID string) (ssh.Found, error) {
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	if isNew(i) {
		return ssh.Found{}, provider.Errorf(provider.Unavailable, "%s is not done with the machine.", vendorName)
	}
	return ssh.Found{Address: aws.ToString(i.PublicIpAddress), OperationID: operationOf(i), Kind: kindOf(isMetal(i.InstanceType))}, nil
}

// isMetal goes by the name, as EC2's own names do: m5.metal, m7i.metal-24xl.
func isMetal(t types.InstanceType) bool { return strings.Contains(string(t), ".metal") }
