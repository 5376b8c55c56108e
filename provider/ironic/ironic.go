// Package ironic is the driver for OpenStack Ironic that runs by itself: an operator's own bare metal.
//
// It owns how nodes become offers and machines, and how one is allocated, deployed, rebuilt and given back, with gophercloud. It refuses to
// know how HTTP fails; package vendor does. The invariant: an allocation's name is the operation that asked for it, and Ironic takes
// a name once, so no operation ever has two nodes, whatever gets lost.
package ironic

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name       = "ironic"
	vendorName = "Ironic"
	// microversion is of the release Ussuri. It has all that is used: allocations, and config drives that Ironic makes.
	microversion = "1.65"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of the API, which ends in /v1.
	Endpoint string
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
}

// Driver makes clients. Make one with New.
type Driver struct{ options Options }

// New makes the driver.
func New(o Options) *Driver { return &Driver{o} }

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  "Bare metal by Ironic",
		ConfigSchema: configSchema,
		SecretFields: []string{}, // password is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimUniqueName,
		},
		ListLag: 10 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.Metal: 15 * time.Minute},
		Wipes:   []string{"The disk of the machine that its image goes to: it is written anew."},
		About: provider.About{
			GPUs: true, Installs: "deployment with a config drive", GivesBack: "undeploys, and Ironic cleans it",
			TestedAgainst: "Ironic itself with fake hardware; a fake and recordings for what goes wrong",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	Username    string  `json:"username"`
	Password    string  `json:"password"`
	Region      string  `json:"region"`
	ImageURL    string  `json:"imageUrl"`
	ImageSHA256 string  `json:"imageSha256"`
	Prices      []price `json:"prices"`
}

type price struct {
	ResourceClass string `json:"resourceClass"`
	Currency      string `json:"currency"`
	Hourly        string `json:"hourly"`
	Monthly       string `json:"monthly"`
}

// Open makes a client for an account. It calls nobody. It refuses, as InvalidConfig, a resource class with two prices.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.Region = cmp.Or(c.Region, "default")
	priced := map[string]bool{}
	for _, p := range c.Prices {
		if priced[p.ResourceClass] {
			return nil, provider.Errorf(provider.InvalidConfig, "The config has two prices for the resource class %s.", provider.Clean(p.ResourceClass))
		}
		priced[p.ResourceClass] = true
	}
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	return &client{
		endpoint: gophercloud.NormalizeURL(d.options.Endpoint), account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout, RequestID: "Openstack-Request-Id",
		}),
	}, nil
}

// client is one version of one account.
type client struct {
	endpoint string
	account  provider.Account
	config   config
	vendor   *vendor.Vendor
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// Close lets the connections go.
func (c *client) Close() error {
	c.vendor.Close()
	return nil
}

// sdk makes gophercloud's client with the password as it is now. It never repeats a request.
func (c *client) sdk(ctx context.Context) (*gophercloud.ServiceClient, error) {
	sdk := &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{HTTPClient: *c.vendor.HTTP()},
		Endpoint:       c.endpoint, Type: "baremetal", Microversion: microversion,
	}
	if c.config.Username == "" {
		return sdk, nil
	}
	password, err := c.account.Secret(ctx, c.config.Password)
	if err != nil {
		return nil, err
	}
	login := base64.StdEncoding.EncodeToString([]byte(c.config.Username + ":" + password))
	sdk.MoreHeaders = map[string]string{"Authorization": "Basic " + login}
	return sdk, nil
}

func (c *client) read(ctx context.Context, calls func(context.Context, *gophercloud.ServiceClient) error) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.with(ctx, calls) })
}

func (c *client) change(ctx context.Context, call func(context.Context, *gophercloud.ServiceClient) error) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.with(ctx, call) })
}

func (c *client) with(ctx context.Context, call func(context.Context, *gophercloud.ServiceClient) error) error {
	sdk, err := c.sdk(ctx)
	if err != nil {
		return err
	}
	return call(ctx, sdk)
}
