// Package hetznerrobot is the driver for Hetzner Robot: dedicated servers, off the shelf and from the server auction.
//
// It owns how Robot's web service is called, how servers are ordered and cancelled there, and how they are brought into the rescue system. It
// refuses to know how HTTP fails, which package vendor does, and what is done on a server, which package ssh does. The invariant: an order
// goes out once and is never repeated; the key that it carries, which opens nothing and is of one operation, is what finds what came of it.
package hetznerrobot

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
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
	name         = "hetzner-robot"
	vendorName   = "Hetzner Robot"
	ownEndpoint  = "https://robot-ws.your-server.de"
	defaultImage = "Debian-13"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL that the API's paths, /server and others, come after; empty means Hetzner's own.
	Endpoint string
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
	// Now is the clock that blocked logins and booting servers are waited for with; nil means the system's.
	Now func() time.Time
}

// Driver makes clients. Make one with New.
type Driver struct {
	options Options
	logins  *logins
	boots   *boots
}

// New makes the driver.
func New(o Options) *Driver {
	o.Endpoint = strings.TrimSuffix(cmp.Or(o.Endpoint, ownEndpoint), "/")
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Driver{options: o, logins: newLogins(o.Now), boots: newBoots(o.Now)}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // password and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true,
			LiveStock: true, // of the auction; nothing is told of the rest
			ClaimMode: model.ClaimLabel,
		},
		ListLag:    2 * time.Minute,
		ClaimLimit: map[model.MachineKind]time.Duration{model.Metal: 72 * time.Hour},
		Typical:    map[model.MachineKind]time.Duration{model.Metal: 45 * time.Minute},
		Wipes: []string{
			"Everything on the disk that the system is installed on, and on the one that mirrors it, unless this account installed the system that runs: then only its agent goes.",
		},
		About: provider.About{
			GPUs: true, Installs: "rescue system and installimage, then SSH", GivesBack: "cancels, at the earliest date",
			TestedAgainst: "a fake after Hetzner's own examples; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	User          string `json:"user"`
	Password      string `json:"password"`
	SSHPrivateKey string `json:"sshPrivateKey"`
	Image         string `json:"image"`
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
		driver: d, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout,
			Rate: vendor.Rate{PerSecond: 0.3, Burst: 200}, Code: codeOf, Codes: codes,
		}),
	}, nil
}

// told is how Robot refuses.
type told struct {
	Code string `json:"code"`
	// Interval is how many seconds a limit is for.
	Interval number `json:"interval"`
	// Missing and Invalid name parameters.
	Missing []text `json:"missing"`
	Invalid []text `json:"invalid"`
}

func refusalOf(err error) told {
	var body struct {
		Error told `json:"error"`
	}
	if refused, ok := errors.AsType[*vendor.Refusal](err); ok {
		_ = json.Unmarshal(refused.Body, &body) // what is in no form says nothing
	}
	return body.Error
}

func codeOf(err error) string { return refusalOf(err).Code }

const rateLimitExceeded = "RATE_LIMIT_EXCEEDED"

var codes = map[string]provider.Class{
	rateLimitExceeded:      provider.RateLimited, // with the status 403
	"SERVER_NOT_FOUND":     provider.NotFound,
	"NOT_FOUND":            provider.NotFound,
	"CONFLICT":             provider.Conflict,
	"RESET_MANUAL_ACTIVE":  provider.Conflict,
	"BOOT_ALREADY_ENABLED": provider.Conflict,
	"BOOT_BLOCKED":         provider.Conflict,
	// These are about the server and have the status 404.
	"RESET_NOT_AVAILABLE": provider.Unsupported,
	"BOOT_NOT_AVAILABLE":  provider.Unsupported,
}

// client is one version of one account.
type client struct {
	driver  *Driver
	account provider.Account
	config  config
	vendor  *vendor.Vendor
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

// get reads a path into out.
func (c *client) get(ctx context.Context, path string, out any) error {
	return c.send(ctx, c.vendor.Read, http.MethodGet, path, nil, out)
}

// set makes a change that can be made again without harm, so its failures are those of a call that changes nothing.
func (c *client) set(ctx context.Context, method, path string, form url.Values) error {
	return c.send(ctx, c.vendor.Read, method, path, form, nil)
}

// change makes one that costs or saves money.
func (c *client) change(ctx context.Context, path string, form url.Values, out any) error {
	return c.send(ctx, c.vendor.Change, http.MethodPost, path, form, out)
}

// judged is Read or Change of package vendor.
type judged = func(context.Context, func(context.Context) error) error

func (c *client) send(ctx context.Context, as judged, method, path string, form url.Values, out any) error {
	err := as(ctx, func(ctx context.Context) error {
		password, err := c.account.Secret(ctx, c.config.Password)
		if err != nil {
			return err
		}
		credentials := c.config.User + ":" + password
		return c.driver.logins.with(ctx, credentials, func() error {
			header := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))}}
			return c.vendor.JSON(ctx, vendor.Request{Method: method, URL: c.driver.options.Endpoint + path, Header: header, Form: form}, out)
		})
	})
	refused, ok := errors.AsType[*provider.Error](err)
	if ok && refused.Class == provider.RateLimited && refused.RetryAfter == 0 {
		refused.RetryAfter = waitOf(refusalOf(err))
	}
	return err
}

// waitOf is how long to wait for the limit. Robot says how long its interval is and not when it began: a tenth of it is asked for at a time.
func waitOf(t told) time.Duration {
	return time.Duration(min(max(float64(t.Interval), 0), (24*time.Hour).Seconds()) / 10 * float64(time.Second))
}

// Check asks for the account's SSH keys, which any web service user may, and is a short list.
func (c *client) Check(ctx context.Context) error {
	_, err := list[struct {
		Key *key `json:"key"`
	}](ctx, c, "/key")
	return err
}

var errNoList = errors.New("the answer is no list")

// list reads a list. Robot has no pages, and says of an empty list that it is not found.
func list[T any](ctx context.Context, c *client, path string) ([]T, error) {
	var all []T
	err := c.get(ctx, path, &all)
	refused, ok := errors.AsType[*provider.Error](err)
	switch {
	case ok && (refused.Code == "NOT_FOUND" || refused.Code == "SERVER_NOT_FOUND"):
		return nil, nil
	case err != nil:
		return nil, err
	case all == nil:
		return nil, c.vendor.Errorf(provider.InvalidResponse).Because(errNoList)
	}
	return all, nil
}
