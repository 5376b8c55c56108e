package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"better/compute/provider"
	"better/compute/provider/vendor"
)

// microversion is of the release Rocky. It has all that is used: rebuilds with user data, and the flavors' extra specs.
const microversion = "2.61"

// session is Nova with a token. Tokens are not kept: a credential that is taken back must not work on.
type session struct {
	nova *vendor.Vendor
	sdk  *gophercloud.ServiceClient
}

// login has Keystone make a token, with the secret as it is now, and finds Nova in the catalog that comes with it.
func (c *client) login(ctx context.Context) (*session, error) {
	var token string
	var catalog *tokens.ServiceCatalog
	err := c.vendor.Read(ctx, func(ctx context.Context) error {
		secret, err := c.account.Secret(ctx, c.config.CredentialSecret)
		if err != nil {
			return err
		}
		keystone := &gophercloud.ServiceClient{ProviderClient: &gophercloud.ProviderClient{HTTPClient: *c.vendor.HTTP()}, Endpoint: c.options.Endpoint + "/"}
		made := tokens.Create(ctx, keystone, &tokens.AuthOptions{ApplicationCredentialID: c.config.CredentialID, ApplicationCredentialSecret: secret})
		if token, err = made.ExtractTokenID(); err != nil {
			return err
		}
		catalog, err = made.ExtractServiceCatalog()
		return err
	})
	if err != nil {
		return nil, err
	}
	endpoint, err := c.novaIn(catalog)
	if err != nil {
		return nil, err
	}
	nova, err := c.novaAt(endpoint)
	switch {
	case err != nil:
		return nil, err
	case token == "":
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	sdk := &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{HTTPClient: *nova.HTTP(), TokenID: token},
		Endpoint:       gophercloud.NormalizeURL(endpoint), Type: "compute", Microversion: microversion,
	}
	return &session{nova, sdk}, nil
}

// novaIn finds the public endpoint of Nova in the account's region.
func (c *client) novaIn(catalog *tokens.ServiceCatalog) (string, error) {
	if catalog == nil || len(catalog.Entries) == 0 {
		return "", c.vendor.Errorf(provider.InvalidResponse)
	}
	for _, service := range catalog.Entries {
		if service.Type != "compute" {
			continue
		}
		for _, e := range service.Endpoints {
			if e.Interface == "public" && (e.RegionID == c.config.Region || e.Region == c.config.Region) {
				return e.URL, nil
			}
		}
	}
	return "", provider.Errorf(provider.InvalidConfig, "%s has no Nova in the region %s; look at the region in the account's config.", vendorName, provider.Clean(c.config.Region))
}

// novaAt calls Nova at the endpoint. Tokens are not sent in the clear where secrets are not.
func (c *client) novaAt(endpoint string) (*vendor.Vendor, error) {
	origin, err := vendor.Origin(endpoint)
	if err != nil || strings.HasPrefix(c.options.Endpoint, "https:") && !strings.HasPrefix(origin, "https:") {
		return nil, c.vendor.Errorf(provider.InvalidResponse).Because(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.novaOrigin != origin {
		if c.nova != nil {
			c.nova.Close() // calls that are under way there come to their end
		}
		c.nova, c.novaOrigin = c.at(origin), origin
	}
	return c.nova, nil
}

func (c *client) read(ctx context.Context, calls func(context.Context, *gophercloud.ServiceClient) error) error {
	s, err := c.login(ctx)
	if err != nil {
		return err
	}
	return s.nova.Read(ctx, func(ctx context.Context) error { return calls(ctx, s.sdk) })
}

// get reads what is at the path.
func (c *client) get(ctx context.Context, path string, out any) error {
	return c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		_, err := sdk.Get(ctx, sdk.ServiceURL(path), out, nil)
		return err
	})
}

// change makes the one request that changes something. A failure to log in is before it.
func (c *client) change(ctx context.Context, call func(context.Context, *gophercloud.ServiceClient) error) error {
	s, err := c.login(ctx)
	if err != nil {
		return provider.NotSent(err)
	}
	return s.nova.Change(ctx, func(ctx context.Context) error { return call(ctx, s.sdk) })
}

// post makes the one request that changes something, with a body.
func (c *client) post(ctx context.Context, path string, body, out any) error {
	return c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		_, err := sdk.Post(ctx, sdk.ServiceURL(path), body, out, nil)
		return err
	})
}

// refusal is what Nova says against a request. The kind follows from the status; the message is for people.
type refusal struct{ kind, message string }

// told reads the refusal in an error; empty when there is none.
func told(err error) refusal {
	refused, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return refusal{}
	}
	var faults map[string]json.RawMessage
	if json.Unmarshal(refused.Body, &faults) != nil || len(faults) != 1 {
		return refusal{} // the status says enough
	}
	for kind, text := range faults {
		var fault struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &fault) == nil && fault.Message != "" {
			return refusal{kind, strings.ToLower(fault.Message)}
		}
	}
	return refusal{}
}

func (r refusal) says(words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(r.message, word) })
}

const perPage = 1000 // the most that Nova gives unless it is set up otherwise

// item is what Nova lists.
type item interface{ id() string }

// list reads every item of the kind, each once. The link to the next page is not followed: it has the host that Nova takes for its own.
func list[T item](ctx context.Context, c *client, kind string) (all []T, err error) {
	err = c.read(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		all, err = vendor.Cursors(c.vendor, func(marker string) ([]T, string, error) {
			query := url.Values{"limit": {strconv.Itoa(perPage)}}
			if marker != "" {
				query.Set("marker", marker)
			}
			var body map[string]json.RawMessage
			if _, err := sdk.Get(ctx, sdk.ServiceURL(kind, "detail")+"?"+query.Encode(), &body, nil); err != nil {
				return nil, "", err
			}
			return page[T](body, kind)
		})
		return err
	})
	seen := map[string]bool{} // a list that moved between two pages tells an item twice
	return slices.DeleteFunc(all, func(i T) bool {
		twice := seen[i.id()]
		seen[i.id()] = true
		return twice
	}), err
}

// page takes a page apart: its items, and the marker of the next.
func page[T item](body map[string]json.RawMessage, kind string) (items []T, marker string, err error) {
	if err := json.Unmarshal(body[kind], &items); err != nil {
		return nil, "", fmt.Errorf("reading a page of %s: %w", kind, err)
	}
	if items == nil {
		return nil, "", fmt.Errorf("a page of %s has none, not even an empty list", kind)
	}
	var links []struct {
		Rel string `json:"rel"`
	}
	if text := body[kind+"_links"]; text != nil {
		if err := json.Unmarshal(text, &links); err != nil {
			return nil, "", fmt.Errorf("reading the links of a page: %w", err)
		}
	}
	for _, l := range links {
		if l.Rel != "next" {
			continue
		}
		if len(items) == 0 || items[len(items)-1].id() == "" {
			return nil, "", errors.New("a page says that another comes, and not after what")
		}
		return items, items[len(items)-1].id(), nil
	}
	return items, "", nil
}
