package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"better/compute/internal/problem"
)

// outcome is how a call ended, the same whichever transport it went over.
type outcome struct {
	Code    problem.Code // empty: it succeeded
	Message string
	Details map[string]any
	Data    any // what REST answers
}

const (
	restPath    = "/api/compute/providerAccounts/"
	graphqlPath = "/graphql"
	typeJSON    = "application/json"
)

// operation is how a method of the contract is asked for in GraphQL. The seven that REST has too come back in REST's form.
type operation struct {
	document  string
	arguments bool                       // the input's members are arguments, not one input
	unwrap    func(data any) (value any) // from the root field to what REST answers
}

const (
	accountFields = `id tenantId provider { name } name config version createdAt updatedAt`
	offerFields   = `id kind region providerRegion name arch vcpu memoryGiB disks { sizeGB count media }
		gpu { model vendor count memoryGiB } price { hourly monthly setup currency taxIncluded } availability observedAt`
	runFields = `id tenantId accountId poolId machineId offerId status step waitReason failure { reason message logTail }
		cleanup attempt hostId createdAt updatedAt deadlineAt joinedAt`
	poolFields = `id tenantId name class agent archivedAt createdAt`
)

func operations() map[string]operation {
	of := func(name, field string) func(any) any {
		return func(data any) any { return member(member(data, name), field) }
	}
	mutation := func(field, input, selection string) string {
		return fmt.Sprintf("mutation($input: %sInput!) { %s(input: $input) { %s } }", input, field, selection)
	}
	return map[string]operation{
		"create": {
			document: mutation("createProviderAccount", "CreateProviderAccount", "providerAccount { "+accountFields+" }"),
			unwrap:   func(data any) any { return restAccount(of("createProviderAccount", "providerAccount")(data)) },
		},
		"list": {
			document:  `query($tenantId: ID!) { providerAccounts(tenantId: $tenantId, first: 100) { nodes { ` + accountFields + ` } } }`,
			arguments: true,
			unwrap: func(data any) any {
				nodes, _ := of("providerAccounts", "nodes")(data).([]any)
				return map[string]any{"items": each(nodes, restAccount)}
			},
		},
		"get": {
			document:  `query($tenantId: ID!, $accountId: ID!) { providerAccount(tenantId: $tenantId, accountId: $accountId) { ` + accountFields + ` } }`,
			arguments: true,
			unwrap:    func(data any) any { return restAccount(member(data, "providerAccount")) },
		},
		"offers": {
			document: `query($tenantId: ID!, $accountId: ID!, $query: OfferQuery) {
				offers(tenantId: $tenantId, accountId: $accountId, query: $query) { ` + offerFields + ` } }`,
			arguments: true,
			unwrap: func(data any) any {
				offers, _ := member(data, "offers").([]any)
				return map[string]any{"items": each(offers, func(o any) any { return lower(o, "kind", "availability") })}
			},
		},
		"update": {
			document: mutation("updateProviderAccount", "UpdateProviderAccount", "providerAccount { "+accountFields+" }"),
			unwrap:   func(data any) any { return restAccount(of("updateProviderAccount", "providerAccount")(data)) },
		},
		"delete": {
			document: mutation("deleteProviderAccount", "DeleteProviderAccount", "deleted"),
			unwrap:   func(data any) any { return member(data, "deleteProviderAccount") },
		},
		"bootstrap": {
			document: mutation("bootstrapMachine", "BootstrapMachine", "bootstrap { "+runFields+" }"),
			unwrap:   func(data any) any { return lower(of("bootstrapMachine", "bootstrap")(data), "status", "cleanup") },
		},
		"createPool": {
			document: mutation("createPool", "CreatePool", "pool { "+poolFields+" }"), unwrap: of("createPool", "pool"),
		},
		"archivePool": {
			document: mutation("archivePool", "ArchivePool", "pool { "+poolFields+" }"), unwrap: of("archivePool", "pool"),
		},
		"cancelBootstrap": {
			document: mutation("cancelBootstrap", "CancelBootstrap", "bootstrap { id }"), unwrap: of("cancelBootstrap", "bootstrap"),
		},
		"machines": {
			document:  `query($tenantId: ID!, $accountId: ID!) { providerAccount(tenantId: $tenantId, accountId: $accountId) { machines { id inUse } } }`,
			arguments: true,
			unwrap:    of("providerAccount", "machines"),
		},
		"putSecret": {
			document: mutation("putSecret", "PutSecret", "secret { name }"), unwrap: of("putSecret", "secret"),
		},
		"grantRole": {
			document: mutation("grantRole", "GrantRole", "roleBinding { subject role object effect }"), unwrap: of("grantRole", "roleBinding"),
		},
		"permissions": {
			document:  `query($tenantId: ID, $objectId: ID) { viewer { permissions(tenantId: $tenantId, objectId: $objectId) } }`,
			arguments: true,
			unwrap:    of("viewer", "permissions"),
		},
	}
}

