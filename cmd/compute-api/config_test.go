package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, `
listen: 127.0.0.1:9000
database: {url: "postgres://db/compute", maxConns: 7}
auth:
  tokens: [{token: abcdefghij, subject: "user:ada", groups: ["group:ops"]}]
authz:
  bindings: [{subject: "group:ops", role: fleet-admin, object: compute-fleet}]
providers: [{name: sim, endpoint: "http://127.0.0.1:1"}, {name: ssh}]
bootstrap: {agentBinaries: `+dir+`, trustDomain: example.com, tokenTTL: 90s, ordersPerHour: 0, limits: {installed: 5m}}
`)
	c, err := loadConfig(defaultConfig(), path, []string{
		"COMPUTE_STATEDIR=/srv/compute", "COMPUTE_DATABASE_MAXCONNS=9", `COMPUTE_SECRETS_ENV_ALLOW=["A","B"]`,
		"COMPUTE_BOOTSTRAP_AGENTURL=https://agents.example.com", "COMPUTE_SERVICE_HOST=10.0.0.1", "UNRELATED=1",
		"COMPUTE_GRAPHQL_INTROSPECTION=true", "COMPUTE_BOOTSTRAP_KEEPFAILED=1h",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Listen, want.StateDir = "127.0.0.1:9000", "/srv/compute"
	want.Database = databaseConfig{URL: "postgres://db/compute", MaxConns: 9}
	want.Auth.Tokens = []tokenConfig{{Token: "abcdefghij", Subject: "user:ada", Groups: []string{"group:ops"}}}
	want.Authz.Bindings = []bindingConfig{{Subject: "group:ops", Role: "fleet-admin", Object: "compute-fleet"}}
	want.Providers = []providerEntry{{Name: "sim", Endpoint: "http://127.0.0.1:1"}, {Name: "ssh"}}
	want.Secrets.Env.Allow = []string{"A", "B"}
	want.Bootstrap = &bootstrapConfig{
		AgentURL: "https://agents.example.com", AgentBinaries: dir, TrustDomain: "example.com", TokenTTL: 90 * time.Second,
		OrdersPerHour: new(0), KeepFailed: time.Hour,
		Limits: stateLimits{Installed: 5 * time.Minute},
	}
	want.GraphQL.Introspection = true
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("loadConfig (-want +got):\n%s", diff)
	}
}

func TestWrongConfigNamesTheKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, yaml string
		env        []string
		want       []string // one line each must start with
	}{
		{name: "unknown key", yaml: "lisen: 127.0.0.1:1", want: []string{"lisen: is no key"}},
		{name: "unknown nested key", yaml: "database: {uri: x}", want: []string{"database.uri: is no key"}},
		{name: "wrong type", yaml: "database: {maxConns: many}", want: []string{"database.maxConns"}},
		{name: "list for a string", yaml: "listen: [1]", want: []string{"listen"}},
		{name: "not host:port", yaml: "listen: localhost", want: []string{"listen: "}},
		{name: "more connections than the embedded database has", yaml: "database: {maxConns: 100}", want: []string{"database.maxConns: "}},
		{name: "too few connections", yaml: "database: {maxConns: 1}", want: []string{"database.maxConns: "}},
		{name: "never a heartbeat", yaml: "agent: {heartbeat: 0s}", want: []string{"agent.heartbeat: "}},
		{name: "not a database", yaml: "database: {url: \"mysql://u:hunter2@h/d\"}", want: []string{"database.url: "}},
		{name: "no owner's database", yaml: "database: {url: \"postgres://h/d\", migrationsUrl: \"mysql://u:hunter2@h/d\"}", want: []string{"database.migrationsUrl: "}},
		{name: "an owner of the embedded database", yaml: "database: {migrationsUrl: \"postgres://h/d\"}", want: []string{"database.migrationsUrl: needs database.url"}},
		{name: "token with a space", yaml: "auth: {tokens: [{token: \"with space\", subject: \"user:a\"}]}", want: []string{"auth.tokens[0].token: "}},
		{name: "no subject", yaml: "auth: {tokens: [{token: abcdefghij, subject: ada}]}", want: []string{"auth.tokens[0].subject: "}},
		{name: "a service with a slash", yaml: "auth: {tokens: [{token: abcdefghij, subject: \"service:acme/ci\"}]}", want: []string{"auth.tokens[0].subject: "}},
		{name: "an API token", yaml: "auth: {tokens: [{token: bct_abcdefghij, subject: \"user:a\"}]}", want: []string{"auth.tokens[0].token: "}},
		{
			name: "what would pass for an issuer's", want: []string{"auth.tokens[0].token: "},
			yaml: "auth: {oidc: {issuer: \"https://issuer.example\", audience: a}, tokens: [{token: abcdefghij.b.c, subject: \"user:a\"}]}",
		},
		{
			name: "issuer", want: []string{"auth.oidc.audience: ", "auth.oidc.issuer: ", "auth.oidc.leeway: "},
			yaml: "auth: {oidc: {issuer: \"http://user:hunter2@issuer.example\", leeway: 6m}}",
		},
		{
			name: "group with a space", yaml: "auth: {tokens: [{token: abcdefghij, subject: \"user:a\", groups: [\"with space\"]}]}",
			want: []string{"auth.tokens[0].groups[0]: "},
		},
		{
			name: "same token twice", yaml: "auth: {tokens: [{token: abcdefghij, subject: \"user:a\"}, {token: abcdefghij, subject: \"user:b\"}]}",
			want: []string{"auth.tokens[1].token: "},
		},
		{name: "unknown driver", yaml: "providers: [{name: nope}]", want: []string{"providers[0].name: "}},
		{name: "driver twice", yaml: "providers: [{name: ssh}, {name: ssh}]", want: []string{"providers[1].name: "}},
		{name: "no network", yaml: "providers: [{name: ssh, allowNetworks: [10.0.0.0/8, 10.0.0.1]}]", want: []string{"providers[0].allowNetworks[1]: "}},
		{name: "credentials in an endpoint", yaml: "providers: [{name: sim, endpoint: \"http://u:p@h\"}]", want: []string{"providers[0].endpoint: "}},
		{
			name: "several at once", yaml: "listen: x\nstateDir: \"\"\nbootstrap: {agentBinaries: /nonexistent, trustDomain: \"UPPER\", agentURL: \"http://x\"}",
			want: []string{"bootstrap.agentBinaries: ", "bootstrap.agentURL: ", "bootstrap.trustDomain: ", "listen: ", "stateDir: "},
		},
		{name: "environment", env: []string{"COMPUTE_DATABASE_MAXCONNS=x"}, want: []string{"database.maxConns (from COMPUTE_DATABASE_MAXCONNS)"}},
		{name: "fraction", env: []string{"COMPUTE_DATABASE_MAXCONNS=20.9"}, want: []string{"database.maxConns (from COMPUTE_DATABASE_MAXCONNS)"}},
		{name: "huge number", env: []string{"COMPUTE_LIMITS_COST=1e30"}, want: []string{"limits.cost (from COMPUTE_LIMITS_COST)"}},
		{name: "negative limit", yaml: "limits: {cost: -1}", want: []string{"limits.cost: "}},
		{name: "more operations than connections", yaml: "database: {maxConns: 8}\nlimits: {operationsPerSubject: 8, operationsPerTenant: 9}", want: []string{"limits.operationsPerSubject: ", "limits.operationsPerTenant: "}},
		{name: "negative denials", yaml: "limits: {denialsPerSecond: -1, denialsAtMost: -1}", want: []string{"limits.denialsAtMost: ", "limits.denialsPerSecond: "}},
		{name: "no operations", yaml: "graphql: {persistedOperations: /nonexistent}", want: []string{"graphql.persistedOperations: "}},
		{name: "origin", yaml: "graphql: {allowedOrigins: [nope]}", want: []string{"graphql.allowedOrigins[0]: "}},
		{name: "nobody", yaml: "auth: {tokens: [{token: abcdefghij, subject: \"user:\"}]}", want: []string{"auth.tokens[0].subject: "}},
		{
			name: "variables of tenants",
			yaml: "secrets: {env: {tenants: [{tenantId: \"a b\", name: \"x-y\", variable: \"\"}, {tenantId: a, name: X, variable: Y}, {tenantId: a, name: X, variable: Z}]}}",
			want: []string{"secrets.env.tenants[0].name: ", "secrets.env.tenants[0].tenantId: ", "secrets.env.tenants[0].variable: ", "secrets.env.tenants[2].name: "},
		},
		{name: "old keys alone", yaml: "secrets: {store: {oldKeyFiles: [x]}}", want: []string{"secrets.store.oldKeyFiles: "}},
		{
			name: "vault",
			yaml: "secrets: {vault: {address: \"http://vault.example.com\", engine: 3, mount: /secret, path: \"a/../b\", namespace: \"a//b\"}}",
			want: []string{
				"secrets.vault.address: ", "secrets.vault.engine: ", "secrets.vault.mount: ", "secrets.vault.namespace: ", "secrets.vault.path: ",
				"secrets.vault.tokenFile: ",
			},
		},
		{
			name: "logins at a vault",
			yaml: "secrets: {vault: {address: \"https://vault.example.com/v1\", tokenFile: x, appRole: {roleIdFile: y}}}",
			want: []string{"secrets.vault.address: ", "secrets.vault.tokenFile: "},
		},
		{
			name: "half a role",
			yaml: "secrets: {vault: {address: \"https://vault.example.com\", appRole: {roleIdFile: y, mount: \"a?b\"}}}",
			want: []string{"secrets.vault.appRole: "},
		},
		{name: "variable", yaml: "secrets: {env: {allow: [\"BAD NAME\", \"*\", GOOD]}}", want: []string{"secrets.env.allow[0]: ", "secrets.env.allow[1]: "}},
		{
			name: "agent URL with more than a host", yaml: "bootstrap: {agentBinaries: /, trustDomain: a.example, agentURL: \"https://u:p@x:1/foo?x\"}",
			want: []string{"bootstrap.agentURL: "},
		},
		{name: "binding", yaml: "authz: {bindings: [{subject: ada, role: nope, object: x, effect: maybe}]}", want: []string{
			"authz.bindings.0.effect: ", "authz.bindings.0.object: ", "authz.bindings.0.role: ", "authz.bindings.0.subject: ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadConfig(defaultConfig(), write(t, c.yaml), c.env)
			problems, ok := errors.AsType[configError](err)
			if !ok {
				t.Fatalf("loadConfig = %v, want a configError", err)
			}
			if len(problems) != len(c.want) {
				t.Fatalf("problems = %q, want %d of them", problems, len(c.want))
			}
			for i, line := range problems {
				if !strings.Contains(line, c.want[i]) {
					t.Errorf("problem %q does not name %q", line, c.want[i])
				}
				if strings.Contains(line, "hunter2") || strings.Contains(line, "abcdefghij") {
					t.Errorf("problem %q shows a secret", line)
				}
			}
		})
	}
}

