package latitude

import (
	"context"
	"time"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the server's id, which Latitude.sh gives out once over all teams.
func (c *client) MachineKey(machineID string) (string, error) {
	if !isMachineID(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the server is. Its label looks like the maker's serial number, and nobody promises that it is: the host key is what tells
// a server from others.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	s, err := c.there(ctx, machineID)
	if err != nil {
		return nil, err
	}
	pin, err := c.Fingerprint(ctx, machineID, operationOf(s))
	if err != nil {
		return nil, err
	}
	return &provider.Identity{Addresses: addressesOf(*s), SSHHostKey: pin, Arch: "amd64"}, nil
}

// operationOf is the operation that a server carries; empty when it carries none.
func operationOf(s *server) string {
	if provider.IsOperationID(s.Hostname) {
		return s.Hostname
	}
	return ""
}

// there is a server that says that it is on.
func (c *client) there(ctx context.Context, machineID string) (*server, error) {
	s, err := c.server(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case hasFailed(*s):
		return nil, provider.Errorf(provider.InstallError, "%s could not install the machine's system.", vendorName)
	case isNew(*s):
		return nil, provider.Errorf(provider.Unavailable, "%s is not done with the machine.", vendorName)
	}
	return s, nil
}

// find is where ssh.Fleet logs in.
func (c *client) find(ctx context.Context, machineID string) (ssh.Found, error) {
	s, err := c.there(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	return ssh.Found{Address: s.PrimaryIPv4, OperationID: operationOf(s), Kind: model.Metal}, nil
}

// deployTime is how long after an order a server may say that it is on while it is still being deployed.
const deployTime = time.Hour

// Prepare says whether the server can be installed now. While it is deployed something else may answer at its address, with another host key:
// that is waited out.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	p, err := c.Fleet.Prepare(ctx, machineID)
	if err == nil || provider.ClassOf(err) != provider.SSHHostKey {
		return p, err
	}
	s, failed := c.server(ctx, machineID)
	if failed != nil || operationOf(s) == "" || time.Since(s.CreatedAt) > deployTime {
		return nil, err
	}
	return &provider.Preparation{Step: vendorName + " is deploying the system", Wait: 30 * time.Second}, nil
}
