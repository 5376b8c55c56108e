package providertest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"better/compute/model"
	"better/compute/provider"
)

var (
	providerName = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,63}\z`)
	secretName   = regexp.MustCompile(`(?i)(token|secret|password|key)\z`)
)

func testManifest(t *testing.T, c Config) {
	m := c.Driver.Manifest()
	if !providerName.MatchString(m.Name) || m.DisplayName == "" {
		t.Errorf("name %q, display name %q", m.Name, m.DisplayName)
	}
	if m.SecretFields == nil {
		t.Error("secretFields is nil, and would be null for callers")
	}
	for _, pointer := range m.SecretFields {
		if !strings.HasPrefix(pointer, "/") {
			t.Errorf("secret field %q is no JSON pointer", pointer)
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

// testSchema compiles the config's schema, walks it for what people need, and tries configs on it.
func testSchema(t *testing.T, c Config, m provider.Manifest) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(m.ConfigSchema)))
	if err != nil {
		t.Fatalf("the schema is not JSON: %v", err)
	}
	root, ok := document.(map[string]any)
	if !ok || root["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Fatalf("the schema does not say that it is 2020-12: %s", m.ConfigSchema)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("config.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	walkSchema(t, "", root)

	for _, config := range c.Configs {
		if err := schema.Validate(decoded(t, config)); err != nil {
			t.Errorf("config %s is refused: %v", config, err)
		}
		object, ok := decoded(t, config).(map[string]any)
		if !ok {
			t.Fatalf("config %s is not an object", config)
		}
		object["unknownField"] = true
		if schema.Validate(object) == nil {
			t.Errorf("config %s is accepted with an unknown field", config)
		}
	}
	for _, config := range append([]string{"null", "[]", `"x"`}, c.BadConfigs...) {
		if schema.Validate(decoded(t, config)) == nil {
			t.Errorf("config %s is accepted", config)
		}
	}
	if len(c.Configs) == 0 {
		t.Error("the suite was given no config to try")
	}
}

func decoded(t *testing.T, config string) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(config))
	if err != nil {
		t.Fatalf("config %s: %v", config, err)
	}
	return value
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
		if text, _ := example.(string); !strings.Contains(text, "://") {
			encoded, _ := json.Marshal(example)
			t.Errorf("%s is secret, and its example %s is no reference", path, encoded)
		}
	}
}
