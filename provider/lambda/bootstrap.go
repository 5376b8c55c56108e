package lambda

import (
	"context"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the instance's id, which Lambda gives out once over all accounts.
func (c *client) MachineKey(machineID string) (string, error) {
	if !instanceID.MatchString(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the instance is. Its serial number is not among what Lambda tells; its host key is what tells it from others.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if i.isBooting() {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	pin, err := c.Fingerprint(ctx, machineID, i.operation())
	if err != nil {
		return nil, err
	}
	identity := &provider.Identity{
		Addresses: addressesOf(*i), SSHHostKey: pin, Arch: archOf(i.Type.Name), CPUs: max(i.Type.Specs.VCPUs, 0), MemoryMiB: int64(min(max(i.Type.Specs.Memory, 0), 1<<20)) * 1024,
		Disks: disksOf(i.Type),
	}
	if gpu := gpuOf(i.Type); gpu != nil {
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
	if i.isBooting() {
		return ssh.Found{}, provider.Errorf(provider.Unavailable, "%s is not done with the machine.", vendorName)
	}
	return ssh.Found{Address: i.IP, OperationID: i.operation(), Kind: model.VPS}, nil
}
