package ironic

import (
	"context"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"better/compute/provider"
	"better/compute/provider/vendor"
)

// allocation reads the operation's allocation; nil when there is none.
func (c *client) allocation(ctx context.Context, operationID string) (a *allocations.Allocation, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		a, err = allocations.Get(ctx, sdk, operationID).Extract()
		return err
	})
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case a == nil || a.Name != operationID || a.UUID == "":
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return a, nil
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// Claims lists the allocations that an operation has a node by.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	var all []allocations.Allocation
	err := c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) (err error) {
		all, err = vendor.Cursors(c.vendor, func(marker string) ([]allocations.Allocation, string, error) {
			return page(ctx, allocations.List(sdk, allocations.ListOpts{Limit: perPage, Marker: marker}), allocations.ExtractAllocations)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, a := range all {
		if provider.IsOperationID(a.Name) && isNodeID(a.NodeUUID) {
			owned = append(owned, provider.OwnedMachine{OperationID: a.Name, MachineID: a.NodeUUID})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's allocation. One that found no node stays as it is, for people to read why.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	a, err := c.allocation(ctx, operationID)
	if err != nil || a == nil {
		return nil, err
	}
	switch a.State {
	case string(allocations.Allocating):
		return &provider.Claim{State: provider.ClaimPending, OrderRef: a.UUID}, nil
	case allocations.Error:
		return &provider.Claim{State: provider.ClaimFailed, OrderRef: a.UUID, Err: c.vendor.Errorf(provider.OutOfStock)}, nil
	case allocations.Active:
		if isNodeID(a.NodeUUID) {
			return &provider.Claim{State: provider.ClaimReady, MachineID: a.NodeUUID, OrderRef: a.UUID}, nil
		}
	}
	return nil, c.vendor.Errorf(provider.InvalidResponse)
}

// Order asks for an allocation, named after the operation. The same operation again gets no second one: the name is taken.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	class, err := c.resourceClass(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	var a *allocations.Allocation
	err = c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) (err error) {
		a, err = allocations.Create(ctx, sdk, allocations.CreateOpts{Name: order.OperationID, ResourceClass: class}).Extract()
		return err
	})
	switch {
	case err != nil && provider.ClassOf(err) == provider.Conflict:
		// The name is the operation's, so it has ordered before: look for what.
		return nil, c.vendor.Errorf(provider.UnknownOutcome).Because(err)
	case err != nil:
		return nil, err
	case a == nil || a.Name != order.OperationID:
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	return &provider.Claim{State: provider.ClaimPending, OrderRef: a.UUID}, nil
}

// resourceClass finds an offer's class among the nodes: Ironic takes an allocation of any class, and fails it later.
func (c *client) resourceClass(ctx context.Context, offerID string) (string, error) {
	all, err := c.nodes(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range all {
		if n.ResourceClass != "" && provider.OfferID(n.ResourceClass, c.config.Region) == offerID {
			return n.ResourceClass, nil
		}
	}
	return "", c.vendor.Errorf(provider.OfferGone)
}

// Release undeploys the node, with which Ironic ends its allocation; of a node that nothing was deployed to the allocation is deleted. A
// node that is allocated to nobody is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	n, err := c.node(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	a, err := c.allocation(ctx, operationID)
	switch {
	case err != nil:
		return err
	case a == nil && n.AllocationUUID == "" && n.InstanceUUID == "":
		return nil
	case a == nil || a.UUID != n.AllocationUUID:
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	switch nodes.ProvisionState(n.ProvisionState) {
	case nodes.Available:
		return c.deallocate(ctx, a)
	case nodes.Deleting, nodes.Cleaning, nodes.CleanWait:
		return nil
	case nodes.Active, nodes.DeployFail, nodes.DeployWait, nodes.Error, nodes.Rescue, nodes.RescueFail, nodes.UnrescueFail:
		return c.provision(ctx, n, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted})
	default:
		return c.vendor.Errorf(provider.Conflict)
	}
}

func (c *client) deallocate(ctx context.Context, a *allocations.Allocation) error {
	err := c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		return allocations.Delete(ctx, sdk, a.UUID).ExtractErr()
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

// provision sets a node's target. That Ironic does not take it means that the node's state is not any more what it was when it was read.
func (c *client) provision(ctx context.Context, n *nodes.Node, o nodes.ProvisionStateOpts) error {
	err := c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		return nodes.ChangeProvisionState(ctx, sdk, n.UUID, o).ExtractErr()
	})
	if err != nil && provider.ClassOf(err) == provider.Fatal {
		return c.vendor.Errorf(provider.Conflict).Because(err)
	}
	return err
}

// node reads one node by our id, and makes sure that the answer is about it.
func (c *client) node(ctx context.Context, id string) (n *nodes.Node, err error) {
	if !isNodeID(id) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	err = c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		n, err = nodes.Get(ctx, sdk, id).Extract()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case n == nil || n.UUID != id:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return n, nil
}
