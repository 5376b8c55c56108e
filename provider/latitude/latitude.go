// Package latitude is the driver for Latitude.sh.
//
// It owns how a project there is read and how its servers are ordered and removed. It refuses to know how HTTP fails, which package vendor does,
// and how an agent gets onto a server, which package ssh does. The invariant: host names are not unique there, so an order goes out once and is
// never repeated; its host name is what finds what came of it.
package latitude

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
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
	name          = "latitude"
	vendorName    = "Latitude.sh"
	ownEndpoint   = "https://api.latitude.sh"
	defaultSystem = "ubuntu_24_04_x64_lts"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL that the API's paths, /servers and others, come after; empty means Latitude.sh's own.
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
		SecretFields: []string{}, // apiToken and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: model.ClaimLabel,
		},
		ListLag:    time.Minute,
		ClaimLimit: map[model.MachineKind]time.Duration{model.Metal: 2 * time.Hour},
		Typical:    map[model.MachineKind]time.Duration{model.Metal: 15 * time.Minute},
		Wipes:      []string{"An agent that is on the server already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "removes",
			TestedAgainst: "a fake after recorded answers; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	APIToken         string            `json:"apiToken"`
	ProjectID        string            `json:"projectId"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	SSHKeyIDs        []string          `json:"sshKeyIds"`
	OperatingSystem  string            `json:"operatingSystem"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.OperatingSystem = cmp.Or(c.OperatingSystem, defaultSystem)
	origin, err := vendor.Origin(d.options.Endpoint)
	if err != nil {
		return nil, err
	}
	made := &client{
		endpoint: d.options.Endpoint, account: account, config: c,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: []string{origin}, Networks: d.options.Networks, Timeout: d.options.Timeout, Code: codeOf,
			Codes: map[string]provider.Class{"SERVERS_OUT_OF_STOCK": provider.OutOfStock},
		}),
	}
	made.Fleet = ssh.Fleet{Account: account, PrivateKey: c.SSHPrivateKey, Fingerprints: c.HostFingerprints, Field: "hostFingerprints", Find: made.find}
	return made, nil
}

// codeOf finds the first code in the form of JSON:API.
func codeOf(err error) string {
	told, ok := errors.AsType[*vendor.Refusal](err)
	if !ok {
		return ""
	}
	var body struct{ Errors []struct{ Code string } }
	if json.Unmarshal(told.Body, &body) != nil || len(body.Errors) == 0 {
		return ""
	}
	return body.Errors[0].Code
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

// send makes one request. Call it within Read or Change.
func (c *client) send(ctx context.Context, method, path string, query url.Values, body, out any) error {
	token, err := c.account.Secret(ctx, c.config.APIToken)
	if err != nil {
		return err
	}
	address := c.endpoint + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return c.vendor.JSON(ctx, vendor.Request{Method: method, URL: address, Header: http.Header{"Authorization": {"Bearer " + token}}, Body: body}, out)
}

// item is what JSON:API wraps everything in.
type item[T any] struct {
	ID         string `json:"id"`
	Attributes T      `json:"attributes"`
}

// document is a request or an answer about one thing.
type document[T any] struct {
	Data T `json:"data"`
}

// creation is a thing to make.
type creation struct {
	Type       string         `json:"type"`
	Attributes map[string]any `json:"attributes"`
}

// Check asks for one server, which any key that is of use may.
func (c *client) Check(ctx context.Context) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodGet, "/servers", url.Values{"filter[project]": {c.config.ProjectID}, "page[size]": {"1"}}, nil, &document[[]item[server]]{})
	})
}

const perPage = 100 // the most that Latitude.sh gives

var errNoList = errors.New("the answer is no list")

// list reads every page of a list, and each item once. Latitude.sh does not say how many there are: the list ends with a page that has
// nothing new.
func list[T any](ctx context.Context, c *client, path string, query url.Values) (all []item[T], err error) {
	seen := map[string]bool{}
	err = c.vendor.Read(ctx, func(ctx context.Context) error {
		all, err = vendor.Pages(c.vendor, func(number int) ([]item[T], int, error) {
			asked := url.Values{"page[size]": {strconv.Itoa(perPage)}, "page[number]": {strconv.Itoa(number)}}
			maps.Copy(asked, query)
			var page document[[]item[T]]
			if err := c.send(ctx, http.MethodGet, path, asked, nil, &page); err != nil {
				return nil, 0, err
			}
			if page.Data == nil {
				return nil, 0, errNoList // and not an empty one
			}
			fresh := []item[T]{}
			for _, i := range page.Data {
				if i.ID != "" && !seen[i.ID] {
					seen[i.ID] = true
					fresh = append(fresh, i)
				}
			}
			if len(fresh) == 0 {
				return fresh, 0, nil
			}
			return fresh, number + 1, nil
		})
		return err
	})
	return all, err
}
