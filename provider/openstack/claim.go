package openstack

import (
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"better/compute/provider"
)

// Claims lists the project's servers that carry an operation, with those that Nova found no place for: they are in the quota.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	all, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, s := range all {
		if provider.IsOperationID(s.operation()) {
			owned = append(owned, provider.OwnedMachine{OperationID: s.operation(), MachineID: s.ID})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's server by its metadata, for which Nova's list takes no condition.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	all, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(s server) bool { return s.operation() == operationID })
	if at < 0 {
		return nil, nil
	}
	s := all[at]
	switch {
	case s.isFailure():
		return c.failedClaim(ctx, s)
	case s.isBeingMade():
		return &provider.Claim{State: provider.ClaimPending, OrderRef: s.ID}, nil
	}
	return &provider.Claim{State: provider.ClaimReady, MachineID: s.ID, OrderRef: s.ID}, nil
}

// failedClaim reads the server for its fault: Nova's list does not show that of a server which it found no host for.
func (c *client) failedClaim(ctx context.Context, s server) (*provider.Claim, error) {
	if s.Fault.Message == "" {
		whole, err := c.server(ctx, s.ID)
		switch {
		case isNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		}
		s = *whole
	}
	return &provider.Claim{State: provider.ClaimFailed, OrderRef: s.ID, Err: c.whyNotMade(s)}, nil
}

// whyNotMade reads the fault of a server that never was. Nova takes an order, and looks for a place then.
func (c *client) whyNotMade(s server) *provider.Error {
	fault := strings.ToLower(s.Fault.Message)
	for _, words := range []string{"no valid host", "maximum number of retries", "exhausted all hosts"} {
		if strings.Contains(fault, words) {
			return c.vendor.Errorf(provider.OutOfStock)
		}
	}
	if strings.Contains(fault, "quota") {
		return c.vendor.Errorf(provider.Quota)
	}
	return provider.Errorf(provider.Fatal, "%s could not make the server; its fault there says why.", vendorName)
}

// Order makes one server, named after the operation and with it in its metadata. It runs the image as it is: Install brings the agent.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	flavorID, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	wanted := map[string]any{
		"name": order.OperationID, "flavorRef": flavorID, "imageRef": c.config.ImageID, "networks": c.networks(),
		"metadata": map[string]string{operationKey: order.OperationID},
	}
	if c.config.SSHKeyName != "" {
		wanted["key_name"] = c.config.SSHKeyName
	}
	var made struct {
		Server struct {
			ID string `json:"id"`
		} `json:"server"`
	}
	if err := c.post(ctx, "servers", map[string]any{"server": wanted}, &made); err != nil {
		return nil, c.refusedOrder(err)
	}
	if !serverID.MatchString(made.Server.ID) {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the project has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: made.Server.ID}, nil
}

// networks are the config's, or what the cloud gives a project that has but one.
func (c *client) networks() any {
	if len(c.config.NetworkIDs) == 0 {
		return "auto"
	}
	networks := []map[string]string{}
	for _, id := range c.config.NetworkIDs {
		networks = append(networks, map[string]string{"uuid": id})
	}
	return networks
}

// resolve finds the flavor of an offer. Nova takes ids alone, and offers have names.
func (c *client) resolve(ctx context.Context, offerID string) (string, error) {
	flavors, err := list[flavor](ctx, c, "flavors")
	if err != nil {
		return "", err
	}
	for _, f := range flavors {
		if f.ID != "" && f.Name != "" && c.offerID(f.Name) == offerID {
			return f.ID, nil
		}
	}
	return "", c.vendor.Errorf(provider.OfferGone)
}

// refusedOrder says what a refusal means that Nova has one status for.
func (c *client) refusedOrder(err error) error {
	r := told(err)
	switch {
	case (r.kind == "forbidden" || r.kind == "overLimit") && (r.says("quota") || r.says("maximum", "exceeded")):
		return c.vendor.Errorf(provider.Quota).Because(err)
	case r.kind == "forbidden" && r.says("zero disk"):
		return provider.Errorf(provider.Unsupported, "%s makes servers of this flavor on volumes only, and those cannot be rebuilt.", vendorName).Because(err)
	case r.kind == "badRequest" && (r.says("flavorref") || r.says("flavor", "not be found")), r.kind == "itemNotFound" && r.says("flavor"):
		return c.vendor.Errorf(provider.OfferGone).Because(err)
	case r.kind == "badRequest", r.kind == "itemNotFound", r.kind == "conflictingRequest" && r.says("network"):
		return provider.Errorf(provider.InvalidConfig, "%s does not take the order; look at the image, the networks and the SSH key in the account's config, and at what the flavor needs.", vendorName).Because(err)
	}
	return err
}

// Release deletes the server. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	s, err := c.server(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.operation() != operationID {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		_, err := sdk.Delete(ctx, sdk.ServiceURL("servers", s.ID), nil)
		return err
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// server reads one server, and makes sure that the answer is about it. NotFound when it is being deleted.
func (c *client) server(ctx context.Context, id string) (*server, error) {
	if !serverID.MatchString(id) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	var body struct {
		Server *server `json:"server"`
	}
	err := c.get(ctx, "servers/"+id, &body)
	switch {
	case err != nil:
		return nil, err
	case body.Server == nil || body.Server.ID != id:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	case body.Server.isGone():
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	return body.Server, nil
}
