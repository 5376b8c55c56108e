// Package linode is the driver for Linode, which is Akamai's cloud now.
//
// It owns how an account there is read and how its Linodes are ordered, rebuilt and deleted. It refuses to know how HTTP fails; package vendor
// does. The invariant: a Linode's label is the operation that ordered it, and labels are unique in an account, so no operation ever has two
// Linodes, whatever gets lost.
//
// It does without the vendor's SDK, which forgets what ended a call, and takes a failure whose body names no error for a success.
package linode

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name         = "linode"
	vendorName   = "Linode"
	ownEndpoint  = "https://api.linode.com/v4"
	defaultImage = "linode/debian12"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of the API, with its version; empty means Linode's own.
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
	o.Endpoint = strings.TrimSuffix(cmp.Or(o.Endpoint, ownEndpoint), "/")
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  "Linode (Akamai)",
		ConfigSchema: configSchema,
		SecretFields: []string{}, // apiToken is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimUniqueName,
		},
		ListLag: 10 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 4 * time.Minute},
		Wipes:   []string{"Everything on the Linode's own disks: they are deleted, and made again from the image. Attached volumes stay as they are."},
		About: provider.About{
			GPUs: true, Installs: "rebuild with user data", GivesBack: "deletes",
			TestedAgainst: "a fake held to Linode's API description; Linode's recordings",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIToken      string   `json:"apiToken"`
	Image         string   `json:"image"`
	SSHAuthorized []string `json:"sshAuthorized"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.Image = cmp.Or(c.Image, defaultImage)
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	return &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout,
			Rate: vendor.Rate{PerSecond: 10, Burst: 400}, // 800 a minute, less for some calls, which their answers tell
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

// get reads what is at the path. The filter is what Linode takes of conditions; nil is none.
func (c *client) get(ctx context.Context, path string, filter, out any) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.ask(ctx, http.MethodGet, path, filter, nil, out) })
}

// change makes the one request that changes something.
func (c *client) change(ctx context.Context, method, path string, body, out any) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.ask(ctx, method, path, nil, body, out) })
}

func (c *client) ask(ctx context.Context, method, path string, filter, body, out any) error {
	token, err := c.account.Secret(ctx, c.config.APIToken)
	if err != nil {
		return err
	}
	header := http.Header{"Authorization": {"Bearer " + token}}
	if filter != nil {
		text, err := json.Marshal(filter)
		if err != nil {
			return fmt.Errorf("encoding a filter: %w", err)
		}
		header.Set("X-Filter", string(text))
	}
	err = c.vendor.JSON(ctx, vendor.Request{Method: method, URL: c.endpoint + path, Header: header, Body: body}, out)
	for _, r := range reasons(err) {
		if strings.Contains(strings.ToLower(r.Reason), "linode busy") {
			return c.vendor.Errorf(provider.Conflict).Because(err)
		}
	}
	return err
}

// reason is one of what Linode says against a request. There are no codes.
type reason struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

func reasons(err error) []reason {
	refused, ok := errors.AsType[*vendor.Refusal](err)
	if !ok {
		return nil
	}
	var told struct {
		Errors []reason `json:"errors"`
	}
	if json.Unmarshal(refused.Body, &told) != nil {
		return nil // the status says enough
	}
	return told.Errors
}

// page is a page of a list.
type page[T any] struct {
	Data  *[]T `json:"data"`
	Page  int  `json:"page"`
	Pages int  `json:"pages"`
}

const perPage = 500 // the most that Linode gives

// list reads every page of the list at the path.
func list[T any](ctx context.Context, c *client, path string, filter any) ([]T, error) {
	return vendor.Pages(c.vendor, func(number int) ([]T, int, error) {
		var p page[T]
		if err := c.get(ctx, fmt.Sprintf("%s?page=%d&page_size=%d", path, number, perPage), filter, &p); err != nil {
			return nil, 0, err
		}
		if p.Data == nil || p.Page != number {
			return nil, 0, c.vendor.Errorf(provider.InvalidResponse) // another page is no answer to the question
		}
		if number >= p.Pages {
			return *p.Data, 0, nil
		}
		return *p.Data, number + 1, nil
	})
}

// Check asks for one Linode, which any token that is of use may.
func (c *client) Check(ctx context.Context) error {
	var p page[instance]
	return c.get(ctx, "/linode/instances?page=1&page_size=25", nil, &p) // 25 is the least
}
