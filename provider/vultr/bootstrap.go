package vultr

import (
	"context"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the machine's id, which Vultr gives out once over all accounts.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, _, ok := parseID(machineID); !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the machine is. Its serial number is not among what Vultr tells; its host key is what tells it from others.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	m, err := c.machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if m.isBeingMade() {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	pin, err := c.Fingerprint(ctx, machineID, m.operation())
	if err != nil {
		return nil, err
	}
	return &provider.Identity{Addresses: addressesOf(m), SSHHostKey: pin, Arch: archOf(m.Plan), CPUs: max(m.VCPUs, 0)}, nil
}

// find is where ssh.Fleet logs in.
func (c *client) find(ctx context.Context, machineID string) (ssh.Found, error) {
	m, err := c.machine(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	if m.isBeingMade() || m.ServerStatus == "locked" || m.ServerStatus == "installingbooting" {
		return ssh.Found{}, provider.Errorf(provider.Unavailable, "%s is not done with the machine.", vendorName)
	}
	return ssh.Found{Address: m.MainIP, OperationID: m.operation(), Kind: m.kind}, nil
}
