package ssh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"better/compute/model"
	"better/compute/provider"
)

// offerID is the same for all machines of one kind, region and hardware. The hash stands for the facts that the readable part leaves out.
func (m *machine) offerID() string {
	facts, _ := json.Marshal(struct { // no value of it can fail to marshal
		Kind     model.MachineKind
		Hardware hardware
	}{m.Kind, m.Hardware})
	sum := sha256.Sum256(facts)
	return provider.OfferID(strings.Join(append(m.size(), hex.EncodeToString(sum[:4])), "-"), m.region())
}

// size is the readable part of an offer's id.
func (m *machine) size() []string {
	parts := []string{string(m.Kind)}
	if m.Hardware.VCPU != nil {
		parts = append(parts, fmt.Sprintf("%dc", *m.Hardware.VCPU))
	}
	if m.Hardware.MemoryGiB != nil {
		parts = append(parts, strconv.FormatFloat(*m.Hardware.MemoryGiB, 'f', -1, 64)+"g")
	}
	if gpu := m.Hardware.GPU; gpu != nil {
		parts = append(parts, fmt.Sprintf("%sx%d", strings.ToLower(gpu.Model), gpu.Count))
	}
	return parts
}

// name describes an offer to people.
func (m *machine) name() string {
	parts := []string{string(m.Kind)}
	if m.Hardware.VCPU != nil {
		parts = append(parts, fmt.Sprintf("%d vCPU", *m.Hardware.VCPU))
	}
	if m.Hardware.MemoryGiB != nil {
		parts = append(parts, strconv.FormatFloat(*m.Hardware.MemoryGiB, 'f', -1, 64)+" GiB")
	}
	if gpu := m.Hardware.GPU; gpu != nil {
		parts = append(parts, fmt.Sprintf("%d x %s", gpu.Count, gpu.Model))
	}
	return strings.Join(parts, ", ")
}

func (c *client) taken(ctx context.Context) (map[string]bool, error) {
	if err := givenUp(ctx); err != nil {
		return nil, err
	}
	if c.account.Inventory == nil {
		return nil, nil
	}
	return c.account.Inventory.Taken(ctx, keyed(c.machines))
}

func keyed(machines []*machine) []provider.KeyedMachine {
	all := make([]provider.KeyedMachine, len(machines))
	for i, m := range machines {
		all[i] = provider.KeyedMachine{MachineID: m.ID, Key: m.key()}
	}
	return all
}

// Offers groups the machines. A group whose machines are all taken stays listed, as out of stock.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	if err := c.someKey(ctx); err != nil {
		return nil, err
	}
	taken, err := c.taken(ctx)
	if err != nil {
		return nil, err
	}
	offers := []*model.Offer{}
	byID := map[string]*model.Offer{}
	for _, m := range c.machines {
		id := m.offerID()
		o, listed := byID[id]
		if !listed {
			o = c.offer(id, m)
			byID[id] = o
			offers = append(offers, o)
		}
		if !taken[m.ID] {
			o.Availability = model.Available
		}
		if !reflect.DeepEqual(o.Price, m.Price) {
			o.Price = nil // nobody can tell which machine it will be
		}
	}
	return offers, nil
}

func (c *client) offer(id string, m *machine) *model.Offer {
	return &model.Offer{
		ID: id, Kind: m.Kind, Region: m.region(), ProviderRegion: m.Region, Name: m.name(),
		Arch: m.Hardware.Arch, VCPU: m.Hardware.VCPU, MemoryGiB: m.Hardware.MemoryGiB, Disks: append([]*model.Disk{}, m.Hardware.Disks...),
		GPU: m.Hardware.GPU, Price: m.Price, Availability: model.OutOfStock, ObservedAt: model.NewTime(c.options.Now()),
	}
}

// Machines lists the inventory.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	taken, err := c.taken(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, len(c.machines))
	for i, m := range c.machines {
		status, offer := provider.MachineFree, m.offerID()
		if taken[m.ID] {
			status = "taken"
		}
		machines[i] = &model.Machine{
			ID: m.ID, Name: m.ID, Kind: m.Kind, Region: m.region(), Status: status, Addresses: []string{m.Address}, OfferID: &offer,
		}
	}
	return machines, nil
}

// FindClaim looks into the inventory's book.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	if err := c.canClaim(ctx); err != nil {
		return nil, err
	}
	id, err := c.account.Inventory.Claimed(ctx, operationID)
	if err != nil || id == "" {
		return nil, err
	}
	return &provider.Claim{State: provider.ClaimReady, MachineID: id}, nil
}

// Order takes a free machine of the offer. It is idempotent by operation, so its outcome is never unknown.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	if err := c.canClaim(ctx); err != nil {
		return nil, err
	}
	var offered []*machine
	for _, m := range c.machines {
		if m.offerID() == order.OfferID {
			offered = append(offered, m)
		}
	}
	if len(offered) == 0 {
		return nil, provider.Errorf(provider.OfferGone, "No machine of the account is of the offer %s.", order.OfferID)
	}
	id, err := c.account.Inventory.Take(ctx, order.OperationID, keyed(offered))
	if err != nil {
		return nil, err
	}
	return &provider.Claim{State: provider.ClaimReady, MachineID: id}, nil
}

// Release stops what the account installed on the machine, as far as the machine can be reached, and gives it back. Stopping comes
// first: once given back, the machine may be somebody else's.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	if err := c.canClaim(ctx); err != nil {
		return err
	}
	claimed, err := c.account.Inventory.Claimed(ctx, operationID)
	if err != nil {
		return err
	}
	if claimed == "" {
		return c.mustBeFree(ctx, machineID)
	}
	if machineID != "" && claimed != machineID {
		return notTaken(machineID)
	}
	cleanup, cancel := context.WithTimeout(ctx, c.limits.cleanup)
	defer cancel()
	if err := c.Uninstall(cleanup, claimed); err != nil && ctx.Err() != nil {
		return err // we are being stopped, not the machine
	}
	return c.account.Inventory.Drop(ctx, operationID)
}

// mustBeFree takes a machine that nobody has for released already.
func (c *client) mustBeFree(ctx context.Context, machineID string) error {
	taken, err := c.account.Inventory.Taken(ctx, nil) // whoever else has it is asked after where it is given back
	if err == nil && taken[machineID] {
		err = notTaken(machineID)
	}
	return err
}

func notTaken(machineID string) error {
	return provider.Errorf(provider.Conflict, "Machine %s is not one that this operation has taken.", machineID)
}

func (c *client) canClaim(ctx context.Context) error {
	if c.account.Inventory == nil {
		return provider.Errorf(provider.Unsupported, "Machines cannot be claimed without an inventory.")
	}
	return givenUp(ctx)
}
