package bootstrap

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"better/compute/model"
	"better/compute/provider"
)

// cloud is a provider that a test scripts. It keeps a ledger of what it was made to do, which judges whether a machine was
// ordered twice or lost.
type cloud struct {
	mode     model.ClaimMode
	manifest provider.Manifest

	mu       sync.Mutex
	machines map[string]*cloudMachine // by operation
	boxes    []string                 // machines that no operation ordered
	sold     model.Availability
	place    string // where the account's names of machines lead to
	orders   int    // machines that were really made
	released int
	installs []provider.Payload
	calls    []string

	// script holds what the next calls of a method answer instead, in order; before says whether the effect is left out.
	script map[string][]fault
	// hook is called at the start of each call, without the lock.
	hook func(method string)

	identity  provider.Identity
	prepared  provider.Preparation
	status    provider.InstallStatus
	echo      bool // installs fail and answer with the token
	delivered bool // orders are delivered at once
}

type cloudMachine struct {
	id       string
	second   string // a machine that a double order brought
	hidden   bool
	unmarked bool // it does not carry its operation any more
	released bool
}

type fault struct {
	err   error
	after bool // the call has its effect first
}

func newCloud(mode model.ClaimMode) *cloud {
	return &cloud{
		mode: mode, machines: map[string]*cloudMachine{}, script: map[string][]fault{}, delivered: true, sold: model.Available,
		identity: provider.Identity{Serial: "S1", SSHHostKey: "SHA256:k", CPUs: 4},
		prepared: provider.Preparation{Ready: true},
		status:   provider.InstallStatus{State: provider.InstallSucceeded},
		manifest: provider.Manifest{
			Name: "scripted", DisplayName: "Scripted",
			ConfigSchema: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"properties":{}}`),
			Capabilities: model.ProviderCapabilities{
				Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, ClaimMode: mode,
			},
		},
	}
}

func (c *cloud) Manifest() provider.Manifest { return c.manifest }

func (c *cloud) Open(context.Context, provider.Account) (provider.Client, error) {
	return &client{c}, nil
}

// next scripts the answers of the next calls of a method.
func (c *cloud) next(method string, faults ...fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script[method] = append(c.script[method], faults...)
}

func (c *cloud) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

func (c *cloud) count(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.calls {
		if m == method {
			n++
		}
	}
	return n
}

func (c *cloud) do(ctx context.Context, method string, effect func()) error {
	if c.hook != nil {
		c.hook(method)
	}
	if ctx.Err() != nil {
		return provider.Errorf(provider.UnknownOutcome, "stopped").Because(ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, method)
	var f fault
	if q := c.script[method]; len(q) > 0 {
		f, c.script[method] = q[0], q[1:]
	}
	if f.err == nil || f.after {
		effect()
	}
	return f.err
}

type client struct{ *cloud }

func (c *client) Close() error { return nil }

func (c *client) Check(ctx context.Context) error { return c.do(ctx, "check", func() {}) }

func (c *client) Machines(ctx context.Context) (all []*model.Machine, err error) {
	err = c.do(ctx, "machines", func() {
		for _, box := range c.boxes {
			all = append(all, &model.Machine{ID: box, Kind: model.Metal, Status: provider.MachineFree, OfferID: new("small")})
		}
		for _, m := range c.machines {
			if !m.hidden && !m.released {
				all = append(all, &model.Machine{ID: m.id, Kind: model.VPS})
			}
			if m.second != "" {
				all = append(all, &model.Machine{ID: m.second, Kind: model.VPS})
			}
		}
	})
	return all, err
}

func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	hourly := "0.01"
	offer := &model.Offer{ID: "small", Kind: model.VPS, Availability: c.sold, Price: &model.Price{Hourly: &hourly, Currency: "EUR"}}
	return []*model.Offer{offer}, c.do(ctx, "offers", func() {})
}

func (c *client) MachineKey(machineID string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "scripted:" + c.place + machineID, nil
}

func (c *client) claim(op string) *provider.Claim {
	m := c.machines[op]
	switch {
	case m == nil || m.hidden || m.released:
		return nil
	case !c.delivered:
		return &provider.Claim{State: provider.ClaimPending, OrderRef: "order-" + m.id}
	default:
		return &provider.Claim{State: provider.ClaimReady, MachineID: m.id, OrderRef: "order-" + m.id}
	}
}

func (c *client) FindClaim(ctx context.Context, op string) (found *provider.Claim, err error) {
	err = c.do(ctx, "find", func() { found = c.claim(op) })
	return found, err
}

func (c *client) Claims(ctx context.Context) (all []provider.OwnedMachine, err error) {
	err = c.do(ctx, "claims", func() {
		for op, m := range c.machines {
			if !m.hidden && !m.unmarked && !m.released {
				all = append(all, provider.OwnedMachine{OperationID: op, MachineID: m.id})
			}
			if m.second != "" {
				all = append(all, provider.OwnedMachine{OperationID: op, MachineID: m.second})
			}
		}
	})
	return all, err
}

func (c *client) Order(ctx context.Context, o provider.Order) (made *provider.Claim, err error) {
	err = c.do(ctx, "order", func() {
		idempotent := slices.Contains([]model.ClaimMode{model.ClaimToken, model.ClaimUniqueName, model.ClaimLocal}, c.mode)
		if c.machines[o.OperationID] == nil || !idempotent {
			c.orders++
			c.machines[o.OperationID] = &cloudMachine{id: "m-" + o.OperationID[4:20]}
		}
		made = c.claim(o.OperationID)
	})
	return made, err
}

func (c *client) Release(ctx context.Context, op, machineID string) (err error) {
	failed := c.do(ctx, "release", func() {
		if m := c.machines[op]; m != nil && m.id == machineID && m.unmarked && !m.released {
			err = provider.Errorf(provider.IdentityChanged, "scripted: it carries no operation")
		} else if m := c.machines[op]; m != nil && m.id == machineID && !m.released {
			m.released = true
			c.released++
		} else if m != nil && m.second == machineID {
			m.second = ""
			c.released++
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

func (c *client) Identify(ctx context.Context, _ string) (*provider.Identity, error) {
	var i provider.Identity
	err := c.do(ctx, "identify", func() { i = c.identity })
	return &i, err
}

func (c *client) Prepare(ctx context.Context, _ string) (*provider.Preparation, error) {
	var p provider.Preparation
	err := c.do(ctx, "prepare", func() { p = c.prepared })
	return &p, err
}

func (c *client) Install(ctx context.Context, _ string, p provider.Payload) (string, error) {
	if c.echo {
		e := provider.Errorf(provider.InstallError, "it said %s", p.Token)
		e.Log = []string{"before", p.Token, "after"}
		return "", e
	}
	return "ref", c.do(ctx, "install", func() { c.installs = append(c.installs, p) })
}

func (c *client) InstallStatus(ctx context.Context, _, _ string) (*provider.InstallStatus, error) {
	var s provider.InstallStatus
	err := c.do(ctx, "status", func() { s = c.status })
	return &s, err
}

func (c *client) Uninstall(ctx context.Context, _ string) error {
	return c.do(ctx, "uninstall", func() {})
}

// leaked counts machines that were made, not released, and belong to no run that joined.
func (c *cloud) leaked(joined map[string]bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for op, m := range c.machines {
		if !m.released && !joined[op] {
			n++
		}
	}
	return n
}

func failsWith(class provider.Class) fault {
	return fault{err: provider.Errorf(class, "scripted %s", class)}
}

func failsAfter(class provider.Class) fault {
	return fault{err: provider.Errorf(class, "scripted %s", class), after: true}
}
