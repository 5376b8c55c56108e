package providertest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"better/compute/model"
	"better/compute/provider"
)

var secretName = regexp.MustCompile(`(?i)(token|secret|password|key)\z`)

func testManifest(t *testing.T, c Config) {
	m := c.Driver.Manifest()
	if m.DisplayName == "" {
		t.Error("no display name")
	}
	if m.SecretFields == nil {
		t.Error("secretFields is nil, and would be null for callers")
	}
	for _, loss := range m.Wipes {
		if strings.TrimSpace(loss) == "" || strings.ContainsAny(loss, "\n\t") {
			t.Errorf("wipes has %q, which is no sentence", loss)
		}
	}
	testCapabilities(t, m)
	testSchema(t, c, m)
}

func testCapabilities(t *testing.T, m provider.Manifest) {
	t.Helper()
	caps := m.Capabilities
	switch caps.ClaimMode {
	case model.ClaimToken, model.ClaimUniqueName, model.ClaimLabel, model.ClaimLocal:
		if !caps.Order {
			t.Errorf("claim mode %q without orders", caps.ClaimMode)
		}
	case model.ClaimNone:
	default:
		t.Errorf("unknown claim mode %q", caps.ClaimMode)
	}
	if caps.Order && !caps.Offers {
		t.Error("orders without offers")
	}
	if m.ListLag < 0 {
		t.Errorf("list lag %v", m.ListLag)
	}
}

// testSchema has the registry compile the config's schema and try configs on it, and walks it for what people need.
func testSchema(t *testing.T, c Config, m provider.Manifest) {
	t.Helper()
	registry, err := provider.NewRegistry(c.Driver)
	if err != nil {
		t.Fatalf("no registry takes the driver: %v", err)
	}
	var root map[string]any
	if err := json.Unmarshal(m.ConfigSchema, &root); err != nil || root["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Fatalf("the schema does not say that it is 2020-12 (%v): %s", err, m.ConfigSchema)
	}
	walkSchema(t, "", root)

	if len(c.Configs) == 0 {
		t.Error("the suite was given no config to try")
	}
	for _, config := range c.Configs {
		if issues := registry.ValidateConfig(m.Name, json.RawMessage(config)); len(issues) > 0 {
			t.Errorf("config %s is refused: %v", config, issues)
		}
		unknown := strings.Replace(config, "{", `{"unknownField":true,`, 1)
		if issues := registry.ValidateConfig(m.Name, json.RawMessage(unknown)); len(issues) == 0 {
			t.Errorf("config %s is accepted", unknown)
		}
	}
	for _, config := range append([]string{"null", "[]", `"x"`}, c.BadConfigs...) {
		if issues := registry.ValidateConfig(m.Name, json.RawMessage(config)); len(issues) == 0 {
			t.Errorf("config %s is accepted", config)
		}
	}
}

// walkSchema checks every object in the schema: closed, each property described and with an example, no secret but by reference.
func walkSchema(t *testing.T, path string, schema map[string]any) {
	t.Helper()
	if items, ok := schema["items"].(map[string]any); ok {
		walkSchema(t, path+"/*", items)
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		if path == "" {
			t.Error("the schema has no properties")
		}
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s/ takes additional properties", path)
	}
	for name, value := range properties {
		property, ok := value.(map[string]any)
		if !ok {
			t.Errorf("%s/%s is no schema", path, name)
			continue
		}
		if text, _ := property["description"].(string); text == "" {
			t.Errorf("%s/%s has no description", path, name)
		}
		kind, _ := property["type"].(string)
		if examples, _ := property["examples"].([]any); len(examples) == 0 && kind != "object" {
			t.Errorf("%s/%s has no examples", path, name)
		} else if secretName.MatchString(name) {
			testSecretProperty(t, path+"/"+name, kind, examples)
		}
		walkSchema(t, path+"/"+name, property)
	}
}

func testSecretProperty(t *testing.T, path, kind string, examples []any) {
	t.Helper()
	if kind != "string" {
		t.Errorf("%s is secret by its name and no string", path)
	}
	for _, example := range examples {
		text, _ := example.(string)
		if _, err := provider.ParseReference(text); err != nil {
			encoded, _ := json.Marshal(example)
			t.Errorf("%s is secret, and its example %s is no reference", path, encoded)
		}
	}
}