// restMethods are those that both transports have.
func restMethods() []string {
	return []string{"create", "list", "get", "offers", "update", "delete", "bootstrap"}
}

func member(v any, name string) any {
	object, _ := v.(map[string]any)
	return object[name]
}

func each(list []any, change func(any) any) []any {
	changed := make([]any, len(list))
	for i, v := range list {
		changed[i] = change(v)
	}
	return changed
}

func restAccount(v any) any {
	account, ok := v.(map[string]any)
	if ok {
		account["provider"] = member(account["provider"], "name")
	}
	return v
}

// lower turns GraphQL's enum values into REST's.
func lower(v any, members ...string) any {
	object, _ := v.(map[string]any)
	for _, name := range members {
		if s, ok := object[name].(string); ok {
			object[name] = strings.ToLower(s)
		}
	}
	return v
}

// rest calls one of the seven methods over REST, and holds request and answer to what both promise: the error's form, the request
// id, and openapi.json.
func (s *process) rest(t testing.TB, method, token string, input []byte) outcome {
	t.Helper()
	a := s.send(t, http.MethodPost, restPath+method, token, typeJSON, input)
	out := readREST(t, a)
	checkOpenAPI(t, method, input, a)
	return out
}

// readREST takes an answer apart.
func readREST(t testing.TB, a answer) outcome {
	t.Helper()
	if a.header.Get("X-Request-Id") == "" {
		t.Error("the answer has no X-Request-Id")
	}
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, typeJSON) {
		t.Errorf("Content-Type is %q", got)
	}
	body, ok := parse(t, a.body).(map[string]any)
	if !ok {
		t.Fatalf("the answer is no object: %s", a.body)
	}
	if a.status == http.StatusOK {
		return outcome{Data: body}
	}
	failure, _ := body["error"].(map[string]any)
	out := outcome{}
	code, _ := failure["code"].(string)
	out.Code = problem.Code(code)
	out.Message, _ = failure["message"].(string)
	out.Details, ok = failure["details"].(map[string]any)
	if len(body) != 1 || len(failure) != 3 || !ok || !slices.Contains(problem.Codes(), out.Code) || out.Message == "" {
		t.Errorf("not the form of an error: %s", a.body)
	}
	if a.status != out.Code.HTTPStatus() && a.status != http.StatusMethodNotAllowed {
		t.Errorf("status %d with code %s", a.status, out.Code)
	}
	return out
}

// graphql asks for the same over GraphQL.
func (s *process) graphql(t testing.TB, method, token string, input map[string]any) outcome {
	t.Helper()
	op, known := operations()[method]
	if !known {
		t.Fatalf("there is no operation %q", method)
	}
	input = maps.Clone(input)
	if query, ok := input["query"].(map[string]any); ok { // of offers, whose kind is an enum here
		query = maps.Clone(query)
		if kind, ok := query["kind"].(string); ok {
			query["kind"] = strings.ToUpper(kind)
		}
		input["query"] = query
	}
	variables := input
	if !op.arguments {
		variables = map[string]any{"input": input}
	}
	out := s.execute(t, token, op.document, variables)
	if out.Code == "" {
		out.Data = op.unwrap(out.Data)
	}
	return out
}

// execute runs a document; the outcome's data is that of the response.
func (s *process) execute(t testing.TB, token, document string, variables map[string]any) outcome {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	return readGraphQL(t, s.send(t, http.MethodPost, graphqlPath, token, typeJSON, body))
}

func readGraphQL(t testing.TB, a answer) outcome {
	t.Helper()
	if a.header.Get("X-Request-Id") == "" {
		t.Error("the answer has no X-Request-Id")
	}
	body := parse(t, a.body)
	failures, _ := member(body, "errors").([]any)
	if len(failures) == 0 {
		return outcome{Data: member(body, "data")}
	}
	out := outcome{Details: map[string]any{}}
	out.Message, _ = member(failures[0], "message").(string)
	extensions := member(failures[0], "extensions")
	code, _ := member(extensions, "code").(string)
	out.Code = problem.Code(code)
	if details, ok := member(extensions, "details").(map[string]any); ok {
		out.Details = details
	}
	if !slices.Contains(problem.Codes(), out.Code) || out.Message == "" {
		t.Errorf("not the form of an error: %s", a.body)
	}
	return out
}

// parse reads one JSON value with numbers as they are written.
func parse(t testing.TB, text []byte) any {
	t.Helper()
	v, err := parseJSON(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func parseJSON(text []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the value")
	}
	return v, nil
}
