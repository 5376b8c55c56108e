// Package libvirt is the driver for a tenant's own hypervisors, through libvirt.
//
// It owns how virtual machines are defined, given their disks and taken away there, over libvirt's own protocol with TLS. It refuses to
// know what runs them. The invariant: a machine's name and UUID both follow from the operation that ordered it, and libvirt has each
// once, so no operation ever has two machines, whatever gets lost.
package libvirt

import (
	"cmp"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"time"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
)

//go:embed config.schema.json
var configSchema []byte

const name = "libvirt"

// Options are the operator's.
type Options struct {
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each connection, from dialling on; 0 is 30 seconds.
	Timeout time.Duration
}

// Driver makes clients. Make one with New.
type Driver struct{ options Options }

// New makes the driver.
func New(o Options) *Driver {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  "Your own hypervisors, through libvirt",
		ConfigSchema: configSchema,
		SecretFields: []string{}, // privateKey is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimUniqueName,
		},
		ListLag: 10 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 2 * time.Minute},
		Wipes:   []string{"The machine's disk: it is made anew from the image."},
		About: provider.About{
			Installs: "a new disk with a NoCloud seed", GivesBack: "undefines, and deletes its disks", TestedAgainst: "libvirtd with its test driver, and with QEMU; nightly with Debian on the machine",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	Address       string `json:"address"`
	Port          int    `json:"port"`
	CACertificate string `json:"caCertificate"`
	Certificate   string `json:"certificate"`
	PrivateKey    string `json:"privateKey"`
	Hypervisor    string `json:"hypervisor"`
	Region        string `json:"region"`
	Pool          string `json:"pool"`
	Image         string `json:"image"`
	Network       string `json:"network"`
	Sizes         []size `json:"sizes"`
}

type size struct {
	Name      string `json:"name"`
	VCPU      uint   `json:"vcpu"`
	MemoryMiB uint   `json:"memoryMiB"`
	DiskGB    int64  `json:"diskGB"`
	Currency  string `json:"currency"`
	Hourly    string `json:"hourly"`
	Monthly   string `json:"monthly"`
}

// Open makes a client for an account. It calls nobody. It refuses, as InvalidConfig, an authority that is no certificate, and two sizes with
// one name.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.Port, c.Hypervisor, c.Region = cmp.Or(c.Port, 16514), cmp.Or(c.Hypervisor, "kvm"), cmp.Or(c.Region, "default")
	c.Pool, c.Network = cmp.Or(c.Pool, "default"), cmp.Or(c.Network, "default")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(c.CACertificate)) {
		return nil, provider.Errorf(provider.InvalidConfig, "caCertificate has no certificate in PEM.")
	}
	named := map[string]bool{}
	for _, s := range c.Sizes {
		if named[s.Name] {
			return nil, provider.Errorf(provider.InvalidConfig, "The config has two sizes with the name %s.", provider.Clean(s.Name))
		}
		named[s.Name] = true
	}
	return &client{options: d.options, account: account, config: c, roots: roots}, nil
}

// client is one version of one account.
type client struct {
	options Options
	account provider.Account
	config  config
	roots   *x509.CertPool
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// Close does nothing: no connection outlives its call.
func (c *client) Close() error { return nil }
