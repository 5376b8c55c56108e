// Package site is a whole server, as a process, with an account at one provider and a pool, for tests of drivers: from a bootstrap to the
// host that joined.
//
// It knows no driver. The invariant: a test of a driver here sees what a tenant sees, and nothing of how it comes about.
package site

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/postgres/pgtest"
)

const (
	tenant = "site"
	token  = "site-canary-alice"
)

var (
	serverBuild = &harness.Build{Packages: []string{"./cmd/compute-api"}}
	agentBuild  = &harness.Build{Packages: []string{"./cmd/bcd"}, Env: []string{"CGO_ENABLED=0"}}
)

// Main is for the TestMain of a package whose tests have sites.
func Main(m *testing.M) { harness.Main(m, serverBuild, agentBuild) }

// Options says what the site is made of.
type Options struct {
	// At is an address of this machine that the provider's machines reach.
	At netip.Addr
	// Provider is the provider's entry in the server's configuration, and Config the account's.
	Provider, Config map[string]any
	// Secrets are what the config refers to, by name.
	Secrets map[string]string
	// Class is that of the pool: VPS_HOST or METAL_HOST.
	Class string
	// Patience bounds each bootstrap, and how long the server waits for an agent; 0 is the harness's, and the server's own.
	Patience time.Duration
}

// Site is a running server with its account and pool.
type Site struct {
	t             testing.TB
	url           string
	log           harness.Log
	patience      time.Duration
	account, pool string
}

// Start starts a site, and stops it with the test. Its log must then hold none of the secrets.
func Start(t testing.TB, o Options) *Site {
	t.Helper()
	s := &Site{t: t, patience: cmp.Or(o.Patience, harness.Patience)}
	process := harness.Serve(t, serverBuild.Program(t, "compute-api"), s.configure(o), &s.log)
	process.Ready(t)
	t.Cleanup(func() {
		if err := process.Stop(harness.Patience); err != nil {
			t.Errorf("the server did not stop cleanly: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
		for _, secret := range o.Secrets {
			if bytes.Contains(s.log.Bytes(), []byte(secret)) {
				t.Errorf("the server's log holds a secret that begins with %.8q", secret)
			}
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.log.Bytes())
		}
	})
	for name, value := range o.Secrets {
		change[struct{}](s, "putSecret", "PutSecretInput", "{ secret { name } }", map[string]any{"name": name, "value": value})
	}
	s.account = change[struct{ ProviderAccount struct{ ID string } }](s, "createProviderAccount", "CreateProviderAccountInput", "{ providerAccount { id } }",
		map[string]any{"provider": o.Provider["name"], "name": "site", "config": o.Config}).ProviderAccount.ID
	s.pool = change[struct{ Pool struct{ ID string } }](s, "createPool", "CreatePoolInput", "{ pool { id } }",
		map[string]any{"name": "site", "class": o.Class, "agent": "BCD"}).Pool.ID
	return s
}

// configure writes the server's configuration and makes its authority.
func (s *Site) configure(o Options) (path string) {
	s.t.Helper()
	dir := s.t.TempDir()
	listen, agents := harness.FreeAddress(s.t, "127.0.0.1"), harness.FreeAddress(s.t, o.At.String())
	s.url = "http://" + listen
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	keyFile := filepath.Join(dir, "secret.key")
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		s.t.Fatal(err)
	}
	bootstrap := map[string]any{"agentURL": "https://" + agents, "agentBinaries": agentBuild.Dir(s.t), "trustDomain": "compute.test"}
	if o.Patience > 0 {
		bootstrap["tokenTTL"], bootstrap["limits"] = o.Patience.String(), map[string]any{"installed": o.Patience.String()}
	}
	path = harness.Config(s.t, map[string]any{
		"listen": listen, "stateDir": filepath.Join(dir, "state"), "database": map[string]any{"url": pgtest.URL(s.t)},
		"auth":      map[string]any{"allowStaticTokens": true, "tokens": []map[string]any{{"token": token, "subject": "user:alice"}}},
		"authz":     map[string]any{"bindings": []map[string]any{{"subject": "user:alice", "role": "tenant-admin", "object": "compute-tenant/" + tenant}}},
		"providers": []map[string]any{o.Provider},
		"secrets":   map[string]any{"store": map[string]any{"keyFile": keyFile}},
		"bootstrap": bootstrap,
		"pki":       map[string]any{"dir": filepath.Join(dir, "pki")},
		"agent":     map[string]any{"listen": agents, "heartbeat": "1s"},
	})
	init := exec.CommandContext(s.t.Context(), serverBuild.Program(s.t, "compute-api"), "pki", "init", "--config", path)
	if out, err := init.CombinedOutput(); err != nil {
		s.t.Fatalf("pki init: %v\n%s", err, out)
	}
	return path
}

// Run is a bootstrap as its owner sees it.
type Run struct {
	ID, Status, MachineID, HostID, WaitReason, Cleanup string

	Failure *struct {
		Reason, Message string
		LogTail         []string
	}
}

// Bootstrap makes a host of what is named by `machineId` or `offerId`, and waits until that has joined or failed, and what was to be cleaned up
// is.
func (s *Site) Bootstrap(by, id string) Run {
	s.t.Helper()
	run := change[struct{ Bootstrap Run }](s, "bootstrapMachine", "BootstrapMachineInput", "{ bootstrap { id } }",
		map[string]any{"accountId": s.account, "poolId": s.pool, by: id, "idempotencyKey": by + ":" + id}).Bootstrap
	harness.AwaitFor(s.t, s.patience, "the end of run "+run.ID, func() bool {
		was := run.Status
		run = ask[struct{ Bootstrap Run }](s, `query($tenantId: ID!, $id: ID!) { bootstrap(tenantId: $tenantId, bootstrapId: $id)
			{ id status machineId hostId waitReason cleanup failure { reason message logTail } } }`, map[string]any{"tenantId": tenant, "id": run.ID}).Bootstrap
		if was != run.Status {
			s.t.Logf("%s %s", run.ID, run.Status)
		}
		return run.Status == "JOINED" || run.Status == "FAILED" && run.Cleanup != "PENDING" && run.Cleanup != "RELEASING"
	})
	return run
}

// change makes a mutation of the tenant and returns the fields of its payload.
func change[T any](s *Site, mutation, input, fields string, values map[string]any) T {
	s.t.Helper()
	values["tenantId"] = tenant
	document := fmt.Sprintf("mutation($input: %s!) { payload: %s(input: $input) %s }", input, mutation, fields)
	return ask[struct{ Payload T }](s, document, map[string]any{"input": values}).Payload
}

// ask runs one operation, which has to succeed.
func ask[T any](s *Site, document string, variables map[string]any) T {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Data   T
		Errors []json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		s.t.Fatalf("the answer with status %s: %v", response.Status, err)
	}
	if len(answer.Errors) > 0 {
		s.t.Fatalf("%s\nwas refused: %s", document, answer.Errors[0])
	}
	return answer.Data
}
