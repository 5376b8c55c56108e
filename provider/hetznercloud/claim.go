package hetznercloud

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"better/compute/provider"
)

// operationLabel marks a server with the operation that ordered it. The name does too, until somebody changes it.
const operationLabel = "bcd-operation"

func belongsTo(s *hcloud.Server, operationID string) bool {
	return s.Name == operationID || s.Labels[operationLabel] == operationID
}

// Claims lists the project's servers that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	servers, err := c.servers(ctx, hcloud.ServerListOpts{})
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, s := range servers {
		for _, mark := range []string{s.Labels[operationLabel], s.Name} {
			if provider.IsOperationID(mark) {
				owned = append(owned, provider.OwnedMachine{OperationID: mark, MachineID: machineID(s)})
				break
			}
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's server by its name, and by its label where it was given another name.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	for _, o := range []hcloud.ServerListOpts{
		{Name: operationID}, {ListOpts: hcloud.ListOpts{LabelSelector: operationLabel + "==" + operationID}},
	} {
		servers, err := c.servers(ctx, o)
		if err != nil {
			return nil, err
		}
		// A list that was not filtered is no answer to the question.
		i := slices.IndexFunc(servers, func(s *hcloud.Server) bool {
			return belongsTo(s, operationID) && s.Status != hcloud.ServerStatusDeleting
		})
		if i >= 0 {
			return claimOf(servers[i]), nil
		}
	}
	return nil, nil
}

func claimOf(s *hcloud.Server) *provider.Claim {
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: machineID(s), OrderRef: machineID(s)}
	if s.Status == hcloud.ServerStatusInitializing {
		claim.State = provider.ClaimPending
	}
	return claim
}

// Order creates one server, named after the operation. The same operation again gets no second one: the name is taken.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	serverType, location, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	options := hcloud.ServerCreateOpts{
		Name: order.OperationID, ServerType: &hcloud.ServerType{Name: serverType}, Location: &hcloud.Location{Name: location},
		Image: &hcloud.Image{Name: c.config.Image}, Labels: map[string]string{operationLabel: order.OperationID},
	}
	for _, id := range c.config.SSHKeyIDs {
		options.SSHKeys = append(options.SSHKeys, &hcloud.SSHKey{ID: id})
	}
	var created *hcloud.Server
	err = c.change(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		result, _, err := sdk.Server.Create(ctx, options)
		created = result.Server
		return err
	})
	if err != nil {
		return nil, refusedOrder(err)
	}
	if created == nil || created.ID <= 0 || created.Name != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the project has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: machineID(created)}, nil
}

// resolve finds the server type and location of an offer. An id that does not tell them is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (serverType, location string, err error) {
	if serverType, location, ok := provider.SplitOfferID(offerID); ok && location != "" {
		return serverType, location, nil
	}
	err = c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		types, err := c.serverTypes(ctx, sdk)
		for _, t := range types {
			for _, at := range placesOf(t) {
				if provider.OfferID(t.Name, at.location) == offerID {
					serverType, location = t.Name, at.location
				}
			}
		}
		return err
	})
	if err == nil && serverType == "" {
		err = c.vendor.Errorf(provider.OfferGone)
	}
	return serverType, location, err
}

// refusedOrder says what a refusal means that Hetzner has one code for: the type or the location is none, or something of the config.
func refusedOrder(err error) error {
	refused, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	told, _ := errors.AsType[hcloud.Error](err)
	switch {
	case told.Code == hcloud.ErrorCodeNotFound:
		return provider.Errorf(provider.OfferGone, "%s does not sell this offer any more.", vendorName).Because(err)
	case told.Code != hcloud.ErrorCodeInvalidInput:
		return refused
	}
	details, _ := told.Details.(hcloud.ErrorDetailsInvalidInput)
	for _, f := range details.Fields {
		if f.Name == "server_type" || f.Name == "location" {
			return provider.Errorf(provider.OfferGone, "%s does not sell this offer any more.", vendorName).Because(err)
		}
	}
	return provider.Errorf(provider.InvalidConfig, "%s does not take the order; look at the image and the SSH keys in the account's config.", vendorName).Because(err)
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
	if !belongsTo(s, operationID) {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		_, _, err := sdk.Server.DeleteWithResult(ctx, s)
		return err
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

func machineID(s *hcloud.Server) string { return strconv.FormatInt(s.ID, 10) }

// server reads one server by our id, and makes sure that the answer is about it.
func (c *client) server(ctx context.Context, id string) (s *hcloud.Server, err error) {
	number, ok := serverNumber(id)
	if !ok {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	err = c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		s, _, err = sdk.Server.GetByID(ctx, number)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, c.vendor.Errorf(provider.NotFound)
	case s.ID != number:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return s, nil
}

// serverNumber takes nothing but what machineID gives.
func serverNumber(id string) (int64, bool) {
	number, err := strconv.ParseInt(id, 10, 64)
	return number, err == nil && number > 0 && strconv.FormatInt(number, 10) == id
}
