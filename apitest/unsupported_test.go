package apitest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/sim"
)

// listing is a driver that can show what there is and do nothing with it. Both drivers that the binary has can do everything.
type listing struct{ *sim.Driver }

func (d listing) Manifest() provider.Manifest {
	m := d.Driver.Manifest()
	m.Name = "listing"
	m.Capabilities.Offers, m.Capabilities.Bootstrap, m.Capabilities.Order = false, false, false
	return m
}

// What a provider cannot do is UNSUPPORTED, with the capabilities that are missing, before anybody looks at the pool.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	s := newServices(t, listing{sim.New(sim.Options{Endpoint: "http://127.0.0.1:1"})})
	created, err := s.accounts.Create(s.ctx, model.CreateProviderAccountInput{
		TenantID: "t1", Provider: "listing", Name: "main", Config: model.JSON(`{"apiToken":"secret://x"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	account, noPool := created.ProviderAccount.ID, "pool_"+strings.Repeat("0", 26)
	input := func(more string) string {
		return `{"tenantId":"t1","accountId":"` + account + `"` + more + `}`
	}
	bootstrap := func(machine string) string {
		return input(`,"poolId":"` + noPool + `","idempotencyKey":"k",` + machine)
	}
	const start = `mutation($in: BootstrapMachineInput!) { bootstrapMachine(input: $in) { replayed } }`
	for _, c := range []struct {
		name, method, in, query, variables string
		missing                            any
	}{
		{
			"offers", "offers", input(""), `query($t: ID!, $a: ID!) { offers(tenantId: $t, accountId: $a) { id } }`,
			`{"t":"t1","a":"` + account + `"}`,
			[]any{"offers"},
		},
		{"a machine", "bootstrap", bootstrap(`"machineId":"m1"`), start, `{"in":` + bootstrap(`"machineId":"m1"`) + `}`, []any{"bootstrap"}},
		{"an offer", "bootstrap", bootstrap(`"offerId":"o1"`), start, `{"in":` + bootstrap(`"offerId":"o1"`) + `}`, []any{"bootstrap", "order"}},
	} {
		overREST := s.post(t, "/api/compute/providerAccounts/"+c.method, c.in)
		if overREST.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: status %d: %s", c.name, overREST.Code, overREST.Body)
		}
		var failed struct{ Error refusal }
		decodeInto(t, overREST, &failed)
		query, err := json.Marshal(c.query)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Errors []struct{ Extensions refusal }
		}
		decodeInto(t, s.post(t, "/graphql", `{"query":`+string(query)+`,"variables":`+c.variables+`}`), &answer)
		if len(answer.Errors) != 1 {
			t.Fatalf("%s: GraphQL gives %d errors", c.name, len(answer.Errors))
		}
		for transport, got := range map[string]refusal{"REST": failed.Error, "GraphQL": answer.Errors[0].Extensions} {
			if diff := cmp.Diff(c.missing, got.Details["missing"]); got.Code != "UNSUPPORTED" || diff != "" {
				t.Errorf("%s over %s: %s, missing (-want +got):\n%s", c.name, transport, got.Code, diff)
			}
		}
	}
}

// refusal is what both transports say of an error to programs.
type refusal struct {
	Code    string
	Details map[string]any
}

func (s *services) post(t *testing.T, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+localToken)
	w := httptest.NewRecorder()
	s.api.Handler().ServeHTTP(w, r)
	return w
}

func decodeInto(t *testing.T, w *httptest.ResponseRecorder, v any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
}
