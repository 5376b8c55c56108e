package scaleway

import (
	"context"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the server's id, which is unique by its making.
func (c *client) MachineKey(machineID string) (string, error) {
	if c.isInstance(machineID) {
		return name + ":" + instanceForm.FindStringSubmatch(machineID)[2], nil
	}
	_, id, ok := parts(machineID)
	if !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + id, nil
}

// Identify reads what the server is. Its serial number is the maker's, which Scaleway does not tell: its host key is what tells it from others.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	if c.isInstance(machineID) {
		return c.virtual.identify(ctx, machineID)
	}
	s, err := c.there(ctx, machineID)
	if err != nil {
		return nil, err
	}
	pin, err := c.Fingerprint(ctx, machineID, operationOf(s))
	if err != nil {
		return nil, err
	}
	identity := &provider.Identity{Addresses: addressesOf(s), SSHHostKey: pin}
	var o *baremetal.Offer
	err = c.read(ctx, func(sdk *baremetal.API, option scw.RequestOption) error {
		o, err = sdk.GetOffer(&baremetal.GetOfferRequest{Zone: s.Zone, OfferID: s.OfferID}, option)
		return err
	})
	switch {
	case isNotFound(err):
		return identity, nil // what it is made of is not told of a type that is sold no more
	case err != nil:
		return nil, err
	}
	describe(identity, o)
	return identity, nil
}

func describe(identity *provider.Identity, o *baremetal.Offer) {
	if arch := archOf(o.CPUs); arch != nil {
		identity.Arch = *arch
	}
	if n := threadsOf(o.CPUs); n != nil {
		identity.CPUs = *n
	}
	if gib := memoryOf(o.Memories); gib != nil {
		identity.MemoryMiB = int64(*gib * 1024)
	}
	identity.Disks = disksOf(o.Disks)
	if gpu := gpuOf(o.Gpus); gpu != nil {
		identity.GPUs = []*model.GPU{gpu}
	}
}

// there is a server that has a system and an address.
func (c *client) there(ctx context.Context, machineID string) (*baremetal.Server, error) {
	s, err := c.server(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case isGone(s) || isLate(s):
		return nil, c.vendor.Errorf(provider.NotFound)
	case isNew(s):
		return nil, provider.Errorf(provider.Unavailable, "%s is not done with the machine: its status is %q.", vendorName, statusOf(s))
	case s.Install == nil:
		return nil, provider.Errorf(provider.InvalidConfig, "The machine at %s has no system: install one there first.", vendorName)
	case s.Install.Status == baremetal.ServerInstallStatusError:
		return nil, provider.Errorf(provider.InstallError, "%s could not install the machine's system.", vendorName)
	}
	return s, nil
}

// find is where ssh.Fleet logs in.
func (c *client) find(ctx context.Context, machineID string) (ssh.Found, error) {
	if c.isInstance(machineID) {
		return c.virtual.find(ctx, machineID)
	}
	s, err := c.there(ctx, machineID)
	if err != nil {
		return ssh.Found{}, err
	}
	return ssh.Found{Address: addressesOf(s)[0], OperationID: operationOf(s), Kind: model.Metal}, nil
}
