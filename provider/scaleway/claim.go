package scaleway

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/provider"
)

// operationTag is what a server's tag begins with that names the operation that ordered it. Its name does too, until somebody changes it.
const operationTag = "bcd-operation:"

func belongsTo(s *baremetal.Server, operationID string) bool {
	return s.Name == operationID || slices.Contains(s.Tags, operationTag+operationID)
}

// operationOf is the operation that a server carries; empty when it carries none.
func operationOf(s *baremetal.Server) string {
	for _, tag := range s.Tags {
		if id, ok := strings.CutPrefix(tag, operationTag); ok && id != "" {
			return id
		}
	}
	if provider.IsOperationID(s.Name) {
		return s.Name
	}
	return ""
}

// isGone reports whether a server is one only in a list.
func isGone(s *baremetal.Server) bool { return s.Status == baremetal.ServerStatusDeleting }

// isLate reports whether Scaleway found out after the order that there is none left.
func isLate(s *baremetal.Server) bool { return s.Status == baremetal.ServerStatusOutOfStock }

// Claims lists the project's servers that carry an operation. One that could not be delivered is among them: it is no machine, and the
// release takes it out of the list.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, s := range servers {
		if id := operationOf(s); provider.IsOperationID(id) && !isGone(s) {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: machineID(s)})
		}
	}
	if c.virtual == nil {
		return owned, nil
	}
	instances, err := c.virtual.claims(ctx)
	if err != nil {
		return nil, err
	}
	return append(owned, instances...), nil
}

// FindClaim looks for the operation's server by its tag and its name. One that was delivered, or still may be, goes before one that was not.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	var found *baremetal.Server
	for _, s := range servers {
		if belongsTo(s, operationID) && !isGone(s) && (found == nil || isLate(found) && !isLate(s)) {
			found = s
		}
	}
	switch {
	case found == nil && c.virtual != nil:
		return c.virtual.findClaim(ctx, operationID)
	case found == nil:
		return nil, nil
	case isLate(found):
		return &provider.Claim{State: provider.ClaimFailed, OrderRef: found.ID, Err: c.vendor.Errorf(provider.OutOfStock)}, nil
	case isNew(found):
		return &provider.Claim{State: provider.ClaimPending, MachineID: machineID(found), OrderRef: found.ID}, nil
	}
	return &provider.Claim{State: provider.ClaimReady, MachineID: machineID(found), OrderRef: found.ID}, nil
}

// isNew reports whether a server is on its way, or its system is. One whose install failed is not: that is for the bootstrap to find.
func isNew(s *baremetal.Server) bool {
	return s.Status != baremetal.ServerStatusReady || isInstalling(s) || len(addressesOf(s)) == 0
}

func isInstalling(s *baremetal.Server) bool {
	return s.Install != nil && (s.Install.Status == baremetal.ServerInstallStatusToInstall || s.Install.Status == baremetal.ServerInstallStatusInstalling)
}

