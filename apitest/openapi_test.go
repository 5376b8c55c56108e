package apitest

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const openapiFile = "../rest/openapi.json"

// openapi compiles the schemas of openapi.json, each once.
var openapi struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

func schemaAt(t testing.TB, pointer ...string) *jsonschema.Schema {
	t.Helper()
	openapi.mu.Lock()
	defer openapi.mu.Unlock()
	if openapi.compiler == nil {
		file, err := os.Open(openapiFile)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		doc, err := jsonschema.UnmarshalJSON(file)
		if err != nil {
			t.Fatal(err)
		}
		openapi.compiler, openapi.schemas = jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
		openapi.compiler.AssertFormat()
		if err := openapi.compiler.AddResource("openapi.json", doc); err != nil {
			t.Fatal(err)
		}
	}
	at := "openapi.json#"
	for _, part := range pointer {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	if openapi.schemas[at] == nil {
		schema, err := openapi.compiler.Compile(at)
		if err != nil {
			t.Fatal(err)
		}
		openapi.schemas[at] = schema
	}
	return openapi.schemas[at]
}

// checkOpenAPI holds an exchange to openapi.json: its answer is one that is described, and no request that it forbids succeeds.
func checkOpenAPI(t testing.TB, method string, request []byte, a answer) {
	t.Helper()
	if a.status == http.StatusOK {
		if err := requestError(t, method, request); err != nil {
			t.Errorf("openapi.json forbids a request that succeeds: %v\n%s", err, request)
		}
		schema := schemaAt(t, "paths", restPath+method, "post", "responses", strconv.Itoa(a.status), "content", typeJSON, "schema")
		if err := schema.Validate(parse(t, a.body)); err != nil {
			t.Errorf("the answer is not as openapi.json says: %v\n%s", err, a.body)
		}
		return
	}
	if err := schemaAt(t, "components", "schemas", "Error").Validate(parse(t, a.body)); err != nil {
		t.Errorf("the error is not as openapi.json says: %v\n%s", err, a.body)
	}
}

// requestError is what openapi.json has against a request.
func requestError(t testing.TB, method string, request []byte) error {
	t.Helper()
	return schemaAt(t, "paths", restPath+method, "post", "requestBody", "content", typeJSON, "schema").Validate(parse(t, request))
}

func TestOpenAPIDescribesJustTheSevenPaths(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(openapiFile)
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := member(parse(t, text), "paths").(map[string]any)
	got := map[string]bool{}
	for path := range paths {
		got[path] = true
	}
	want := map[string]bool{}
	for _, method := range restMethods() {
		want[restPath+method] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}
