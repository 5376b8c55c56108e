package provideraccount

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
	"better/compute/secret/vault"
)

// keeper is a vault that keeps the field token at each of its paths, below secret/compute, and what it was asked.
type keeper struct {
	mu     sync.Mutex
	tokens map[string]string
	away   bool
	asked  []string
}

func (k *keeper) put(path, token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens[path] = token
}

func (k *keeper) goAway(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
}

func (k *keeper) taken() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.asked
	k.asked = nil
	return taken
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path := strings.TrimPrefix(req.URL.Path, "/v1/secret/data/compute/")
	k.asked = append(k.asked, path)
	token, kept := k.tokens[path]
	switch {
	case k.away:
		http.Error(w, `{"errors":[]}`, http.StatusServiceUnavailable)
	case !kept:
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{
			"data": map[string]string{"token": token}, "metadata": map[string]any{"version": 1, "created_time": "2026-01-01T00:00:00Z"},
		}})
	}
}

// withVault puts a vault and a variable of t2's, beside those of setup, before the service.
func (b *bundle) withVault(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{tokens: map[string]string{}}
	far := httptest.NewServer(k)
	t.Cleanup(far.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := vault.New(vault.Options{
		Address: far.URL, Engine: vault.KV2, Mount: "secret", Path: "compute", Login: vault.Login{TokenFile: token},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	decider, err := authz.New(b.db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	secrets := secret.New(secret.Deps{
		DB: b.db, Authz: decider, Vault: client, EnvOf: map[string]map[string]string{"t2": {"THEIRS": "A"}},
		LookupEnv: func(string) (string, bool) { return canary, true },
	})
	b.clients.secrets, b.clients.stamps.secrets = secrets, secrets
	b.clients.breaker.stamps = b.clients.stamps
	return k
}

// What another tenant may refer to is as good as absent, in a config that is only tried as in one that is stored: by its name, and behind the
// decisions in its own tenant. Nothing is asked of the vault for it.
func TestCheckConfigWithReferencesOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.withVault(t)
	k.put("t2/cloud", canary)
	b.cloud.check = func(ctx context.Context, a provider.Account) error {
		var config struct{ APIToken string }
		if err := json.Unmarshal(a.Config, &config); err != nil {
			return err
		}
		_, err := a.Secret(ctx, config.APIToken)
		return err
	}
	try := func(ctx context.Context, tenantID, reference string) (*model.ProviderAccountCheck, error) {
		return b.CheckConfig(ctx, model.CheckProviderConfigInput{TenantID: tenantID, Provider: "sim", Config: model.JSON(`{"apiToken":"` + reference + `"}`)})
	}
	kept := map[string]string{"env://THEIRS": "env://NOBODYS", "vault://cloud#token": "vault://none#token"}
	for reference, absent := range kept {
		if got, err := try(admin(t), "t2", reference); err != nil || !got.OK {
			t.Errorf("%s of the tenant that has it: %+v, %v", reference, got, err)
		}
		got, err := try(as(t.Context(), "user:manager"), "t1", reference)
		if err != nil {
			t.Fatal(err)
		}
		want, err := try(as(t.Context(), "user:manager"), "t1", absent)
		if err != nil || got.OK || *got.Reason != *want.Reason || strings.ReplaceAll(got.Message, reference, absent) != want.Message {
			t.Errorf("%s of another: %+v; want as of what is absent: %+v, %v", reference, got, want, err)
		}
	}
	for _, form := range []string{"vault://../t2/cloud#token", "vault:///t2/cloud#token", "vault://t2%2fcloud#token", "vault://cloud/../../t2/cloud#token"} {
		_, err := try(as(t.Context(), "user:manager"), "t1", form)
		wantCode(t, err, problem.InvalidInput)
	}

	// The decisions let the admin into t2; the rows do not.
	k.taken()
	_, _, calls := b.cloud.counts()
	b.db.ScopeBy(func(context.Context) (postgres.Scope, error) { return postgres.Tenants("t1"), nil })
	for reference, absent := range kept {
		_, got := try(admin(t), "t2", reference)
		_, want := try(admin(t), "t2", absent)
		if wantCode(t, got, problem.Unavailable).Error() != wantCode(t, want, problem.Unavailable).Error() {
			t.Errorf("%s behind the decisions: %v; want as of what is absent: %v", reference, got, want)
		}
		_, got = b.clients.secrets.Resolve(admin(t), "t2", reference)
		if provider.ClassOf(got) != provider.SecretUnresolved {
			t.Errorf("%s behind the decisions: %v", reference, got)
		}
	}
	if asked := k.taken(); len(asked) > 0 {
		t.Errorf("the vault was asked for %v", asked)
	}
	if _, _, now := b.cloud.counts(); now != calls+2*len(kept) {
		t.Errorf("the provider was called %d times", now-calls)
	}
}
