package apitest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/id"
)

// A run shows its account and its pool to who may read them, and stays readable where they may not.
func TestWhatHangsOnARunHasRightsOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	account, pool, run := id.New("pacct"), id.New("pool"), id.New("boot")
	s.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, 'acme', 'sim', 'account-name', '')", account)
	s.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, 'acme', 'pool-name', 'vps-host', 'bcd')", pool)
	s.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, operation_id)
		VALUES (?0, 'acme', ?1, ?2, '', 'o', 'claiming', ?0)`, run, account, pool)
	s.exec(t, "INSERT INTO roles (name, permissions, created_by, updated_by) VALUES ('accounts-only', '{compute:providers:read}', '', '')")
	const read = `{ id accountId poolId account { name } pool { name } }`
	documents := []string{
		`{ bootstrap(tenantId: "acme", bootstrapId: "` + run + `") ` + read + ` }`,
		`{ bootstraps(tenantId: "acme") { nodes ` + read + ` } }`,
		`{ node(id: "` + run + `") { ... on Bootstrap ` + read + ` } }`,
	}
	bind := func(role, object, effect string) {
		s.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:reader', ?, ?, ?)", role, object, effect)
	}
	for _, step := range []struct {
		name     string
		change   func()
		readable bool
	}{
		{"a role for accounts alone", func() { bind("accounts-only", "compute-tenant/acme", "allow") }, false},
		{"a role for pools too", func() { bind("provider-viewer", "compute-tenant/acme", "allow") }, true},
		{"held back on the pool", func() { bind("provider-viewer", "compute-pool/"+pool, "deny") }, false},
	} {
		step.change()
		for _, document := range documents {
			fits := func(body string) bool {
				return !strings.Contains(body, "errors") && strings.Contains(body, run) && strings.Contains(body, "account-name") &&
					strings.Contains(body, "pool-name") == step.readable && strings.Contains(body, `"pool":null`) != step.readable
			}
			body := s.asReader(t, document)
			for deadline := time.Now().Add(harness.Patience); !fits(body) && time.Now().Before(deadline); body = s.asReader(t, document) {
				time.Sleep(20 * time.Millisecond) // a change is followed within a second
			}
			if !fits(body) {
				t.Errorf("%s: %s", step.name, body)
			}
		}
	}
}

// Who may change a thing and not read it gets the thing in the answer to the change, and nothing that hangs on it.
func TestPayloadsShowNoMoreThanMayBeRead(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	account, pool, run, machine := id.New("pacct"), id.New("pool"), id.New("boot"), id.New("host")
	s.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by, config) VALUES (?, 'acme', 'sim', 'account', '', ?)", account, `{"apiToken": "secret://x"}`)
	s.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, 'acme', 'pool', 'vps-host', 'bcd')", pool)
	s.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, wait_reason, operation_id)
		VALUES (?0, 'acme', ?1, ?2, '', 'o', 'claiming', 'CLAIM_UNCERTAIN', ?0)`, run, account, pool)
	s.exec(t, `INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES (?, 'acme', ?, ?, ?, 'm')`, machine, pool, run, account)
	s.exec(t, "UPDATE pools SET archived_at = now() WHERE id = ?", pool) // archiving it again changes nothing
	s.exec(t, "INSERT INTO roles (name, permissions, created_by, updated_by) VALUES ('blind', '{compute:providers:manage,compute:pools:manage}', '', '')")
	bind := func(role string) {
		s.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:reader', ?, 'compute-tenant/acme', 'allow')", role)
	}
	changes := []struct{ document, hangs, denied string }{
		{`mutation { archivePool(input: {tenantId: "acme", poolId: "` + pool + `"}) { pool { id hosts { nodes { id } } } } }`, machine, "hosts"},
		{`mutation { updateProviderAccount(input: {tenantId: "acme", accountId: "` + account + `", config: {apiToken: "secret://x"}}) { providerAccount { id bootstraps { nodes { id } } } } }`, run, "bootstraps"},
	}
	bind("blind")
	for _, c := range changes {
		var body string
		harness.Await(t, "what hangs on it to be refused", func() bool {
			body = s.asReader(t, c.document)
			return strings.Contains(body, `"`+c.denied+`"`)
		})
		if strings.Contains(body, c.hangs) || !strings.Contains(body, "FORBIDDEN") {
			t.Errorf("who may not read is answered %s", body)
		}
	}
	bind("provider-viewer")
	for _, c := range changes {
		harness.Await(t, "a reader to see "+c.denied, func() bool {
			body := s.asReader(t, c.document)
			return strings.Contains(body, c.hangs) && !strings.Contains(body, "FORBIDDEN")
		})
	}
}

func (s *services) asReader(t *testing.T, document string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": document})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, graphqlPath, bytes.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+readerToken)
	req.Header.Set("Content-Type", typeJSON)
	rec := httptest.NewRecorder()
	s.api.Handler().ServeHTTP(rec, req)
	return rec.Body.String()
}
