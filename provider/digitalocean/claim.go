package digitalocean

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"better/compute/provider"
)

// operationTag is what a droplet's tag begins with that names the operation that ordered it. Its name does too, until somebody changes it.
const operationTag = "bcd-operation:"

func belongsTo(d *godo.Droplet, operationID string) bool {
	return d.Name == operationID || slices.Contains(d.Tags, operationTag+operationID)
}

// operationOf is the operation that a droplet carries; empty when it carries none.
func operationOf(d *godo.Droplet) string {
	for _, tag := range d.Tags {
		if id, ok := strings.CutPrefix(tag, operationTag); ok && id != "" {
			return id
		}
	}
	if provider.IsOperationID(d.Name) {
		return d.Name
	}
	return ""
}

// Claims lists the account's droplets that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	droplets, err := c.droplets(ctx, list, listGPUs)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, d := range droplets {
		if id := operationOf(d); provider.IsOperationID(id) && d.ID > 0 {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: machineID(d)})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's droplet by its tag, then by its name, and among those with GPUs. Of several it takes the first that
// was made.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	byTag := func(ctx context.Context, sdk *godo.Client, o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) {
		return sdk.Droplets.ListByTag(ctx, operationTag+operationID, o)
	}
	byName := func(ctx context.Context, sdk *godo.Client, o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) {
		return sdk.Droplets.ListByName(ctx, operationID, o)
	}
	for _, l := range []listing{byTag, byName, listGPUs} {
		droplets, err := c.droplets(ctx, l)
		if err != nil {
			return nil, err
		}
		var found *godo.Droplet
		for _, d := range droplets {
			// A list that was not filtered is no answer to the question.
			if belongsTo(d, operationID) && d.ID > 0 && (found == nil || d.ID < found.ID) {
				found = d
			}
		}
		if found != nil {
			return claimOf(found), nil
		}
	}
	return nil, nil
}

// claimOf takes a droplet without a public address for one that is still being made, whatever its status says.
func claimOf(d *godo.Droplet) *provider.Claim {
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: machineID(d), OrderRef: machineID(d)}
	if isNew(d) {
		claim.State = provider.ClaimPending
	}
	return claim
}

func isNew(d *godo.Droplet) bool { return d.Status == "new" || publicAddress(d) == "" }

// publicAddress is where we log in.
func publicAddress(d *godo.Droplet) string {
	if d.Networks == nil {
		return ""
	}
	for _, n := range d.Networks.V4 {
		if n.Type == "public" {
			return n.IPAddress
		}
	}
	return ""
}

// Order creates one droplet, with user data that lets the driver in.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	size, region, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	userData, err := c.UserData(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	request := &godo.DropletCreateRequest{
		Name: order.OperationID, Region: region, Size: size, Image: godo.DropletCreateImage{Slug: c.imageOf(size)},
		SSHKeys: []godo.DropletCreateSSHKey{}, Tags: []string{operationTag + order.OperationID}, UserData: userData,
	}
	for _, id := range c.config.SSHKeyIDs {
		request.SSHKeys = append(request.SSHKeys, godo.DropletCreateSSHKey{ID: id})
	}
	var created *godo.Droplet
	err = c.change(ctx, func(ctx context.Context, sdk *godo.Client) error {
		created, _, err = sdk.Droplets.Create(ctx, request)
		return err
	})
	if err != nil {
		return nil, c.refusedOrder(err)
	}
	if created == nil || created.ID <= 0 || created.Name != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: machineID(created)}, nil
}

// imageOf tells sizes with GPUs, which need an image with drivers, by their names.
func (c *client) imageOf(size string) string {
	if strings.HasPrefix(size, "gpu-") {
		return c.config.GPUImage
	}
	return c.config.Image
}

// resolve finds the size and region of an offer. An id that does not tell them is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (size, region string, err error) {
	if size, region, ok := provider.SplitOfferID(offerID); ok && region != "" {
		return size, region, nil
	}
	sizes, err := c.sizes(ctx)
	if err != nil {
		return "", "", err
	}
	for _, s := range sizes {
		for _, region := range s.Regions {
			if provider.OfferID(s.Slug, region) == offerID {
				return s.Slug, region, nil
			}
		}
	}
	return "", "", c.vendor.Errorf(provider.OfferGone)
}

// refusals says what the words of a refused order mean: DigitalOcean has one code for all of them. The first that fits counts.
var refusals = []struct {
	words string
	class provider.Class
}{
	{"droplet limit", provider.Quota},
	{"will exceed your", provider.Quota},
	{"payment", provider.Payment},
	{"billing", provider.Payment},
	{"invalid size", provider.OfferGone},
	{"invalid region", provider.OfferGone},
	{"image", provider.InvalidConfig},
	{"key identifiers", provider.InvalidConfig},
	{"ssh key", provider.InvalidConfig},
	{"not available", provider.OutOfStock},
	{"unavailable", provider.OutOfStock},
	{"capacity", provider.OutOfStock},
}

func (c *client) refusedOrder(err error) error {
	told, ok := errors.AsType[*godo.ErrorResponse](err)
	if !ok || told.Response == nil || told.Response.StatusCode != http.StatusUnprocessableEntity && told.Response.StatusCode != http.StatusForbidden {
		return err
	}
	message := strings.ToLower(told.Message)
	for _, r := range refusals {
		if !strings.Contains(message, r.words) {
			continue
		}
		if r.class == provider.InvalidConfig {
			return provider.Errorf(r.class, "%s does not take the order; look at the image and the SSH keys in the account's config.", vendorName).Because(err)
		}
		return c.vendor.Errorf(r.class).Because(err)
	}
	return err
}

// Release destroys the droplet. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	d, err := c.droplet(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !belongsTo(d, operationID) {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, func(ctx context.Context, sdk *godo.Client) error {
		_, err := sdk.Droplets.Delete(ctx, d.ID)
		return err
	})
	if isNotFound(err) {
		return nil
	}
	told, ok := errors.AsType[*godo.ErrorResponse](err)
	if ok && strings.Contains(told.Message, "pending event") {
		return c.vendor.Errorf(provider.Conflict).Because(err)
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

func machineID(d *godo.Droplet) string { return strconv.Itoa(d.ID) }

// droplet reads one droplet by our id, and makes sure that the answer is about it.
func (c *client) droplet(ctx context.Context, id string) (d *godo.Droplet, err error) {
	number, ok := dropletNumber(id)
	if !ok {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	err = c.read(ctx, func(ctx context.Context, sdk *godo.Client) error {
		d, _, err = sdk.Droplets.Get(ctx, number)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case d == nil || d.ID != number:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return d, nil
}

// dropletNumber takes nothing but what machineID gives.
func dropletNumber(id string) (int, bool) {
	number, err := strconv.Atoi(id)
	return number, err == nil && number > 0 && strconv.Itoa(number) == id
}
