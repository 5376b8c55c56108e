package digitalocean

import (
	"context"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the droplet's id, which DigitalOcean gives out once over all accounts.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, ok := dropletNumber(machineID); !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the droplet is. Its serial number, as the droplet itself reads it, is its id.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	d, err := c.droplet(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if isNew(d) {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	pin, err := c.Fingerprint(ctx, machineID, operationOf(d))
	if err != nil {
		return nil, err
	}
	identity := &provider.Identity{
		Serial: machineID, Addresses: addressesOf(d), SSHHostKey: pin, Arch: "amd64", CPUs: max(d.Vcpus, 0), MemoryMiB: max(int64(d.Memory), 0),
	}
	if d.Size != nil {
		identity.Disks = disksOf(*d.Size)
		if gpu := gpuOf(d.Size.GPUInfo); gpu != nil {
			identity.GPUs = []*model.GPU{gpu}
		}
	}
	return identity, nil
}

// find is where ssh.Fleet logs in.
func (c *client) find(ctx context.Context, machineID string) (ssh.Found, error) {
	d, err := c.droplet(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	if isNew(d) || d.Locked {
		return ssh.Found{}, provider.Errorf(provider.Unavailable, "%s is not done with the machine.", vendorName)
	}
	return ssh.Found{Address: publicAddress(d), OperationID: operationOf(d), Kind: model.VPS}, nil
}
