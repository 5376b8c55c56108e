// Package lambda is the driver for Lambda Cloud.
//
// It owns how an account there is read and how its instances are launched and terminated. It refuses to know how HTTP fails, which package
// vendor does, and how an agent gets onto an instance, which package ssh does. The invariant: names and tags are not unique there, so an order
// goes out once and is never repeated; its tag is what finds what came of it.
package lambda

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
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
	name        = "lambda"
	vendorName  = "Lambda"
	ownEndpoint = "https://cloud.lambda.ai/api/v1"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of the API, with its version; empty means Lambda's own.
	Endpoint string
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
	// Rate is what Lambda lets an account ask; zero is the one call a second that it says.
	Rate vendor.Rate
}

// Driver makes clients. Make one with New.
type Driver struct{ options Options }

// New makes the driver.
func New(o Options) *Driver {
	o.Endpoint = strings.TrimSuffix(cmp.Or(o.Endpoint, ownEndpoint), "/")
	o.Rate = cmp.Or(o.Rate, vendor.Rate{PerSecond: 1, Burst: 3})
	return &Driver{o}
}

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  "Lambda Cloud",
		ConfigSchema: configSchema,
		SecretFields: []string{}, // apiKey and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag:    30 * time.Second,
		ClaimLimit: map[model.MachineKind]time.Duration{model.VPS: 40 * time.Minute},
		Typical:    map[model.MachineKind]time.Duration{model.VPS: 10 * time.Minute},
		Wipes:      []string{"An agent that is on the instance already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "terminates",
			TestedAgainst: "a fake held to Lambda's API description; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIKey           string            `json:"apiKey"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	SSHKeyName       string            `json:"sshKeyName"`
	ImageFamily      string            `json:"imageFamily"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	made := &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout, Rate: d.options.Rate,
			Code: errorCode, Codes: codes,
		}),
	}
	made.Fleet = ssh.Fleet{Account: account, PrivateKey: c.SSHPrivateKey, Fingerprints: c.HostFingerprints, Field: "hostFingerprints", Find: made.find}
	return made, nil
}

// refusal is what Lambda says against a request.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func told(err error) refusal {
	refused, ok := errors.AsType[*vendor.Refusal](err)
	if !ok {
		return refusal{}
	}
	var body struct {
		Error refusal `json:"error"`
	}
	if json.Unmarshal(refused.Body, &body) != nil {
		return refusal{} // the status says enough
	}
	return body.Error
}

func errorCode(err error) string { return told(err).Code }

const (
	codeUnknownObject = "global/object-does-not-exist"
	codeInvalid       = "global/invalid-parameters"
)

var codes = map[string]provider.Class{
	"global/invalid-api-key":                           provider.Auth,
	"global/account-inactive":                          provider.Forbidden,
	"global/invalid-address":                           provider.Payment, // the one that bills go to
	"global/quota-exceeded":                            provider.Quota,
	codeUnknownObject:                                  provider.NotFound,
	"instance-operations/launch/insufficient-capacity": provider.OutOfStock,
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

// answer is what all answers are like.
type answer[T any] struct {
	Data *T `json:"data"`
}

// get reads what is at the path.
func get[T any](ctx context.Context, c *client, path string) (*T, error) {
	var a answer[T]
	err := c.vendor.Read(ctx, func(ctx context.Context) error { return c.ask(ctx, http.MethodGet, path, nil, &a) })
	if err == nil && a.Data == nil {
		err = c.vendor.Errorf(provider.InvalidResponse)
	}
	return a.Data, err
}

// post makes the one request that changes something.
func post[T any](ctx context.Context, c *client, path string, body any) (*T, error) {
	var a answer[T]
	err := c.vendor.Change(ctx, func(ctx context.Context) error { return c.ask(ctx, http.MethodPost, path, body, &a) })
	if err == nil && a.Data == nil {
		err = c.vendor.Errorf(provider.UnknownOutcome)
	}
	return a.Data, err
}

func (c *client) ask(ctx context.Context, method, path string, body, out any) error {
	key, err := c.account.Secret(ctx, c.config.APIKey)
	if err != nil {
		return err
	}
	return c.vendor.JSON(ctx, vendor.Request{
		Method: method, URL: c.endpoint + path, Header: http.Header{"Authorization": {"Bearer " + key}}, Body: body,
	}, out)
}

// Check lists the instances, which any key may.
func (c *client) Check(ctx context.Context) error {
	_, err := get[[]instance](ctx, c, "/instances")
	return err
}
