package identity

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"better/compute/internal/postgres/pgtest"
)

const (
	create = `mutation($in: CreateApiTokenInput!) { createApiToken(input: $in) { token apiToken { id subject createdBy } } }`
	revoke = `mutation($in: RevokeApiTokenInput!) { revokeApiToken(input: $in) { revoked apiToken { revokedAt } } }`
	tokens = `{ apiTokens(tenantId: "acme") { nodes { id subject lastUsedAt revokedAt expiresAt } } }`
	grant  = `mutation($in: GrantRoleInput!) { grantRole(input: $in) { roleBinding { role } } }`
)

type values = map[string]any

// newReplicas starts two servers on one database, with an administrator of the fleet and one of each of two tenants.
func newReplicas(t *testing.T) (first, second *process, config string) {
	t.Helper()
	auth := values{"allowStaticTokens": true, "tokens": []values{
		{"token": "root", "subject": "user:root"}, {"token": "acme", "subject": "user:acme"}, {"token": "other", "subject": "user:other"},
	}}
	authorization := bindings("user:root fleet-admin compute-fleet", "user:acme tenant-admin compute-tenant/acme", "user:other tenant-admin compute-tenant/other")
	database := pgtest.URL(t)
	first, config = serve(t, database, auth, authorization)
	second, _ = serve(t, database, auth, authorization)
	return first, second, config
}

// make makes a token and gives it with its id.
func (p *process) make(t testing.TB, as string, in values) (token, id string) {
	t.Helper()
	a := p.graphql(t, as, create, values{"in": in})
	made, ok := a.data["createApiToken"].(map[string]any)
	if !ok {
		t.Fatal(a.body)
	}
	return made["token"].(string), made["apiToken"].(map[string]any)["id"].(string)
}

func (p *process) grant(t testing.TB, as, subject, role, object string) {
	t.Helper()
	if a := p.graphql(t, as, grant, values{"in": values{"subject": subject, "role": role, "object": object}}); a.code != "" {
		t.Fatal(a.body)
	}
}

// The life of an API token, from the mutation that makes it to the one that revokes it, over every transport and on two replicas.
func TestTheLifeOfAnAPIToken(t *testing.T) {
	t.Parallel()
	one, two, _ := newReplicas(t)
	token, id := one.make(t, "acme", values{"tenantId": "acme", "name": "ci", "description": "builds"})
	const subject = "service:acme/ci"
	if got := two.viewer(t, token); got != subject {
		t.Fatalf("on the other replica: %s", got)
	}
	if got := two.graphql(t, token, `{ pools(tenantId: "acme") { nodes { id } } }`, nil); got.code != "FORBIDDEN" {
		t.Errorf("before it is granted anything: %s", got.body)
	}
	one.grant(t, "acme", subject, "provider-manager", "compute-tenant/acme")
	eventually(t, "a role that was granted on one replica, on the other", "", func() string {
		return two.graphql(t, token, `{ pools(tenantId: "acme") { nodes { id } } }`, nil).code
	})
	if got := two.graphql(t, token, `{ pools(tenantId: "other") { nodes { id } } }`, nil); got.code != "FORBIDDEN" {
		t.Errorf("in another tenant: %s", got.body)
	}
	list := func(p *process) int {
		status, _, _ := do(t, http.MethodPost, p.url+"/api/compute/providerAccounts/list", token, map[string]string{"Content-Type": "application/json"},
			strings.NewReader(`{"tenantId":"acme"}`))
		return status
	}
	if got := list(one); got != http.StatusOK {
		t.Errorf("over REST: %d", got)
	}
	eventually(t, "its use is noted", "true", func() string {
		return fmt.Sprint(!strings.Contains(one.graphql(t, "acme", tokens, nil).body, `"lastUsedAt":null`))
	})
	streams := map[string]stream{
		"WebSocket of the first": one.socket(t, token), "event stream of the first": one.sse(t, token),
		"WebSocket of the second": two.socket(t, token), "event stream of the second": two.sse(t, token),
	}
	one.running(t, 1, 1)
	two.running(t, 1, 1)
	streams["idle WebSocket of the first"] = one.dial(t, token)
	if a := one.graphql(t, "other", revoke, values{"in": values{"tenantId": "other", "tokenId": id}}); a.code != "NOT_FOUND" {
		t.Errorf("another tenant revokes it: %s", a.body)
	}
	start := time.Now()
	if a := one.graphql(t, "acme", revoke, values{"in": values{"tenantId": "acme", "tokenId": id}}); !strings.Contains(a.body, `"revoked":true`) {
		t.Fatal(a.body)
	}
	for name, s := range streams {
		if got := s.wait(t, name); got != "UNAUTHENTICATED" && got != "4403" {
			t.Errorf("the %s ended with %s", name, got)
		}
	}
	t.Logf("identity-revocation figure=%s until 4 streams on 2 replicas had ended", time.Since(start).Round(time.Millisecond))
	for name, p := range map[string]*process{"first": one, "second": two} {
		eventually(t, "the "+name+" replica", "UNAUTHENTICATED", func() string { return p.viewer(t, token) })
		if got := list(p); got != http.StatusUnauthorized {
			t.Errorf("over REST of the %s replica: %d", name, got)
		}
	}
	if a := two.graphql(t, "acme", revoke, values{"in": values{"tenantId": "acme", "tokenId": id}}); !strings.Contains(a.body, `"revoked":false`) {
		t.Errorf("revoked again: %s", a.body)
	}
	for _, p := range []*process{one, two} {
		if strings.Contains(p.Log.Text(), token[4:24]) {
			t.Error("the log has the token")
		}
	}
}

