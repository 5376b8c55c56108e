// Package openstack is the driver for clouds of OpenStack, whose machines Nova makes.
//
// It owns how a project there is read and how its servers are ordered, rebuilt and deleted, with gophercloud. It refuses to know how HTTP
// fails; package vendor does. The invariant: a server is an operation's if its metadata says so. Nova makes two servers of one name, so
// an order goes out once, and what became of it is looked for.
//
// The account's secret goes to Keystone alone, where the operator says that it is. Nova gets a token, where Keystone's catalog says that it is.
package openstack

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name       = "openstack"
	vendorName = "OpenStack"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of Keystone, which ends in /v3.
	Endpoint string
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
}

// Driver makes clients. Make one with New.
type Driver struct{ options Options }

// New makes the driver.
func New(o Options) *Driver {
	o.Endpoint = strings.TrimSuffix(o.Endpoint, "/")
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // applicationCredentialSecret is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag: 10 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 4 * time.Minute, model.Metal: 20 * time.Minute},
		Wipes:   []string{"The server's own disk: it is made again from the image. Attached volumes stay as they are."},
		About: provider.About{
			GPUs: true, Installs: "rebuild with user data", GivesBack: "deletes",
			TestedAgainst: "a fake after recorded answers, through gophercloud; Nova's recordings; nightly Nova itself",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	CredentialID     string   `json:"applicationCredentialId"`
	CredentialSecret string   `json:"applicationCredentialSecret"`
	Region           string   `json:"region"`
	ImageID          string   `json:"imageId"`
	NetworkIDs       []string `json:"networkIds"`
	SSHKeyName       string   `json:"sshKeyName"`
	Serial           string   `json:"serial"`
	Prices           []price  `json:"prices"`
}

type price struct {
	Flavor   string `json:"flavor"`
	Currency string `json:"currency"`
	Hourly   string `json:"hourly"`
	Monthly  string `json:"monthly"`
}

// Open makes a client for an account. It calls nobody. It refuses, as InvalidConfig, a flavor with two prices.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	priced := map[string]bool{}
	for _, p := range c.Prices {
		if priced[p.Flavor] {
			return nil, provider.Errorf(provider.InvalidConfig, "The config has two prices for the flavor %s.", provider.Clean(p.Flavor))
		}
		priced[p.Flavor] = true
	}
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	client := &client{options: d.options, account: account, config: c}
	client.vendor = client.at(origin)
	return client, nil
}

// client is one version of one account.
type client struct {
	options Options
	account provider.Account
	config  config
	vendor  *vendor.Vendor // calls Keystone

	mu         sync.Mutex
	nova       *vendor.Vendor // calls Nova; nil until Keystone has said where that is
	novaOrigin string
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// at calls what is at the origin.
func (c *client) at(origin string) *vendor.Vendor {
	return vendor.New(vendor.Options{
		Name: vendorName, Origins: []string{origin}, Networks: c.options.Networks, Timeout: c.options.Timeout, RequestID: "X-Openstack-Request-Id",
		Code: func(err error) string { return told(err).kind },
		// A quota is a limit too, which an order tells apart.
		Codes: map[string]provider.Class{"overLimit": provider.RateLimited},
	})
}

// Close lets the connections go.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vendor.Close()
	if c.nova != nil {
		c.nova.Close()
	}
	return nil
}
