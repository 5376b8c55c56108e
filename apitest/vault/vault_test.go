// Package vault reads from a whole HashiCorp Vault what tenants keep there.
//
// It has no code but tests. The invariant: what stands in the vault was put there over its own API, with the rights that the
// documentation tells operators to give.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/secret/vault"
	"better/compute/secret/vault/vaulttest"
)

var programs = &harness.Build{Module: "apitest/vault/server", Packages: []string{"."}}

func TestMain(m *testing.M) { harness.Main(m, programs) }

// server is the vault, and its administrator.
type server struct {
	*harness.Process
	address, root string
}

func start(t *testing.T) *server {
	t.Helper()
	s := &server{Process: harness.Start(t, exec.CommandContext(context.Background(), programs.Program(t, "server")), new(harness.Log))} // killed with the test
	t.Cleanup(s.Kill)
	s.AwaitLine(t, func(line []byte) bool {
		var ready struct{ Msg, Address, RootToken string }
		if json.Unmarshal(line, &ready) != nil || ready.Msg != "ready" {
			return false
		}
		s.address, s.root = ready.Address, ready.RootToken
		return true
	})
	s.call(t, http.MethodPost, "sys/mounts/secret", map[string]any{"type": "kv", "options": map[string]string{"version": "2"}})
	s.call(t, http.MethodPost, "sys/mounts/old", map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	s.call(t, http.MethodPost, "sys/auth/approle", map[string]any{"type": "approle"})
	s.call(t, http.MethodPut, "sys/policies/acl/compute", map[string]any{"policy": `
		path "secret/data/compute/*" { capabilities = ["read"] }
		path "old/compute/*" { capabilities = ["read"] }
		path "secret/data/compute/acme/denied" { capabilities = ["deny"] }`})
	s.call(t, http.MethodPost, "auth/approle/role/compute", map[string]any{"token_policies": "compute", "token_ttl": "1h"})
	return s
}

// call does something as the administrator.
func (s *server) call(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.address+"/v1/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", s.root)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.Patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
	}
	var parsed map[string]any
	_ = json.Unmarshal(answer, &parsed) // some answers are empty
	return parsed
}

func text(answer map[string]any, path ...string) string {
	var v any = answer
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	s, _ := v.(string)
	return s
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credential")
	write(t, path, content)
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newToken makes a token for the server.
func (s *server) newToken(t *testing.T) string {
	t.Helper()
	return text(s.call(t, http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"compute"}}), "auth", "client_token")
}

func (s *server) appRole(t *testing.T) vault.Login {
	t.Helper()
	role := text(s.call(t, http.MethodGet, "auth/approle/role/compute/role-id", nil), "data", "role_id")
	id := text(s.call(t, http.MethodPost, "auth/approle/role/compute/secret-id", map[string]any{}), "data", "secret_id")
	return vault.Login{AppRole: "approle", RoleIDFile: file(t, role+"\n"), SecretIDFile: file(t, id+"\n")}
}

func (s *server) client(t *testing.T, o vault.Options) *vault.Client {
	t.Helper()
	o.Address = s.address
	if o.Path == "" {
		o.Path = "compute"
	}
	c, err := vault.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func want(t *testing.T, c *vault.Client, tenant, path, field, value string, wantErr error) {
	t.Helper()
	got, err := c.Read(t.Context(), tenant, path, field)
	if got != value || !errors.Is(err, wantErr) {
		t.Errorf("%s %s#%s: %q, %v; want %q, %v", tenant, path, field, got, err, value, wantErr)
	}
}

const canary = "canary-51c0-value"

func TestBothEnginesAndLogins(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tenant := range []string{"acme", "other"} {
		s.call(t, http.MethodPost, "secret/data/compute/"+tenant+"/clouds/hetzner", map[string]any{"data": map[string]any{"token": canary + tenant, "n": 7}})
		s.call(t, http.MethodPost, "old/compute/"+tenant+"/clouds/hetzner", map[string]any{"token": canary + tenant + "-old"})
	}
	s.call(t, http.MethodPost, "secret/data/compute/acme/denied", map[string]any{"data": map[string]any{"token": canary}})
	s.call(t, http.MethodPost, "secret/data/compute/acme/deleted", map[string]any{"data": map[string]any{"token": canary}})
	s.call(t, http.MethodDelete, "secret/data/compute/acme/deleted", nil)
	s.call(t, http.MethodPost, "secret/data/elsewhere/token", map[string]any{"data": map[string]any{"token": canary}})
	for name, login := range map[string]vault.Login{"a token file": {TokenFile: file(t, s.newToken(t)+"\n")}, "AppRole": s.appRole(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			second := s.client(t, vault.Options{Engine: vault.KV2, Mount: "secret", Login: login})
			want(t, second, "acme", "clouds/hetzner", "token", canary+"acme", nil)
			want(t, second, "other", "clouds/hetzner", "token", canary+"other", nil)
			want(t, second, "acme", "clouds/hetzner", "absent", "", vault.ErrAbsent)
			want(t, second, "acme", "clouds/hetzner", "n", "", vault.ErrAbsent)
			want(t, second, "acme", "clouds", "token", "", vault.ErrAbsent)
			want(t, second, "acme", "deleted", "token", "", vault.ErrAbsent)
			want(t, second, "acme", "denied", "token", "", vault.ErrDenied)
			want(t, second, "..", "elsewhere/token", "token", "", vault.ErrAbsent)
			want(t, s.client(t, vault.Options{Engine: vault.KV2, Mount: "secret", Path: "elsewhere", Login: login}), "acme", "x", "token", "", vault.ErrDenied)
			first := s.client(t, vault.Options{Engine: vault.KV1, Mount: "old", Login: login})
			want(t, first, "acme", "clouds/hetzner", "token", canary+"acme-old", nil)
			want(t, first, "nobody", "clouds/hetzner", "token", "", vault.ErrAbsent)
		})
	}
}

