// Package digitalocean is the driver for DigitalOcean.
//
// It owns how an account there is read and how its droplets are ordered and destroyed, with the vendor's own SDK. It refuses to know how HTTP
// fails, which package vendor does, and how an agent gets onto a droplet, which package ssh does. The invariant: names and tags are not
// unique there, so an order goes out once and is never repeated; its tag is what finds what came of it.
package digitalocean

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name            = "digitalocean"
	vendorName      = "DigitalOcean"
	ownEndpoint     = "https://api.digitalocean.com/"
	defaultImage    = "ubuntu-24-04-x64"
	defaultGPUImage = "gpu-h100x1-base"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL that the API's paths, /v2/..., come after; empty means DigitalOcean's own.
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
	o.Endpoint = strings.TrimSuffix(cmp.Or(o.Endpoint, ownEndpoint), "/") + "/"
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // apiToken and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag: 30 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 3 * time.Minute},
		Wipes:   []string{"An agent that is on the droplet already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "destroys",
			TestedAgainst: "a fake held to DigitalOcean's API description, through DigitalOcean's SDK; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIToken         string            `json:"apiToken"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	SSHKeyIDs        []int             `json:"sshKeyIds"`
	Image            string            `json:"image"`
	GPUImage         string            `json:"gpuImage"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.Image, c.GPUImage = cmp.Or(c.Image, defaultImage), cmp.Or(c.GPUImage, defaultGPUImage)
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	made := &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout,
			Rate: vendor.Rate{PerSecond: 5000.0 / 3600, Burst: 250}, // 5000 an hour, and 250 a minute
		}),
	}
	made.Fleet = ssh.Fleet{Account: account, PrivateKey: c.SSHPrivateKey, Fingerprints: c.HostFingerprints, Field: "hostFingerprints", Find: made.find}
	return made, nil
}

// client is one version of one account.
type client struct {
	ssh.Fleet
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

// sdk makes DigitalOcean's client with the token as it is now. Made by New it never repeats a request; by NewFromToken it would.
func (c *client) sdk(ctx context.Context) (*godo.Client, error) {
	token, err := c.account.Secret(ctx, c.config.APIToken)
	if err != nil {
		return nil, err
	}
	sdk, err := godo.New(
		c.vendor.HTTP(), godo.SetBaseURL(c.endpoint), godo.SetUserAgent("compute"), godo.SetRequestHeaders(map[string]string{"Authorization": "Bearer " + token}),
	)
	if err != nil {
		return nil, fmt.Errorf("making the SDK's client: %w", err)
	}
	return sdk, nil
}

func (c *client) read(ctx context.Context, calls func(context.Context, *godo.Client) error) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.with(ctx, calls) })
}

func (c *client) change(ctx context.Context, call func(context.Context, *godo.Client) error) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.with(ctx, call) })
}

func (c *client) with(ctx context.Context, call func(context.Context, *godo.Client) error) error {
	sdk, err := c.sdk(ctx)
	if err != nil {
		return err
	}
	return call(ctx, sdk)
}

// Check asks for one droplet, which any token that is of use may.
func (c *client) Check(ctx context.Context) error {
	return c.read(ctx, func(ctx context.Context, sdk *godo.Client) error {
		_, _, err := sdk.Droplets.List(ctx, &godo.ListOptions{PerPage: 1})
		return err
	})
}

const perPage = 200 // the most that DigitalOcean gives

var errNoList = errors.New("the answer is no list")

// pages reads every page of a list.
func pages[T any](c *client, list func(*godo.ListOptions) ([]T, *godo.Response, error)) ([]T, error) {
	return vendor.Pages(c.vendor, func(number int) ([]T, int, error) {
		items, r, err := list(&godo.ListOptions{Page: number, PerPage: perPage})
		if err != nil {
			return nil, 0, err
		}
		if r == nil || r.Meta == nil {
			return nil, 0, errNoList // and not an empty one
		}
		next, err := nextPage(r.Links)
		return items, next, err
	})
}

// nextPage reads the number in the link to the next page. The link itself is not followed: it could lead anywhere.
func nextPage(l *godo.Links) (int, error) {
	if l == nil || l.Pages == nil || l.Pages.Next == "" {
		return 0, nil
	}
	link, err := url.Parse(l.Pages.Next)
	if err != nil {
		return 0, errNoList
	}
	return strconv.Atoi(link.Query().Get("page"))
}
