package apitest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

// TestSecretsLeakNowhere puts secrets wherever a caller can put one, rightly and wrongly, and has them used. send searches each answer,
// and the end of the test the log and the database.
func TestSecretsLeakNowhere(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.env = []string{"APITEST_CLOUD_TOKEN=" + newSecret()}
	d.settings["secrets"].(map[string]any)["env"] = map[string]any{"allow": []any{"APITEST_CLOUD_TOKEN"}}
	token := d.caller("user:a", "tenant-admin compute-tenant/leaky")
	s := d.serve(t)
	ask := func(method string, want problem.Code, input map[string]any) any {
		t.Helper()
		input["tenantId"] = "leaky"
		out := s.graphql(t, method, token, input)
		if out.Code != want {
			t.Fatalf("%s: %+v, want %q", method, out, want)
		}
		return member(out.Data, "id")
	}
	type in = map[string]any

	t.Run("rightly", func(t *testing.T) {
		ask("putSecret", "", in{"name": "rack", "value": newPrivateKey(t)})
		rack := ask("create", "", in{"provider": "ssh", "name": "rack", "config": in{"privateKey": "secret://rack", "machines": []any{in{
			"id": "m", "address": "127.0.0.1", "port": closedPort(t), "kind": "vps", "hostFingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrrY2RdqzPb8CLNCG0K3KyTk",
		}}}})
		ask("offers", "", in{"accountId": rack})
		pool := ask("createPool", "", in{"name": "hosts", "class": "VPS_HOST", "agent": "BCD"})
		run := in{"accountId": rack, "poolId": pool, "machineId": "m", "idempotencyKey": "rack"}
		ask("bootstrap", "", run)
		harness.Await(t, "the machine to be tried", func() bool {
			status := s.graphql(t, "bootstrap", token, run).Data
			return member(status, "waitReason") != nil || member(status, "failure") != nil || member(status, "attempt") != json.Number("0")
		})
		env := ask("create", "", in{"provider": "sim", "name": "env", "config": in{"apiToken": "env://APITEST_CLOUD_TOKEN"}})
		ask("offers", "", in{"accountId": env})
	})
	t.Run("wrongly", func(t *testing.T) {
		clear := newSecret()
		for _, config := range []any{
			in{"apiToken": clear},
			in{"apiToken": in{"a": clear}},
			in{"apiToken": []any{clear}},
			in{"apiToken": "secret://" + clear},
			in{"apiToken": "vault://" + clear + "#a"},
			in{"apiToken": "secret://sim", "region": clear},
			in{"apiToken": "secret://sim", "other": clear},
			in{"apiToken": "secret://sim", "region": "https://u:" + clear + "@h"},
			clear,
			[]any{clear},
		} {
			ask("create", problem.InvalidInput, in{"provider": "sim", "name": "a", "config": config})
			body, _ := json.Marshal(in{"tenantId": "leaky", "provider": "sim", "name": "a", "config": config})
			s.rest(t, "create", token, body)
		}
		ask("create", problem.InvalidInput, in{"provider": clear, "name": clear, "idempotencyKey": clear + ","})
		ask("putSecret", problem.InvalidInput, in{"name": "a", "value": clear + "\u0007"})
		ask("putSecret", problem.InvalidInput, in{"name": clear, "value": "a"})
		ask("bootstrap", problem.InvalidInput, in{"accountId": clear, "poolId": clear, "machineId": clear, "idempotencyKey": clear})
	})
	t.Run("where nobody should put one", func(t *testing.T) {
		clear := newSecret()
		quoted := strconv.Quote(clear)
		for _, document := range []string{
			`{ providerAccount(tenantId: "leaky", accountId: ` + quoted + `) { id } }`,
			`{ offers(tenantId: "leaky", accountId: "a", query: {kind: ` + quoted + `}) { id } }`,
			`{ offers(tenantId: "leaky", accountId: "a", query: {minGpus: ` + quoted + `}) { id } }`,
			`mutation { putSecret(input: {tenantId: "leaky", name: "a", value: ` + quoted + `, other: 1}) { secret { name } } }`,
			`mutation { putSecret(input: {tenantId: "leaky", name: "a", value: ` + quoted + ` `,
			`mutation { putSecret(input: {tenantId: "leaky", name: "a", value: "` + clear,
			`mutation { createProviderAccount(input: ` + quoted + `) { replayed } }`,
		} {
			if out := s.execute(t, token, document, nil); out.Code != problem.InvalidInput {
				t.Errorf("%+v", out)
			}
		}
		for _, variables := range []map[string]any{{"kind": clear}, {"kind": in{"a": clear}}, {"gpus": clear}, {"gpus": []any{clear}}, {"query": clear}} {
			out := s.execute(t, token, `query($kind: MachineKind, $gpus: Int, $query: OfferQuery) { offers(tenantId: "leaky", accountId: "a", query: {kind: $kind, minGpus: $gpus}) { id }
				again: offers(tenantId: "leaky", accountId: "a", query: $query) { id } }`, variables)
			if out.Code != problem.InvalidInput {
				t.Errorf("%+v", out)
			}
		}
		for _, path := range []string{graphqlPath + "?token=", graphqlPath + "?query={viewer}&access_token=", "/healthz?key=", graphqlPath + "?query="} {
			s.send(t, http.MethodGet, path+url.QueryEscape(clear), "", "", nil)
		}
		s.send(t, http.MethodPost, graphqlPath, clear, typeJSON, []byte("{}"))
		s.send(t, http.MethodPost, restPath+"list", clear, typeJSON, []byte("{}"))
		s.send(t, http.MethodPost, restPath+"list", token, typeJSON, []byte(`{"tenantId":`+quoted+`,"a":`+quoted))
		s.send(t, http.MethodPost, restPath+"list", token, clear, []byte(`{}`))
	})
}

// newPrivateKey makes an SSH key whose every line is searched for.
func newPrivateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(block))
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) > 32 && !strings.HasPrefix(line, "-") {
			planted.add("an SSH private key", line)
		}
	}
	planted.add("an SSH private key", string(key.Seed()))
	return text
}

// closedPort is one on which nobody answers.
func closedPort(t *testing.T) int {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