// A token that was put into the file in the place of another counts with the next read.
func TestTheTokenFileIsReadAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.call(t, http.MethodPost, "secret/data/compute/acme/a", map[string]any{"data": map[string]any{"token": canary}})
	token := s.newToken(t)
	path := file(t, token)
	c := s.client(t, vault.Options{Engine: vault.KV2, Mount: "secret", Login: vault.Login{TokenFile: path}})
	want(t, c, "acme", "a", "token", canary, nil)
	s.call(t, http.MethodPost, "auth/token/revoke", map[string]any{"token": token})
	want(t, c, "acme", "a", "token", "", vault.ErrDenied)
	write(t, path, s.newToken(t))
	want(t, c, "acme", "a", "token", canary, nil)
	write(t, path, "two\nlines")
	if _, err := c.Read(t.Context(), "acme", "a", "token"); err == nil || strings.Contains(err.Error(), "two") {
		t.Errorf("a file that holds no token: %v", err)
	}
}

// A vault that is sealed, or gone, is not one that has no such secret.
func TestAVaultThatIsAway(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.call(t, http.MethodPost, "secret/data/compute/acme/a", map[string]any{"data": map[string]any{"token": canary}})
	c := s.client(t, vault.Options{Engine: vault.KV2, Mount: "secret", Login: s.appRole(t)})
	want(t, c, "acme", "a", "token", canary, nil)
	away := func(when string) {
		_, err := c.Read(t.Context(), "acme", "a", "token")
		if err == nil || errors.Is(err, vault.ErrAbsent) || errors.Is(err, vault.ErrDenied) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", when, err)
		}
	}
	s.call(t, http.MethodPut, "sys/seal", nil)
	away("sealed")
	s.Kill()
	away("gone")
}

// What other tests have in the place of a vault answers reads as this one does.
func TestTheVaultOfOtherTestsIsLikeThisOne(t *testing.T) {
	t.Parallel()
	s, fake := start(t), vaulttest.New(t)
	s.call(t, http.MethodPost, "secret/data/compute/acme/a", map[string]any{"data": map[string]any{"token": "first"}})
	fake.Put("acme/a", "first")
	s.call(t, http.MethodPost, "secret/data/compute/acme/a", map[string]any{"data": map[string]any{"token": canary}})
	fake.Put("acme/a", canary)
	whole := s.client(t, vault.Options{Engine: vault.KV2, Mount: "secret", Login: s.appRole(t)})
	for _, c := range []*vault.Client{whole, fake.Client(t)} {
		want(t, c, "acme", "a", "token", canary, nil)
		want(t, c, "acme", "a", "absent", "", vault.ErrAbsent)
		want(t, c, "acme", "none", "token", "", vault.ErrAbsent)
		want(t, c, "other", "a", "token", "", vault.ErrAbsent)
	}
	s.call(t, http.MethodPut, "sys/seal", nil)
	fake.SetAway(true)
	_, sealed := whole.Read(t.Context(), "acme", "a", "token")
	_, away := fake.Client(t).Read(t.Context(), "acme", "a", "token")
	if sealed == nil || away == nil || sealed.Error() != away.Error() {
		t.Errorf("sealed: %v; away: %v", sealed, away)
	}
}
