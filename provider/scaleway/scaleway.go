// Package scaleway is the driver for Scaleway: Elastic Metal, and instances, which are virtual, where the account's config has an image for them.
//
// It owns how a project there is read and how its servers are ordered and deleted, with the vendor's own SDK. It refuses to know how HTTP fails,
// which package vendor does, and how an agent gets onto a server, which package ssh does. The invariant: names and tags are not unique there, so
// an order goes out once and is never repeated; its tag is what finds what came of it.
package scaleway

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name        = "scaleway"
	vendorName  = "Scaleway"
	ownEndpoint = "https://api.scaleway.com"
	defaultOS   = "Ubuntu 24.04"

	defaultVolumeGB = 20
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL that the API's paths, /baremetal/v1/..., come after; empty means Scaleway's own.
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
		SecretFields: []string{}, // secretKey and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag:    30 * time.Second,
		ClaimLimit: map[model.MachineKind]time.Duration{model.Metal: 2 * time.Hour},
		Typical:    map[model.MachineKind]time.Duration{model.VPS: 3 * time.Minute, model.Metal: 15 * time.Minute},
		Wipes:      []string{"An agent that is on the server already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "deletes",
			TestedAgainst: "a fake after recorded answers, through Scaleway's SDK; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	SecretKey        string            `json:"secretKey"`
	ProjectID        string            `json:"projectId"`
	Zones            []scw.Zone        `json:"zones"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	SSHKeyIDs        []string          `json:"sshKeyIds"`
	OS               string            `json:"os"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
	InstanceImage    string            `json:"instanceImage"`
	InstanceVolumeGB uint32            `json:"instanceVolumeGB"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.OS, c.InstanceVolumeGB = cmp.Or(c.OS, defaultOS), cmp.Or(c.InstanceVolumeGB, defaultVolumeGB)
	chosen := c.Zones
	if len(chosen) == 0 {
		c.Zones = (*baremetal.API)(nil).Zones()
	}
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	made := &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout, Code: codeOf, Codes: codes,
		}),
	}
	made.Fleet = ssh.Fleet{Account: account, PrivateKey: c.SSHPrivateKey, Fingerprints: c.HostFingerprints, Field: "hostFingerprints", Find: made.find}
	made.virtual = newVirtual(made, chosen)
	return made, nil
}

// codes are the types of Scaleway's errors. It has some under several statuses.
var codes = map[string]provider.Class{
	"denied_authentication": provider.Auth,
	"permissions_denied":    provider.Forbidden,
	"not_found":             provider.NotFound,
	"resource_expired":      provider.NotFound,
	"quotas_exceeded":       provider.Quota,
	"out_of_stock":          provider.OutOfStock,
	"transient_state":       provider.Conflict,
	"locked":                provider.Conflict,
	"precondition_failed":   provider.Conflict, // something else must end first
	"too_many_requests":     provider.RateLimited,
	notDelivered:            provider.Conflict,
}

// notDelivered stands for a refusal that has no type, only these words: "Server is not delivered".
const notDelivered = "not_delivered"

// codeOf finds the type in the body of a refusal, which most of the SDK's errors give out. The others are of one type each.
func codeOf(err error) string {
	if _, ok := errors.AsType[*scw.PreconditionFailedError](err); ok {
		return "precondition_failed"
	}
	if _, ok := errors.AsType[*scw.DeniedAuthenticationError](err); ok {
		return "denied_authentication"
	}
	if _, ok := errors.AsType[*scw.ResourceExpiredError](err); ok {
		return "resource_expired"
	}
	var told interface {
		error
		GetRawBody() json.RawMessage
	}
	if !errors.As(err, &told) {
		return ""
	}
	var body struct{ Type, Message string }
	if json.Unmarshal(told.GetRawBody(), &body) != nil {
		return ""
	}
	if body.Type == "" && strings.Contains(body.Message, "not delivered") {
		return notDelivered
	}
	return body.Type
}

// client is one version of one account.
type client struct {
	ssh.Fleet
	endpoint string
	account  provider.Account
	config   config
	vendor   *vendor.Vendor
	virtual  *virtual
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

// authorized shows the secret key. The SDK's own way wants the access key too, and writes a key that has not the form of one into its error.
type authorized struct {
	http *http.Client
	key  string
}

// Do makes a request.
func (a authorized) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Auth-Token", a.key)
	return a.http.Do(r) //nolint:gosec // the SDK made the URL, and the vendor's client goes to its origins alone
}

// sdk makes Scaleway's client with the key as it is now. It repeats nothing.
func (c *client) sdk(ctx context.Context) (*scw.Client, error) {
	key, err := c.account.Secret(ctx, c.config.SecretKey)
	if err != nil {
		return nil, err
	}
	sdk, err := scw.NewClient(scw.WithoutAuth(), scw.WithHTTPClient(authorized{c.vendor.HTTP(), key}), scw.WithAPIURL(c.endpoint), scw.WithUserAgent("compute"))
	if err != nil {
		return nil, fmt.Errorf("making the SDK's client: %w", err)
	}
	return sdk, nil
}

func (c *client) read(ctx context.Context, calls func(*baremetal.API, scw.RequestOption) error) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.with(ctx, calls) })
}

func (c *client) change(ctx context.Context, call func(*baremetal.API, scw.RequestOption) error) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.with(ctx, call) })
}

func (c *client) with(ctx context.Context, call func(*baremetal.API, scw.RequestOption) error) error {
	return c.using(ctx, func(sdk *scw.Client, o scw.RequestOption) error { return call(baremetal.NewAPI(sdk), o) })
}

func (c *client) using(ctx context.Context, call func(*scw.Client, scw.RequestOption) error) error {
	sdk, err := c.sdk(ctx)
	if err != nil {
		return err
	}
	err = call(sdk, scw.WithContext(ctx))
	if missing, ok := errors.AsType[*scw.ResourceNotFoundError](err); ok && missing == nil {
		return errMissing // the SDK's own is a nil pointer when it does not find the id in the words, and panics when it is read
	}
	return err
}

var errMissing = errors.New("there is no such resource")

// Check asks for one server, which any key that is of use may.
func (c *client) Check(ctx context.Context) error {
	if len(c.config.Zones) == 0 {
		return c.virtual.check(ctx)
	}
	return c.read(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		_, err := sdk.ListServers(&baremetal.ListServersRequest{Zone: c.config.Zones[0], ProjectID: &c.config.ProjectID, PageSize: new(uint32(1))}, o)
		return err
	})
}

const perPage = 100 // the most that Scaleway gives

var errNoList = errors.New("the answer is no list")

// pages reads every page of a list. Scaleway says how many items there are in all; none of them is nil where there is none.
func pages[T any](c *client, list func(page *int32, size *uint32) (items []*T, total uint32, err error)) ([]*T, error) {
	came := 0
	return vendor.Pages(c.vendor, func(number int) ([]*T, int, error) {
		items, total, err := list(new(int32(number)), new(uint32(perPage))) //nolint:gosec // at most 1000
		switch {
		case err != nil:
			return nil, 0, err
		case items == nil:
			return nil, 0, errNoList // and not an empty one
		}
		came += len(items)
		next := number + 1
		if len(items) == 0 || came >= int(total) {
			next = 0
		}
		return slices.DeleteFunc(items, func(i *T) bool { return i == nil }), next, nil
	})
}

// everywhere reads a list of each zone.
func everywhere[T any](ctx context.Context, c *client, list func(*baremetal.API, scw.RequestOption, scw.Zone) ([]*T, error)) (all []*T, err error) {
	err = c.read(ctx, func(sdk *baremetal.API, o scw.RequestOption) error {
		for _, zone := range c.config.Zones {
			items, err := list(sdk, o, zone)
			if err != nil {
				return err
			}
			all = append(all, items...)
		}
		return nil
	})
	return all, err
}
