package apitest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

// TestWrongConfigurationStopsTheStart wants of each fault that the server does not start and names the key and the reason, and
// never a secret.
func TestWrongConfigurationStopsTheStart(t *testing.T) {
	t.Parallel()
	secret := newSecret()
	const away = "database: { url: 'postgres://127.0.0.1:1/none' }\n" // nobody is there: what is wrong is wrong without it
	for name, c := range map[string]struct {
		config string
		env    []string
		says   []string
	}{
		"no YAML":                   {config: "listen: [", says: []string{"config.yaml"}},
		"an unknown key":            {config: "lissten: a:1", says: []string{"lissten"}},
		"an unknown key, inside":    {config: "database: { urll: a }", says: []string{"database", "urll"}},
		"a wrong type":              {config: "database: { maxConns: many }", says: []string{"database.maxConns"}},
		"a list for a text":         {config: "listen: [a]", says: []string{"listen"}},
		"listen":                    {config: "listen: nowhere", says: []string{"listen", "host:port"}},
		"agent.listen":              {config: "agent: { listen: nowhere }", says: []string{"agent.listen", "host:port"}},
		"stateDir":                  {config: "stateDir: ''", says: []string{"stateDir", "empty"}},
		"maxConns":                  {config: "database: { maxConns: 1 }", says: []string{"database.maxConns", "4 to 1000"}},
		"a database URL":            {config: "database: { url: 'mysql://u:" + secret + "@h/d' }", says: []string{"database.url", "postgres://"}},
		"a token with a space":      {config: "auth: { tokens: [ { token: 'a b', subject: 'user:a' } ] }", says: []string{"auth.tokens[0].token", "1 to 1000"}},
		"a token twice":             {config: "auth: { tokens: [ { token: '" + secret + "', subject: 'user:a' }, { token: '" + secret + "', subject: 'user:b' } ] }", says: []string{"auth.tokens[1].token", "same"}},
		"a subject":                 {config: "auth: { tokens: [ { token: '" + secret + "', subject: a } ] }", says: []string{"auth.tokens[0].subject", "user:"}},
		"a fixed token by accident": {config: "auth: { tokens: [ { token: '" + secret + "', subject: 'user:a' } ] }", says: []string{"auth.tokens", "auth.allowStaticTokens"}},
		"a token of another kind":   {config: "auth: { tokens: [ { token: 'bct_x', subject: 'user:a' } ] }", says: []string{"auth.tokens[0].token", "another kind"}},
		"a tenant's service":        {config: "auth: { tokens: [ { token: '" + secret + "', subject: 'service:t/a' } ] }", says: []string{"auth.tokens[0].subject", "slash"}},
		"an issuer":                 {config: "auth: { oidc: { issuer: 'http://issuer.example', leeway: 1h } }", says: []string{"auth.oidc.audience", "auth.oidc.issuer", "auth.oidc.leeway"}},
		"a group":                   {config: "auth: { tokens: [ { token: '" + secret + "', subject: 'user:a', groups: ['a b'] } ] }", says: []string{"auth.tokens[0].groups[0]", "group:"}},
		"a driver":                  {config: "providers: [ { name: nowhere } ]", says: []string{"providers[0].name", "nowhere", "sim", "ssh"}},
		"a driver twice":            {config: "providers: [ { name: ssh }, { name: ssh } ]", says: []string{"providers[1].name", "twice"}},
		"an endpoint":               {config: "providers: [ { name: sim, endpoint: 'ftp://h' } ]", says: []string{"providers[0].endpoint", "http"}},
		"an endpoint with password": {config: "providers: [ { name: sim, endpoint: 'http://u:" + secret + "@h' } ]", says: []string{"providers[0].endpoint", "credentials"}},
		"agentURL":                  {config: "bootstrap: { agentURL: 'http://h', agentBinaries: /, trustDomain: a }", says: []string{"bootstrap.agentURL", "https"}},
		"agentBinaries":             {config: "bootstrap: { agentBinaries: /no/such/directory, trustDomain: a }", says: []string{"bootstrap.agentBinaries", "does not exist"}},
		"trustDomain":               {config: "bootstrap: { agentBinaries: /, trustDomain: 'A b' }", says: []string{"bootstrap.trustDomain", "DNS name"}},
		"tokenTTL":                  {config: "bootstrap: { agentBinaries: /, trustDomain: a, tokenTTL: 25h }", says: []string{"bootstrap.tokenTTL", "24h"}},
		"no duration":               {config: "bootstrap: { agentBinaries: /, trustDomain: a, tokenTTL: soon }", says: []string{"bootstrap.tokenTTL"}},
		"two faults":                {config: "stateDir: ''\nlisten: nowhere", says: []string{"stateDir", "listen"}},
		"the environment":           {config: "", env: []string{"COMPUTE_DATABASE_MAXCONNS=many"}, says: []string{"database.maxConns", "COMPUTE_DATABASE_MAXCONNS", "number"}},
		"the environment over all":  {config: "listen: 127.0.0.1:0", env: []string{"COMPUTE_LISTEN=nowhere"}, says: []string{"listen", "host:port"}},
		"no key file":               {config: away + "secrets: { store: { keyFile: /no/such/file } }", says: []string{"secrets.store.keyFile", "/no/such/file"}},
		"no PKI":                    {config: away + "bootstrap: { agentBinaries: /, trustDomain: a }", says: []string{"pki.dir", "pki init"}},
		"a limit":                   {config: away + "limits: { depth: -1, cost: -1 }", says: []string{"limits.depth", "limits.cost", "negative"}},
		"an origin":                 {config: away + "graphql: { allowedOrigins: [example.com] }", says: []string{"allowedOrigins[0]", "https://"}},
		"no such file of documents": {config: away + "graphql: { persistedOperations: /no/such/file }", says: []string{"persistedOperations"}},
		"a binding's role":          {config: away + "authz: { bindings: [ { subject: 'user:a', role: king, object: compute-fleet } ] }", says: []string{"authz.bindings.0.role"}},
		"a binding's object":        {config: away + "authz: { bindings: [ { subject: 'user:a', role: fleet-admin, object: fleet } ] }", says: []string{"authz.bindings.0.object"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, code := refusedStart(t, c.config, c.env)
			if code != 2 && name != "no YAML" { // which is no setting that is wrong
				t.Errorf("exit code %d, want 2", code)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			if found := planted.in([]byte(text)); found != "" {
				t.Errorf("it gives away %s", found)
			}
		})
	}
}

// refusedStart starts a server that should end by itself.
func refusedStart(t *testing.T, config string, env []string) (text string, code int) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.Program(t, "compute-api"), "serve", "--config", path)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "COMPUTE_LISTEN=127.0.0.1:0", "COMPUTE_AGENT_LISTEN=127.0.0.1:0"}, env...)
	for _, key := range []string{"listen: ", "agent: "} { // what the case is about
		if strings.Contains(config, key) {
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("it started, or hangs:\n%s", &out)
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), ended.ExitCode()
	}
	t.Fatalf("it ended with %v:\n%s", err, &out)
	return "", 0
}

