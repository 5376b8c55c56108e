package linode

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"better/compute/provider"
)

// Claims lists the account's Linodes that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	instances, err := list[instance](ctx, c, "/linode/instances", nil)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, i := range instances {
		if provider.IsOperationID(i.Label) && i.ID > 0 {
			owned = append(owned, provider.OwnedMachine{OperationID: i.Label, MachineID: machineID(i)})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's Linode by its label.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	instances, err := list[instance](ctx, c, "/linode/instances", map[string]string{"label": operationID})
	if err != nil {
		return nil, err
	}
	// A list that was not filtered is no answer to the question.
	at := slices.IndexFunc(instances, func(i instance) bool { return i.Label == operationID && i.ID > 0 && i.Status != "deleting" })
	if at < 0 {
		return nil, nil
	}
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: machineID(instances[at]), OrderRef: machineID(instances[at])}
	if instances[at].Status == "provisioning" {
		claim.State = provider.ClaimPending
	}
	return claim, nil
}

// Order creates one Linode, labelled with the operation. The same operation again gets no second one: the label is taken. It has no system
// yet: Install brings that, with the user data.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	linodeType, region, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	var created instance
	err = c.change(ctx, http.MethodPost, "/linode/instances", map[string]any{
		"type": linodeType, "region": region, "label": order.OperationID, "booted": false,
	}, &created)
	if err != nil {
		return nil, c.refusedOrder(err)
	}
	if created.ID <= 0 || created.Label != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: machineID(created)}, nil
}

// resolve finds the type and region of an offer. An id that does not tell them is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (linodeTypeID, regionID string, err error) {
	if typeID, regionID, ok := provider.SplitOfferID(offerID); ok && regionID != "" {
		return typeID, regionID, nil
	}
	types, err := list[linodeType](ctx, c, "/linode/types", nil)
	if err != nil {
		return "", "", err
	}
	regions, err := list[region](ctx, c, "/regions", nil)
	if err != nil {
		return "", "", err
	}
	for _, t := range types {
		for _, r := range regions {
			if provider.OfferID(t.ID, r.ID) == offerID {
				return t.ID, r.ID, nil
			}
		}
	}
	return "", "", c.vendor.Errorf(provider.OfferGone)
}

// refusals says what the words of a refused order mean, by the field that they are about; an empty field is any. The first that fits counts.
var refusals = []struct {
	field, words string
	class        provider.Class
}{
	// The label is the operation's, so it has ordered before: look for what.
	{"label", "unique", provider.UnknownOutcome},
	{"label", "in use", provider.UnknownOutcome},
	{"", "limit", provider.Quota},
	{"", "payment", provider.Payment},
	{"", "past due", provider.Payment},
	{"", "capacity", provider.OutOfStock},
	{"", "available", provider.OutOfStock}, // not available, unavailable
	{"type", "", provider.OfferGone},
	{"region", "", provider.OfferGone},
}

func (c *client) refusedOrder(err error) error {
	for _, told := range reasons(err) {
		for _, r := range refusals {
			if (r.field == "" || r.field == told.Field) && strings.Contains(strings.ToLower(told.Reason), r.words) {
				return c.vendor.Errorf(r.class).Because(err)
			}
		}
	}
	return err
}

// Release deletes the Linode. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	i, err := c.instance(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if i.Label != operationID {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, http.MethodDelete, pathOf(i.ID), nil, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

func machineID(i instance) string { return strconv.Itoa(i.ID) }

func pathOf(number int) string { return fmt.Sprintf("/linode/instances/%d", number) }

// instance reads one Linode by our id, and makes sure that the answer is about it.
func (c *client) instance(ctx context.Context, id string) (i instance, err error) {
	number, ok := linodeNumber(id)
	if !ok {
		return i, c.vendor.Errorf(provider.NotFound)
	}
	if err := c.get(ctx, pathOf(number), nil, &i); err != nil {
		return i, err
	}
	if i.ID != number {
		return i, c.vendor.Errorf(provider.InvalidResponse)
	}
	return i, nil
}

// linodeNumber takes nothing but what machineID gives.
func linodeNumber(id string) (int, bool) {
	number, err := strconv.Atoi(id)
	return number, err == nil && number > 0 && strconv.Itoa(number) == id
}

// password is one that Linode wants to be told and nobody gets to know.
func password() string { return rand.Text() + "-" + strings.ToLower(rand.Text()) }