// Order creates one server with a system, and with user data that lets the driver in.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	if c.virtual != nil {
		if claim, err := c.virtual.order(ctx, order); claim != nil || err != nil {
			return claim, err
		}
	}
	offer, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	if availabilityIsNone(offer) {
		return nil, c.vendor.Errorf(provider.OutOfStock)
	}
	system, err := c.system(ctx, offer)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	userData, err := c.UserData(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	request := &baremetal.CreateServerRequest{
		Zone: offer.Zone, OfferID: offer.ID, ProjectID: &c.config.ProjectID, Name: order.OperationID, Tags: []string{operationTag + order.OperationID},
		OptionIDs: []string{}, UserData: new([]byte(userData)),
		Install: &baremetal.CreateServerRequestInstall{OsID: system, Hostname: order.OperationID, SSHKeyIDs: c.config.SSHKeyIDs},
	}
	var created *baremetal.Server
	err = c.change(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		created, err = sdk.CreateServer(request, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	if created == nil || !isUUID(created.ID) || created.Name != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: created.ID}, nil
}

func availabilityIsNone(o *baremetal.Offer) bool {
	return !o.Enable || o.Stock == baremetal.OfferStockEmpty
}

// resolve finds the type of an offer. An id that does not tell its name and zone is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (*baremetal.Offer, error) {
	called, zone, ok := provider.SplitOfferID(offerID)
	listed, err := everywhere(ctx, c, func(sdk *baremetal.API, o scw.RequestOption, in scw.Zone) ([]*baremetal.Offer, error) {
		switch {
		case !ok:
			return c.hourly(nil)(sdk, o, in)
		case in.String() != zone:
			return nil, nil
		}
		return c.hourly(&called)(sdk, o, in)
	})
	if err != nil {
		return nil, err
	}
	for _, o := range listed {
		if provider.OfferID(o.Name, o.Zone.String()) == offerID {
			return o, nil
		}
	}
	return nil, c.vendor.Errorf(provider.OfferGone)
}

// system finds the system of the config for the type. The latest in Scaleway's list counts.
func (c *client) system(ctx context.Context, offer *baremetal.Offer) (id string, err error) {
	var systems []*baremetal.OS
	err = c.read(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		systems, err = pages(c, func(page *int32, size *uint32) ([]*baremetal.OS, uint32, error) {
			r, err := sdk.ListOS(&baremetal.ListOSRequest{Zone: offer.Zone, OfferID: &offer.ID, Page: page, PageSize: size}, o)
			if err != nil {
				return nil, 0, err
			}
			return r.Os, r.TotalCount, nil
		})
		return err
	})
	if err != nil {
		return "", err
	}
	for _, s := range systems {
		if strings.HasPrefix(s.Name+" "+s.Version, c.config.OS) && s.Enabled && s.Allowed && s.CloudInitSupported && !slices.Contains(offer.IncompatibleOsIDs, s.ID) {
			id = s.ID
		}
	}
	if id == "" {
		return "", provider.Errorf(provider.InvalidConfig, "%s has no system for this offer that is called %q and takes user data; look at os in the account's config.", vendorName, c.config.OS)
	}
	return id, nil
}

// Release deletes the server. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	if c.isInstance(machineID) {
		return c.virtual.release(ctx, operationID, machineID)
	}
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
	if isGone(s) {
		return nil
	}
	if s.Protected {
		return provider.Errorf(provider.Conflict, "The server is protected at %s: end that there.", vendorName)
	}
	err = c.change(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		_, err := sdk.DeleteServer(&baremetal.DeleteServerRequest{Zone: s.Zone, ServerID: s.ID}, o)
		return err
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

var (
	uuidForm    = regexp.MustCompile(`\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)
	machineForm = regexp.MustCompile(`\Ametal:([a-z]{2}-[a-z]{3}-[1-9]):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\z`)
)

func isUUID(s string) bool { return uuidForm.MatchString(s) }

// machineID has the zone in it, without which Scaleway finds no server.
func machineID(s *baremetal.Server) string { return "metal:" + s.Zone.String() + ":" + s.ID }

// parts takes nothing but what machineID gives.
func parts(machineID string) (zone scw.Zone, id string, ok bool) {
	m := machineForm.FindStringSubmatch(machineID)
	if m == nil {
		return "", "", false
	}
	return scw.Zone(m[1]), m[2], true
}

// server reads one server by our id, and makes sure that the answer is about it and that it is the project's.
func (c *client) server(ctx context.Context, machineID string) (s *baremetal.Server, err error) {
	zone, id, ok := parts(machineID)
	if !ok {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	err = c.read(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		s, err = sdk.GetServer(&baremetal.GetServerRequest{Zone: zone, ServerID: id}, o)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s == nil || s.ID != id || s.Status == "":
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	case s.ProjectID != c.config.ProjectID:
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	s.Zone = zone
	return s, nil
}