// TestDeploymentWithoutBootstraps has no bootstrap section: everything else works, and a bootstrap is INVALID_CONFIG, whatever it names.
func TestDeploymentWithoutBootstraps(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	delete(d.settings, "bootstrap")
	token := d.caller("user:a", "tenant-admin compute-tenant/plain")
	s := d.serve(t)
	create := s.rest(t, "create", token, []byte(`{"tenantId":"plain","provider":"ssh","name":"a","config":{"machines":[]}}`))
	if create.Code != "" {
		t.Fatalf("create: %+v", create)
	}
	for _, account := range []any{member(create.Data, "id"), "pacct_00000000000000000000000000"} {
		input := map[string]any{"tenantId": "plain", "accountId": account, "poolId": "pool_00000000000000000000000000", "machineId": "m", "idempotencyKey": "k"}
		if got := s.graphql(t, "bootstrap", token, input); got.Code != problem.InvalidConfig {
			t.Errorf("bootstrap on %s: %+v, want INVALID_CONFIG", account, got)
		}
	}
	body := `{"tenantId":"plain","accountId":"pacct_00000000000000000000000000","poolId":"pool_00000000000000000000000000","machineId":"m","idempotencyKey":"k"}`
	if got := s.rest(t, "bootstrap", token, []byte(body)); got.Code != problem.InvalidConfig {
		t.Errorf("over REST: %+v, want INVALID_CONFIG", got)
	}
}
