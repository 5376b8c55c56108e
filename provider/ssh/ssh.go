// Package ssh is the driver for machines that the tenant has already: an inventory in the account's config, reached over SSH.
//
// It owns how such a machine is identified and how the agent gets onto it. It refuses to know who may do so and when, and it trusts no
// machine: every connection is pinned to the host key in the config, every answer is bounded. The invariant: each method can
// be cut off at any byte and repeated.
//
// On the machine it needs OpenSSH or a like server, a POSIX shell with the usual commands (BusyBox will do), and root or sudo without
// a password. The agent runs under systemd where that is the init. Elsewhere it runs under a small supervisor that SysV init, OpenRC or
// chkconfig start at boot; where none of these is there, a reboot ends the agent until it is installed again.
package ssh

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

//go:embed config.schema.json
var configSchema []byte

// Options are the operator's.
type Options struct {
	// AllowLoopback lets configs name the server's own machine. Only for tests and for trying things out: what listens there often
	// trusts whoever reaches it.
	AllowLoopback bool
	// Now is the clock that machines are compared with; nil means the system's.
	Now func() time.Time
}

// limits bound what a machine can cost us.
type limits struct {
	dial    time.Duration // to connect
	idle    time.Duration // without one byte from the machine
	check   time.Duration // for one login of Check
	call    time.Duration // for one method
	install time.Duration // for Install, which copies the agent
	cleanup time.Duration // for stopping an agent on a machine that is given back
}

// Driver makes clients. Make one with New.
type Driver struct {
	options Options
	limits  limits
}

// New makes the driver.
func New(options Options) *Driver {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Driver{options: options, limits: limits{
		dial: 10 * time.Second, idle: 20 * time.Second, check: 10 * time.Second, call: time.Minute, install: 2 * time.Minute, cleanup: 30 * time.Second,
	}}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         "ssh",
		DisplayName:  "Your own machines, over SSH",
		ConfigSchema: configSchema,
		SecretFields: []string{}, // privateKey is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLocal,
		},
		Typical: map[model.MachineKind]time.Duration{model.VPS: time.Minute, model.Metal: time.Minute},
		Wipes:   []string{"An agent that is on the machine already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH", GivesBack: "returns to the free ones", TestedAgainst: "OpenSSH servers in network namespaces",
		},
	}
}

// Open reads the inventory. It refuses, as InvalidConfig, two machines with one id or one host key, a machine without a
// private key, and an address that is never reached.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	machines, err := parseConfig(account.Config)
	if err != nil {
		return nil, err
	}
	c := &client{options: d.options, limits: d.limits, account: account, machines: machines, byID: map[string]*machine{}}
	prints := map[string]string{}
	for _, m := range machines {
		if _, twice := c.byID[m.ID]; twice {
			return nil, provider.Errorf(provider.InvalidConfig, "The config has two machines with the id %s.", m.ID)
		}
		if other, twice := prints[m.HostFingerprint]; twice {
			return nil, provider.Errorf(provider.InvalidConfig,
				"The machines %s and %s have the same host fingerprint. A host key is one machine's: if one was cloned from the other, make new host keys on it.", other, m.ID)
		}
		if m.PrivateKey == "" {
			return nil, provider.Errorf(provider.InvalidConfig, "Machine %s has no privateKey, and there is none for all machines.", m.ID)
		}
		if ip, err := netip.ParseAddr(m.Address); err == nil {
			if why := d.options.refuses(ip); why != "" {
				return nil, provider.Errorf(provider.InvalidConfig, "Machine %s: the address %s is refused: %s.", m.ID, m.Address, why)
			}
		}
		c.byID[m.ID], prints[m.HostFingerprint] = m, m.ID
	}
	return c, nil
}

// client is one version of one account. It never changes, but for what it remembers of each machine's host key type.
type client struct {
	options  Options
	limits   limits
	account  provider.Account
	machines []*machine
	byID     map[string]*machine
}

var _ interface {
	provider.Orderer
	provider.Bootstrapper
} = (*client)(nil)

// Close does nothing: no connection outlives its call.
func (c *client) Close() error { return nil }

// someKey fails when none of the private keys can be had: such an account has nothing to offer.
func (c *client) someKey(ctx context.Context) error {
	var first error
	for _, m := range c.oneForEachKey() {
		_, err := c.signer(ctx, m)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// oneForEachKey picks a machine for each private key.
func (c *client) oneForEachKey() []*machine {
	var picked []*machine
	seen := map[string]bool{}
	for _, m := range c.machines {
		if !seen[m.PrivateKey] {
			seen[m.PrivateKey] = true
			picked = append(picked, m)
		}
	}
	return picked
}

// givenUp refuses a call whose context has ended already.
func givenUp(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return provider.Errorf(provider.Unavailable, "The call was given up.").Because(ctx.Err())
}

func (c *client) machine(id string) (*machine, error) {
	m, ok := c.byID[id]
	if !ok {
		return nil, provider.Errorf(provider.NotFound, "The account has no machine %s.", id)
	}
	return m, nil
}

// MachineKey is the machine's host key, which stays the same whichever account, address or name reaches it.
func (c *client) MachineKey(machineID string) (string, error) {
	m, err := c.machine(machineID)
	if err != nil {
		return "", err
	}
	return m.key(), nil
}

func (m *machine) key() string { return "ssh:" + m.HostFingerprint }

// session connects to a machine for one call that takes at most limit, and calls do.
func (c *client) session(ctx context.Context, machineID string, limit time.Duration, do func(*connection) error) error {
	m, err := c.machine(machineID)
	if err != nil {
		return err
	}
	if err := givenUp(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := c.connect(ctx, m)
	if err != nil {
		return err
	}
	defer conn.close()
	return do(conn)
}

// String names the machine for people.
func (m *machine) String() string {
	return fmt.Sprintf("machine %s (%s at %s)", m.ID, m.User, m.hostPort())
}
