// Package vultr is the driver for Vultr: its instances, and its bare metal.
//
// It owns how an account there is read and how its machines are ordered and deleted. It refuses to know how HTTP fails, which package vendor
// does, and how an agent gets onto a machine, which package ssh does. The invariant: labels and tags are not unique there, so an order goes
// out once and is never repeated; its tag is what finds what came of it.
//
// It does without the vendor's SDK, which forgets what ended a call, and takes an answer of a content type that it does not expect for an
// empty one.
package vultr

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name        = "vultr"
	vendorName  = "Vultr"
	ownEndpoint = "https://api.vultr.com/v2"
	defaultOS   = 2136 // Debian 12
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of the API, with its version; empty means Vultr's own.
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
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // apiKey and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag:    30 * time.Second,
		ClaimLimit: map[model.MachineKind]time.Duration{model.Metal: time.Hour},
		Typical:    map[model.MachineKind]time.Duration{model.VPS: 4 * time.Minute, model.Metal: 20 * time.Minute},
		Wipes:      []string{"An agent that is on the machine already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "deletes",
			TestedAgainst: "a fake held to Vultr's API description; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIKey           string            `json:"apiKey"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	SSHKeyIDs        []string          `json:"sshKeyIds"`
	OSID             int               `json:"osId"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.OSID = cmp.Or(c.OSID, defaultOS)
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	made := &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout,
			Rate: vendor.Rate{PerSecond: 20, Burst: 20}, // 30 a second for an address, and no headers tell
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

func (c *client) get(ctx context.Context, path string, out any) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.ask(ctx, http.MethodGet, path, nil, out) })
}

// change makes the one request that changes something.
func (c *client) change(ctx context.Context, method, path string, body, out any) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.ask(ctx, method, path, body, out) })
}

func (c *client) ask(ctx context.Context, method, path string, body, out any) error {
	key, err := c.account.Secret(ctx, c.config.APIKey)
	if err != nil {
		return err
	}
	err = c.vendor.JSON(ctx, vendor.Request{
		Method: method, URL: c.endpoint + path, Header: http.Header{"Authorization": {"Bearer " + key}}, Body: body,
	}, out)
	if strings.Contains(said(err), "locked") {
		return c.vendor.Errorf(provider.Conflict).Because(err)
	}
	return err
}

// said is what Vultr says against a request, in lower case. There are no codes.
func said(err error) string {
	refused, ok := errors.AsType[*vendor.Refusal](err)
	if !ok {
		return ""
	}
	var told struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(refused.Body, &told) != nil {
		return "" // the status says enough
	}
	return strings.ToLower(told.Error)
}

// meta is what comes with each page of a list.
type meta struct {
	Links struct {
		Next string `json:"next"`
	} `json:"links"`
}

const perPage = "500" // the most that Vultr gives

// list reads every page of the list that stands in the field of the answers. Without that field an answer is no list, and not an empty one.
func list[T any](ctx context.Context, c *client, path, field string, query url.Values) ([]T, error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("per_page", perPage)
	return vendor.Cursors(c.vendor, func(cursor string) ([]T, string, error) {
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var answer map[string]json.RawMessage
		if err := c.get(ctx, path+"?"+query.Encode(), &answer); err != nil {
			return nil, "", err
		}
		var items *[]T
		var m meta
		if json.Unmarshal(answer[field], &items) != nil || items == nil || json.Unmarshal(answer["meta"], &m) != nil {
			return nil, "", c.vendor.Errorf(provider.InvalidResponse)
		}
		return *items, m.Links.Next, nil
	})
}

// Check asks for one instance, which any key that is of use may.
func (c *client) Check(ctx context.Context) error {
	var answer map[string]json.RawMessage
	return c.get(ctx, "/instances?per_page=1", &answer)
}
