package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"better/compute/internal/problem"
	"better/compute/model"
)

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

var providerName = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,63}\z`)

// Registry holds the drivers that a server is built with. It never changes, so it is safe for concurrent use.
type Registry struct {
	drivers map[string]registered
}

type registered struct {
	driver   Driver
	manifest Manifest
	rules    *configRules
	public   *model.Provider
}

// NewRegistry takes the drivers in. It fails on a name that is malformed or there twice, and on a config schema that is not a
// self-contained JSON Schema 2020-12 for an object without additional properties.
func NewRegistry(drivers ...Driver) (*Registry, error) {
	r := &Registry{drivers: make(map[string]registered, len(drivers))}
	for _, d := range drivers {
		m := d.Manifest()
		if !providerName.MatchString(m.Name) {
			return nil, fmt.Errorf("provider %q: the name must match ^[a-z][a-z0-9-]{0,63}$", m.Name)
		}
		if _, taken := r.drivers[m.Name]; taken {
			return nil, fmt.Errorf("provider %q: there are two drivers of that name", m.Name)
		}
		schema, err := compileSchema(m.Name, m.ConfigSchema)
		if err != nil {
			return nil, fmt.Errorf("provider %q: config schema: %w", m.Name, err)
		}
		rules, err := newConfigRules(schema, m)
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", m.Name, err)
		}
		r.drivers[m.Name] = registered{driver: d, manifest: m, rules: rules, public: publicPart(m)}
	}
	return r, nil
}

// Lookup finds a driver.
func (r *Registry) Lookup(name string) (Driver, bool) {
	d, ok := r.drivers[name]
	return d.driver, ok
}

// Manifest finds what a driver says of itself.
func (r *Registry) Manifest(name string) (Manifest, bool) {
	d, ok := r.drivers[name]
	return d.manifest, ok
}

// Names lists the providers, sorted.
func (r *Registry) Names() []string {
	return slices.Sorted(maps.Keys(r.drivers))
}

// Provider is what callers see of a manifest; nil when there is no such driver. It is shared, and not to be changed.
func (r *Registry) Provider(name string) *model.Provider {
	return r.drivers[name].public
}

// Providers lists what callers see of the manifests, sorted by name. They are shared, and not to be changed.
func (r *Registry) Providers() []*model.Provider {
	providers := make([]*model.Provider, 0, len(r.drivers))
	for _, name := range r.Names() {
		providers = append(providers, r.drivers[name].public)
	}
	return providers
}

func publicPart(m Manifest) *model.Provider {
	return &model.Provider{
		Name:         m.Name,
		DisplayName:  m.DisplayName,
		ConfigSchema: model.JSON(bytes.Clone(m.ConfigSchema)),
		SecretFields: append([]string{}, m.SecretFields...),
		Capabilities: &m.Capabilities,
	}
}

// ValidateConfig finds everything that is wrong with a config for the provider: its form, secrets written in clear, an endpoint that is
// not the provider's, what the manifest's schema refuses, and, when there is nothing of that, what the driver itself does. Paths are
// JSON pointers from the config's root. No message repeats a value of a secret field.
func (r *Registry) ValidateConfig(name string, config json.RawMessage) problem.Issues {
	var issues problem.Issues
	d, ok := r.drivers[name]
	if !ok {
		issues.Add("provider", "is not registered")
		return issues
	}
	if issues = d.rules.check(config); len(issues) > 0 {
		return issues
	}
	return d.opens(config)
}

// opens asks the driver for a client, which makes no call: what it refuses now it would refuse at every use.
func (d registered) opens(config json.RawMessage) (issues problem.Issues) {
	client, err := d.driver.Open(context.Background(), Account{Config: config})
	if err == nil {
		_ = client.Close() // it has done nothing
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Class == InvalidConfig {
		issues.Add("", "%s", e.Message)
	}
	return issues
}

// compileSchema never loads anything: a reference to another document fails.
func compileSchema(name string, schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("it must be an object")
	}
	if dialect, given := root["$schema"]; given && dialect != draft2020 {
		return nil, fmt.Errorf("$schema must be %s", draft2020)
	}
	if root["type"] != "object" || root["additionalProperties"] != false {
		return nil, errors.New(`it must have "type": "object" and "additionalProperties": false`)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.AssertFormat()
	location := "compute:///providers/" + name + ".json"
	if err := c.AddResource(location, root); err != nil {
		return nil, err
	}
	return c.Compile(location)
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document", url)
}