func TestStreamsEndWithTheirAPIToken(t *testing.T) {
	t.Parallel()
	one, two, _ := newReplicas(t)
	open := func(name string, life time.Duration) (token string, socket, events stream) {
		one.grant(t, "acme", "service:acme/"+name, "provider-viewer", "compute-tenant/acme")
		token, _ = one.make(t, "acme", values{"tenantId": "acme", "name": name, "expiresAt": time.Now().Add(life).Format(time.RFC3339Nano)})
		eventually(t, "the role", "", func() string {
			return two.graphql(t, token, `{ providerAccounts(tenantId: "acme") { nodes { id } } }`, nil).code
		})
		return token, one.socket(t, token), two.sse(t, token)
	}
	token, socket, events := open("ci", shortLife(func() { open("first", time.Hour) }))
	if got := socket.wait(t, "the WebSocket"); got != "4403" && got != "UNAUTHENTICATED" {
		t.Errorf("the WebSocket ended with %s", got)
	}
	if got := events.wait(t, "the event stream"); got != "UNAUTHENTICATED" {
		t.Errorf("the event stream ended with %q", got)
	}
	eventually(t, "after its end", "UNAUTHENTICATED", func() string { return two.viewer(t, token) })
}

// Nobody gets more by making a token than they have.
func TestNobodyMintsMoreThanTheyHold(t *testing.T) {
	t.Parallel()
	one, _, _ := newReplicas(t)
	one.grant(t, "root", "service:acme/strong", "fleet-admin", "compute-fleet")
	one.grant(t, "root", "service:acme/elsewhere", "provider-viewer", "compute-tenant/other")
	for name, c := range map[string]struct {
		as   string
		in   values
		code string
	}{
		"for a service that holds more":      {"acme", values{"tenantId": "acme", "name": "strong"}, "FORBIDDEN"},
		"for one that holds more elsewhere":  {"acme", values{"tenantId": "acme", "name": "elsewhere"}, "FORBIDDEN"},
		"for another tenant":                 {"acme", values{"tenantId": "other", "name": "ci"}, "FORBIDDEN"},
		"for the fleet":                      {"acme", values{"name": "ci"}, "FORBIDDEN"},
		"for the fleet, by a name":           {"acme", values{"tenantId": "acme", "name": "../ci"}, "INVALID_INPUT"},
		"for another tenant, by a name":      {"acme", values{"tenantId": "acme/x", "name": "ci"}, "INVALID_INPUT"},
		"that has ended":                     {"acme", values{"tenantId": "acme", "name": "ci", "expiresAt": "2001-01-01T00:00:00Z"}, "INVALID_INPUT"},
		"without a credential":               {"", values{"tenantId": "acme", "name": "ci"}, "UNAUTHENTICATED"},
		"by who may: the fleet's own":        {"root", values{"name": "ci"}, ""},
		"by who may: for one that holds all": {"root", values{"tenantId": "acme", "name": "strong"}, ""},
	} {
		if a := one.graphql(t, c.as, create, values{"in": c.in}); a.code != c.code {
			t.Errorf("%s: %s, want %q", name, a.body, c.code)
		}
	}
	// A token that may make tokens is held to the same.
	one.grant(t, "acme", "service:acme/admin", "tenant-admin", "compute-tenant/acme")
	admin, _ := one.make(t, "acme", values{"tenantId": "acme", "name": "admin"})
	one.make(t, admin, values{"tenantId": "acme", "name": "ci"})
	if a := one.graphql(t, admin, create, values{"in": values{"tenantId": "acme", "name": "strong"}}); a.code != "FORBIDDEN" {
		t.Errorf("a token's holder: %s", a.body)
	}
}

// The operator makes and revokes tokens beside a running server.
func TestTokensOfTheOperator(t *testing.T) {
	t.Parallel()
	one, _, config := newReplicas(t)
	command := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), servers.Program(t, "compute-api"), append(args, "--config", config)...)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	token, err := command("token", "create", "--service", "backup", "--tenant", "acme", "--expires", "720h", "--description", "nightly")
	if err != nil || !regexp.MustCompile(`\Abct_[0-9a-hjkmnp-tv-z]{56}\z`).MatchString(token) {
		t.Fatalf("%q, %v", token, err)
	}
	if got := one.viewer(t, token); got != "service:acme/backup" {
		t.Errorf("%s", got)
	}
	list, err := command("token", "list")
	if err != nil || !strings.Contains(list, "service:acme/backup") || !strings.Contains(list, "nightly") || strings.Contains(list, token) {
		t.Errorf("%s, %v", list, err)
	}
	id := regexp.MustCompile(`tok_[0-9a-z]{26}`).FindString(list)
	for _, want := range []string{"revoked", "was revoked already"} {
		if got, err := command("token", "revoke", id); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	eventually(t, "after it was revoked", "UNAUTHENTICATED", func() string { return one.viewer(t, token) })
	for _, wrong := range [][]string{
		{"token", "create"},
		{"token", "create", "--service", "A B"},
		{"token", "create", "--service", "x", "--expires", "-1h"},
		{"token", "create", "--service", "x", "--expires", "0s"},
		{"token", "create", "--service", "x", "--tenant", ""},
		{"token", "revoke", token},
		{"token", "revoke", "tok_00000000000000000000000000"},
	} {
		if out, err := command(wrong...); err == nil {
			t.Errorf("%v: %s", wrong, out)
		}
	}
}
