// Package hetznercloud is the driver for Hetzner Cloud.
//
// It owns how a project there is read and how its servers are ordered, rebuilt and deleted, with the vendor's own SDK. It refuses to know
// how HTTP fails; package vendor does. The invariant: a server's name is the operation that ordered it, and names are unique in a project, so
// no operation ever has two servers, whatever gets lost.
package hetznercloud

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name         = "hetzner-cloud"
	vendorName   = "Hetzner Cloud"
	defaultImage = "debian-13"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of the API; empty means Hetzner's own.
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
	o.Endpoint = cmp.Or(o.Endpoint, hcloud.Endpoint)
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // apiToken is one by its name
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimUniqueName,
		},
		ListLag: 10 * time.Second,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 3 * time.Minute},
		Wipes:   []string{"Everything on the server's own disk: it is rebuilt from the image. Attached volumes stay as they are."},
		About: provider.About{
			Installs: "rebuild with user data", GivesBack: "deletes", TestedAgainst: "a fake held to Hetzner's API description, through Hetzner's SDK",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIToken  string  `json:"apiToken"`
	Image     string  `json:"image"`
	SSHKeyIDs []int64 `json:"sshKeyIds"`
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
			Rate: vendor.Rate{PerSecond: 1, Burst: 3600}, RequestID: "X-Correlation-Id", Code: errorCode, Codes: codes,
		}),
	}, nil
}

func errorCode(err error) string {
	if e, ok := errors.AsType[hcloud.Error](err); ok {
		return string(e.Code)
	}
	return ""
}

var codes = map[string]provider.Class{
	string(hcloud.ErrorCodeUnauthorized):          provider.Auth,
	string(hcloud.ErrorCodeForbidden):             provider.Forbidden,
	"token_readonly":                              provider.Forbidden,
	string(hcloud.ErrorCodeNotFound):              provider.NotFound,
	string(hcloud.ErrorCodeLocked):                provider.Conflict,
	string(hcloud.ErrorCodeConflict):              provider.Conflict,
	string(hcloud.ErrorCodeResourceUnavailable):   provider.OutOfStock,
	string(hcloud.ErrorCodePlacementError):        provider.OutOfStock,
	string(hcloud.ErrorCodeInvalidServerType):     provider.OfferGone,
	string(hcloud.ErrorCodeResourceLimitExceeded): provider.Quota,
	string(hcloud.ErrorCodeRateLimitExceeded):     provider.RateLimited,
	string(hcloud.ErrorCodeMaintenance):           provider.Unavailable,
	string(hcloud.ErrorUnsupportedError):          provider.Unsupported,
	// These are about the server and not about the token, in spite of their status.
	string(hcloud.ErrorCodeProtected):      provider.Fatal,
	string(hcloud.ErrorCodeResourceLocked): provider.Fatal,
	// The name is the operation's, so it has ordered before: look for what.
	string(hcloud.ErrorCodeUniquenessError): provider.UnknownOutcome,
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

// sdk makes Hetzner's client with the token as it is now. It never repeats a request.
func (c *client) sdk(ctx context.Context) (*hcloud.Client, error) {
	token, err := c.account.Secret(ctx, c.config.APIToken)
	if err != nil {
		return nil, err
	}
	return hcloud.NewClient(
		hcloud.WithEndpoint(c.endpoint), hcloud.WithToken(token), hcloud.WithHTTPClient(c.vendor.HTTP()),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}), hcloud.WithApplication("compute", ""),
	), nil
}

func (c *client) read(ctx context.Context, calls func(context.Context, *hcloud.Client) error) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.with(ctx, calls) })
}

func (c *client) change(ctx context.Context, call func(context.Context, *hcloud.Client) error) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.with(ctx, call) })
}

func (c *client) with(ctx context.Context, call func(context.Context, *hcloud.Client) error) error {
	sdk, err := c.sdk(ctx)
	if err != nil {
		return err
	}
	return call(ctx, sdk)
}

// Check asks for one server, which any token may.
func (c *client) Check(ctx context.Context) error {
	return c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		_, _, err := sdk.Server.List(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{PerPage: 1}})
		return err
	})
}

const perPage = 50 // the most that Hetzner gives

// page gives what vendor.Pages wants of an answer.
func page[T any](items []*T, r *hcloud.Response, err error) ([]*T, int, error) {
	if err != nil || r.Meta.Pagination == nil {
		return items, 0, err
	}
	return items, r.Meta.Pagination.NextPage, nil
}
