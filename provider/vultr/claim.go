package vultr

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"better/compute/model"
	"better/compute/provider"
)

// machine is an instance, or a machine of bare metal. They are at two places of the API.
type machine struct {
	ID           string   `json:"id"`
	Label        string   `json:"label"`
	Tags         []string `json:"tags"`
	Plan         string   `json:"plan"`
	Region       string   `json:"region"`
	Status       string   `json:"status"`
	ServerStatus string   `json:"server_status"`
	MainIP       string   `json:"main_ip"`
	V6MainIP     string   `json:"v6_main_ip"`
	InternalIP   string   `json:"internal_ip"`
	VCPUs        int      `json:"vcpu_count"`
	kind         model.MachineKind
}

const metalPrefix = "metal-"

// id is ours, which tells where the machine is.
func (m *machine) id() string {
	if m.kind == model.Metal {
		return metalPrefix + m.ID
	}
	return m.ID
}

var vendorID = regexp.MustCompile(`\A[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)

// place is where in the API machines of a kind are, and what an answer calls one and many.
type place struct{ path, one, many string }

var (
	instances = place{"/instances", "instance", "instances"}
	bareMetal = place{"/bare-metals", "bare_metal", "bare_metals"}
)

func placeOf(kind model.MachineKind) place {
	if kind == model.Metal {
		return bareMetal
	}
	return instances
}

// parseID takes nothing but what id gives.
func parseID(id string) (vendors string, kind model.MachineKind, ok bool) {
	kind = model.VPS
	vendors, metal := strings.CutPrefix(id, metalPrefix)
	if metal {
		kind = model.Metal
	}
	return vendors, kind, vendorID.MatchString(vendors)
}

// listed reads the machines of a kind that the query asks for, each once, and none without an id.
func (c *client) listed(ctx context.Context, kind model.MachineKind, query url.Values) ([]*machine, error) {
	at := placeOf(kind)
	all, err := list[*machine](ctx, c, at.path, at.many, query)
	if err != nil {
		return nil, err
	}
	kept := []*machine{}
	seen := map[string]bool{}
	for _, m := range all {
		if m != nil && vendorID.MatchString(m.ID) && !seen[m.ID] {
			seen[m.ID], m.kind = true, kind
			kept = append(kept, m)
		}
	}
	return kept, nil
}

func (c *client) machines(ctx context.Context) ([]*machine, error) {
	vps, err := c.listed(ctx, model.VPS, nil)
	if err != nil {
		return nil, err
	}
	metal, err := c.listed(ctx, model.Metal, nil)
	return append(vps, metal...), err
}

func (m *machine) belongsTo(operationID string) bool {
	return m.Label == operationID || slices.Contains(m.Tags, operationID)
}

// operation is the one that a machine carries; empty when it carries none.
func (m *machine) operation() string {
	for _, mark := range append(slices.Clone(m.Tags), m.Label) {
		if provider.IsOperationID(mark) {
			return mark
		}
	}
	return ""
}

// Claims lists the account's machines that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	all, err := c.machines(ctx)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, m := range all {
		if id := m.operation(); id != "" {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: m.id()})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's machine by its tag, then by its label, and among the bare metal, whose list takes no conditions.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	for _, look := range []struct {
		kind  model.MachineKind
		query url.Values
	}{{model.VPS, url.Values{"tag": {operationID}}}, {model.VPS, url.Values{"label": {operationID}}}, {model.Metal, nil}} {
		found, err := c.listed(ctx, look.kind, look.query)
		if err != nil {
			return nil, err
		}
		// A list that was not filtered is no answer to the question.
		if i := slices.IndexFunc(found, func(m *machine) bool { return m.belongsTo(operationID) }); i >= 0 {
			claim := &provider.Claim{State: provider.ClaimReady, MachineID: found[i].id(), OrderRef: found[i].ID}
			if found[i].isBeingMade() {
				claim.State = provider.ClaimPending
			}
			return claim, nil
		}
	}
	return nil, nil
}

// isBeingMade takes a machine without an address for one that is still being made, whatever its status says.
func (m *machine) isBeingMade() bool { return m.Status == "pending" || !isAddress(m.MainIP) }

func isAddress(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && !ip.IsUnspecified() // 0.0.0.0 until there is one
}

func addressesOf(m *machine) []string {
	addresses := []string{}
	for _, text := range []string{m.MainIP, m.V6MainIP, m.InternalIP} {
		if isAddress(text) {
			addresses = append(addresses, netip.MustParseAddr(text).String())
		}
	}
	return addresses
}

// Order creates one machine, with user data that lets the driver in.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	planID, region, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	userData, err := c.UserData(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	body := map[string]any{
		"region": region, "plan": planID, "os_id": c.config.OSID, "label": order.OperationID, "hostname": order.OperationID, "tags": []string{order.OperationID},
		"user_data": base64.StdEncoding.EncodeToString([]byte(userData)), "activation_email": false,
	}
	if len(c.config.SSHKeyIDs) > 0 {
		body["sshkey_id"] = c.config.SSHKeyIDs
	}
	at := placeOf(kindOf(planID))
	var answer map[string]*machine
	if err := c.change(ctx, http.MethodPost, at.path, body, &answer); err != nil {
		return nil, c.refusedOrder(err)
	}
	created := answer[at.one]
	if created == nil || !vendorID.MatchString(created.ID) {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: created.ID}, nil
}

// kindOf tells plans of bare metal by their ids.
func kindOf(planID string) model.MachineKind {
	if strings.HasPrefix(planID, "vbm-") {
		return model.Metal
	}
	return model.VPS
}

// resolve finds the plan and region of an offer. An id that does not tell them is looked for among the offers.
func (c *client) resolve(ctx context.Context, offerID string) (planID, region string, err error) {
	if planID, region, ok := provider.SplitOfferID(offerID); ok && region != "" {
		return planID, region, nil
	}
	plans, err := c.plans(ctx)
	if err != nil {
		return "", "", err
	}
	for _, p := range plans {
		for _, region := range p.Locations {
			if provider.OfferID(p.ID, region) == offerID {
				return p.ID, region, nil
			}
		}
	}
	return "", "", c.vendor.Errorf(provider.OfferGone)
}

// refusals says what the words of a refused order mean. The first that fits counts.
var refusals = []struct {
	words string
	class provider.Class
}{
	{"limit", provider.Quota}, // of instances, or of what a month may cost
	{"credit", provider.Payment},
	{"payment", provider.Payment},
	{"billing", provider.Payment},
	{"unable to bill", provider.Payment},
	{"out of stock", provider.OutOfStock},
	{"capacity", provider.OutOfStock},
	{"not available", provider.OutOfStock},
	{"unavailable", provider.OutOfStock},
	{"plan", provider.OfferGone},
	{"region", provider.OfferGone},
	{"os_id", provider.InvalidConfig},
	{"os id", provider.InvalidConfig},
	{"operating system", provider.InvalidConfig},
	{"ssh", provider.InvalidConfig},
}

func (c *client) refusedOrder(err error) error {
	message := said(err)
	if message == "" {
		return err
	}
	if class := provider.ClassOf(err); class != provider.Fatal && class != provider.Forbidden && class != provider.NotFound {
		return err // the status has said it
	}
	for _, r := range refusals {
		switch {
		case !strings.Contains(message, r.words):
		case r.class == provider.InvalidConfig:
			return provider.Errorf(r.class, "%s does not take the order; look at the system and the SSH keys in the account's config.", vendorName).Because(err)
		default:
			return c.vendor.Errorf(r.class).Because(err)
		}
	}
	return err
}

// Release deletes the machine. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	m, err := c.machine(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !m.belongsTo(operationID) {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, http.MethodDelete, placeOf(m.kind).path+"/"+m.ID, nil, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// machine reads one machine by our id, and makes sure that the answer is about it.
func (c *client) machine(ctx context.Context, id string) (*machine, error) {
	vendors, kind, ok := parseID(id)
	if !ok {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	at := placeOf(kind)
	var answer map[string]*machine
	if err := c.get(ctx, at.path+"/"+vendors, &answer); err != nil {
		return nil, err
	}
	m := answer[at.one]
	if m == nil || m.ID != vendors {
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	m.kind = kind
	return m, nil
}
