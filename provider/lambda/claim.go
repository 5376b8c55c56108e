package lambda

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"better/compute/provider"
)

// instance is a machine at Lambda.
type instance struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	IP        string `json:"ip"`
	PrivateIP string `json:"private_ip"`
	Region    struct {
		Name string `json:"name"`
	} `json:"region"`
	Type instanceType `json:"instance_type"`
	Tags []tag        `json:"tags"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// operationTag is the key of the tag that names the operation that ordered an instance. Its name does too, until somebody changes it.
const operationTag = "bcd-operation"

func (i instance) belongsTo(operationID string) bool {
	return i.Name == operationID || slices.Contains(i.Tags, tag{operationTag, operationID})
}

// operation is the one that an instance carries; empty when it carries none.
func (i instance) operation() string {
	for _, t := range i.Tags {
		if t.Key == operationTag && t.Value != "" {
			return t.Value
		}
	}
	if provider.IsOperationID(i.Name) {
		return i.Name
	}
	return ""
}

// isGone: Lambda shows what was terminated for a while.
func (i instance) isGone() bool {
	return i.Status == "terminated" || i.Status == "terminating" || i.Status == "preempted"
}

func (i instance) isBooting() bool { return i.Status == "booting" || !isAddress(i.IP) }

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func addressesOf(i instance) []string {
	addresses := []string{}
	for _, text := range []string{i.IP, i.PrivateIP} {
		if ip, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, ip.String())
		}
	}
	return addresses
}

var instanceID = regexp.MustCompile(`\A[0-9A-Za-z-]{8,64}\z`)

// instances lists those that are there, each once.
func (c *client) instances(ctx context.Context) ([]instance, error) {
	all, err := get[[]instance](ctx, c, "/instances")
	if err != nil {
		return nil, err
	}
	kept := []instance{}
	seen := map[string]bool{}
	for _, i := range *all {
		if instanceID.MatchString(i.ID) && !seen[i.ID] && !i.isGone() {
			seen[i.ID] = true
			kept = append(kept, i)
		}
	}
	return kept, nil
}

// Claims lists the account's instances that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	instances, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, i := range instances {
		if id := i.operation(); provider.IsOperationID(id) {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: i.ID})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's instance by its tag and name. Lambda's list takes no conditions.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	instances, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(instances, func(i instance) bool { return i.belongsTo(operationID) })
	if at < 0 {
		return nil, nil
	}
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: instances[at].ID, OrderRef: instances[at].ID}
	if instances[at].isBooting() {
		claim.State = provider.ClaimPending
	}
	return claim, nil
}

// Order launches one instance, with user data that lets the driver in.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	typeName, region, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	userData, err := c.UserData(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	body := map[string]any{
		"region_name": region, "instance_type_name": typeName, "ssh_key_names": []string{c.config.SSHKeyName}, "name": order.OperationID,
		"hostname": order.OperationID, "tags": []tag{{operationTag, order.OperationID}}, "user_data": userData,
	}
	if c.config.ImageFamily != "" {
		body["image"] = map[string]string{"family": c.config.ImageFamily}
	}
	launched, err := post[struct {
		IDs []string `json:"instance_ids"`
	}](ctx, c, "/instance-operations/launch", body)
	if err != nil {
		return nil, c.refusedOrder(err)
	}
	if len(launched.IDs) != 1 || !instanceID.MatchString(launched.IDs[0]) {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: launched.IDs[0]}, nil
}

// resolve finds the type and region of an offer. An id that does not tell them is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (typeName, region string, err error) {
	if typeName, region, ok := provider.SplitOfferID(offerID); ok && region != "" {
		return typeName, region, nil
	}
	types, err := get[map[string]capacity](ctx, c, "/instance-types")
	if err != nil {
		return "", "", err
	}
	for _, t := range *types {
		for _, r := range t.Regions {
			if provider.OfferID(t.Type.Name, r.Name) == offerID {
				return t.Type.Name, r.Name, nil
			}
		}
	}
	return "", "", c.vendor.Errorf(provider.OfferGone)
}

// refusedOrder says what a refusal means that Lambda has one code for: the type or the region is none, or something of the config.
func (c *client) refusedOrder(err error) error {
	refused := told(err)
	if refused.Code != codeUnknownObject && refused.Code != codeInvalid {
		return err
	}
	message := strings.ToLower(refused.Message)
	if strings.Contains(message, "type") || strings.Contains(message, "region") {
		return c.vendor.Errorf(provider.OfferGone).Because(err)
	}
	return provider.Errorf(provider.InvalidConfig, "%s does not take the order; look at the SSH key and the image in the account's config.", vendorName).Because(err)
}

// Release terminates the instance. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	i, err := c.instance(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !i.belongsTo(operationID) {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	_, err = post[struct{}](ctx, c, "/instance-operations/terminate", map[string][]string{"instance_ids": {i.ID}})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// instance reads one instance, and makes sure that the answer is about it. NotFound when it was terminated.
func (c *client) instance(ctx context.Context, id string) (*instance, error) {
	if !instanceID.MatchString(id) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	i, err := get[instance](ctx, c, "/instances/"+id)
	switch {
	case err != nil:
		return nil, err
	case i.ID != id:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	case i.isGone():
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	return i, nil
}
