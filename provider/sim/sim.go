// Package sim is the driver of the simulated cloud.
//
// It owns how that cloud's API is spoken, what its error codes mean, and its offers in our words. It refuses to know how the cloud works behind its API. The invariant: Order sends its POST at most once, and says
// UnknownOutcome whenever the cloud may have acted on it without saying so.
package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

// Options says which clouds the driver may speak to.
type Options struct {
	// Endpoint is the URL of the cloud that accounts use when their config names none.
	Endpoint string
	// Endpoints are URLs that a config may name instead; with none, a config has no endpoint.
	Endpoints []string
	// ClaimMode is the way of ordering: ClaimToken, ClaimUniqueName, ClaimLabel or ClaimNone; empty is ClaimToken.
	ClaimMode model.ClaimMode
	// Timeout bounds each call to the cloud; 0 is 10 seconds.
	Timeout time.Duration
}

// way is one of the cloud's ways of ordering. Each makes a provider of its own, since a manifest has one claim mode.
type way struct {
	provider, displayName string
	path                  string // before the API's own
	listLag               time.Duration
}

func wayOf(m model.ClaimMode) way {
	switch m {
	case model.ClaimUniqueName:
		return way{"sim-name", "Simulated cloud, orders by unique name", "/name", 2 * time.Second}
	case model.ClaimLabel:
		return way{"sim-label", "Simulated cloud, orders by label", "/label", 2 * time.Second}
	case model.ClaimNone:
		return way{"sim-none", "Simulated cloud, orders that are not looked up", "/none", 2 * time.Second}
	case model.ClaimToken, model.ClaimLocal:
	}
	return way{"sim", "Simulated cloud", "", 5 * time.Second}
}

// Driver speaks to the simulated cloud.
type Driver struct {
	options  Options
	manifest provider.Manifest
}

// New makes the driver.
func New(options Options) *Driver {
	options.Timeout = cmp.Or(options.Timeout, 10*time.Second)
	options.ClaimMode = cmp.Or(options.ClaimMode, model.ClaimToken)
	way := wayOf(options.ClaimMode)
	return &Driver{options, provider.Manifest{
		Name:         way.provider,
		DisplayName:  way.displayName,
		ConfigSchema: configSchema(options.Endpoints),
		SecretFields: []string{},
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, LiveStock: true,
			ClaimMode: options.ClaimMode,
		},
		ListLag: way.listLag,
		Typical: map[model.MachineKind]time.Duration{model.VPS: 15 * time.Second, model.Metal: 15 * time.Second},
		Wipes:   []string{"Everything on the machine: the cloud gives it a fresh disk."},
		About: provider.About{
			GPUs: true, Installs: "the cloud's install call", GivesBack: "deletes", TestedAgainst: "its own cloud over HTTP, with faults",
		},
		Endpoints: origins(options.Endpoints),
	}}
}

func configSchema(endpoints []string) json.RawMessage {
	properties := map[string]any{
		"apiToken": map[string]any{
			"type": "string", "minLength": 1, "maxLength": 256,
			"description": "Reference to the API token of the project. The cloud takes any token but `invalid`; each is a project of its own.",
			"examples":    []string{"secret://sim"},
		},
		"region": map[string]any{
			"type": "string", "pattern": `^[a-z0-9][a-z0-9._-]{0,62}$`,
			"description": "Only offers of this region are listed. Without it those of every region are.",
			"examples":    []string{"fra1", "us-east-1"},
		},
	}
	if len(endpoints) > 0 {
		properties["endpoint"] = map[string]any{
			"type": "string", "enum": endpoints,
			"description": "Which of the clouds that the operator allows. Without it the operator's default is used.",
			"examples":    endpoints[:1],
		}
	}
	schema, err := json.Marshal(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Simulated cloud", "type": "object",
		"description": "An account is one project of the simulated cloud.",
		"properties":  properties, "required": []string{"apiToken"}, "additionalProperties": false,
	})
	if err != nil {
		panic(err) // only maps and strings: it cannot fail
	}
	return schema
}

// origins are the endpoints without their paths, as a manifest lists them.
func origins(endpoints []string) []string {
	var origins []string
	for _, e := range endpoints {
		if u, err := url.Parse(e); err == nil {
			origins = append(origins, u.Scheme+"://"+u.Host)
		}
	}
	return origins
}

// Manifest is what the driver says of itself.
func (d *Driver) Manifest() provider.Manifest { return d.manifest }

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	config := struct {
		APIToken string `json:"apiToken"`
		Region   string `json:"region"`
		Endpoint string `json:"endpoint"`
	}{}
	if err := json.Unmarshal(account.Config, &config); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	if config.Endpoint != "" && !slices.Contains(d.options.Endpoints, config.Endpoint) {
		return nil, provider.Errorf(provider.InvalidConfig, "The operator does not allow this endpoint.")
	}
	endpoint := cmp.Or(config.Endpoint, d.options.Endpoint)
	origin, err := vendor.Origin(endpoint)
	if err != nil {
		return nil, err
	}
	return &client{
		endpoint: endpoint + wayOf(d.options.ClaimMode).path, mode: d.options.ClaimMode, region: config.Region,
		token: func(ctx context.Context) (string, error) { return account.Secret(ctx, config.APIToken) },
		vendor: vendor.New(vendor.Options{
			Name: "The simulated cloud", Origins: []string{origin}, Timeout: d.options.Timeout, Code: codeOf, Codes: codes,
			Networks: guard.Everywhere(), // the endpoints are the operator's
		}),
	}, nil
}
