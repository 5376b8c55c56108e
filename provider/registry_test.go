package provider

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/model"
)

// paperDriver is a driver that only has a manifest.
type paperDriver struct{ manifest Manifest }

func (d paperDriver) Manifest() Manifest { return d.manifest }

func (d paperDriver) Open(context.Context, Account) (Client, error) {
	return nil, errors.New("this driver is made of paper")
}

func paper(name, schema string) paperDriver {
	return paperDriver{Manifest{Name: name, DisplayName: strings.ToUpper(name), ConfigSchema: json.RawMessage(schema)}}
}

const emptySchema = `{"type":"object","additionalProperties":false}`

func TestNewRegistryRefusesBadDrivers(t *testing.T) {
	t.Parallel()
	for name, drivers := range map[string][]Driver{
		"no name":             {paper("", emptySchema)},
		"upper case":          {paper("Sim", emptySchema)},
		"a new line":          {paper("sim\n", emptySchema)},
		"65 characters":       {paper("a"+strings.Repeat("b", 64), emptySchema)},
		"the same name twice": {paper("sim", emptySchema), paper("sim", emptySchema)},
		"no schema":           {paper("sim", "")},
		"half a schema":       {paper("sim", `{"type":"object"`)},
		"an array":            {paper("sim", `[]`)},
		"another type":        {paper("sim", `{"type":"string","additionalProperties":false}`)},
		"open":                {paper("sim", `{"type":"object"}`)},
		"an older dialect": {paper("sim",
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","additionalProperties":false}`)},
		"a keyword of the wrong type": {paper("sim", `{"type":"object","additionalProperties":false,"properties":{"a":{"minLength":"1"}}}`)},
		"a reference to the net": {paper("sim",
			`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"https://example.com/a.json"}}}`)},
		"a reference to a file": {paper("sim",
			`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"file:///etc/passwd"}}}`)},
		"a secret field that is no pointer": {paperDriver{Manifest{
			Name: "sim", ConfigSchema: json.RawMessage(emptySchema), SecretFields: []string{"pin"},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewRegistry(drivers...); err == nil {
				t.Error("the registry took it")
			}
		})
	}
}

func TestRegistryListsProviders(t *testing.T) {
	t.Parallel()
	b := paper("b", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false}`)
	b.manifest.SecretFields = []string{"/pin"}
	b.manifest.Capabilities = model.ProviderCapabilities{Offers: true, ClaimMode: model.ClaimToken}
	r, err := NewRegistry(b, paper("a-1", emptySchema))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a-1", "b"}, r.Names()); diff != "" {
		t.Error("names", diff)
	}
	providers := r.Providers()
	want := &model.Provider{
		Name: "b", DisplayName: "B", ConfigSchema: model.JSON(b.manifest.ConfigSchema), SecretFields: []string{"/pin"},
		Capabilities: &model.ProviderCapabilities{Offers: true, ClaimMode: model.ClaimToken},
	}
	if diff := cmp.Diff(want, providers[1]); diff != "" {
		t.Error("provider", diff)
	}
	if providers[0].SecretFields == nil {
		t.Error("a provider without secret fields must list none, not null")
	}
	if _, ok := r.Lookup("a-1"); !ok {
		t.Error("a-1 is not found")
	}
	if _, ok := r.Lookup("c"); ok {
		t.Error("c is found")
	}
	if m, ok := r.Manifest("b"); !ok || m.Name != "b" {
		t.Error("the manifest of b is not found")
	}
}