func TestFixedCredentialsAreForDevelopment(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		"listen: 127.0.0.1:0": false,
		"auth: {tokens: [{token: abcdefghij, subject: \"user:ada\"}]}":                           true,
		"auth: {allowStaticTokens: false, tokens: [{token: abcdefghij, subject: \"user:ada\"}]}": true,
		"auth: {allowStaticTokens: true, tokens: [{token: abcdefghij, subject: \"user:ada\"}]}":  false,
	} {
		c, err := loadConfig(defaultConfig(), write(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		problems := c.productionProblems()
		if (len(problems) > 0) != refused {
			t.Errorf("%s: %q", text, problems)
		}
		for _, p := range problems {
			if !strings.Contains(p, "auth.allowStaticTokens: true") || strings.Contains(p, "abcdefghij") {
				t.Errorf("%q", p)
			}
		}
	}
}

func TestKeepWritesOnceForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	first, err := keep(path, newKey)
	if err != nil || len(first) != 32 {
		t.Fatalf("keep = %d bytes, %v", len(first), err)
	}
	again, err := keep(path, newKey)
	if err != nil || !cmp.Equal(first, again) {
		t.Errorf("the second keep gave something else: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600", info.Mode(), err)
	}
}

func TestEveryLimitReachesTheEdge(t *testing.T) {
	t.Parallel()
	c := defaultConfig()
	set := reflect.ValueOf(&c.Limits).Elem()
	for i := range set.NumField() {
		set.Field(i).SetInt(int64(i) + 1000)
	}
	edge := reflect.ValueOf(c.serverConfig().Limits)
	for i := range set.NumField() {
		name := set.Type().Field(i).Name
		if strings.HasPrefix(name, "Denials") { // the decider's
			continue
		}
		if got := edge.FieldByName(name); !got.IsValid() || got.Int() != set.Field(i).Int() {
			t.Errorf("%s gets lost on its way", name)
		}
	}
}
