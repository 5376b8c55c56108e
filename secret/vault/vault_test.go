package vault

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// far is a vault as far as the wire goes; apitest/vault has a whole one.
type far struct {
	*httptest.Server
	logins atomic.Int32
	lease  int
	answer func(w http.ResponseWriter, r *http.Request)
}

func newFar(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *far {
	t.Helper()
	f := &far{answer: answer, lease: 3600}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/login") {
		n := f.logins.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{"client_token": "token-" + string('a'+n-1), "lease_duration": f.lease}})
		return
	}
	f.answer(w, r)
}

func give(w http.ResponseWriter, value any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"data": map[string]any{"token": value}, "metadata": map[string]any{"version": 1}}})
}

func (f *far) client(t *testing.T, o Options) *Client {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"role": "role-id", "secret": "secret-id"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Address, o.Engine, o.Mount, o.Path = f.URL, KV2, "secret", "compute"
	o.Login = Login{AppRole: "approle", RoleIDFile: filepath.Join(dir, "role"), SecretIDFile: filepath.Join(dir, "secret")}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A token that was revoked is replaced by a login, and what the vault denies does not make each read a login.
func TestLogins(t *testing.T) {
	t.Parallel()
	var good atomic.Value
	good.Store("token-a")
	f := newFar(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != good.Load() || strings.HasSuffix(r.URL.Path, "/denied") {
			http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
			return
		}
		give(w, "value")
	})
	c := f.client(t, Options{})
	now := time.Now()
	c.now = func() time.Time { return now }
	read := func(path string, wantErr error, logins int32) {
		t.Helper()
		if _, err := c.Read(t.Context(), "acme", path, "token"); !errors.Is(err, wantErr) || f.logins.Load() != logins {
			t.Errorf("%s: %v after %d logins, want %v after %d", path, err, f.logins.Load(), wantErr, logins)
		}
	}
	read("a", nil, 1)
	read("denied", ErrDenied, 1)
	good.Store("token-b")
	read("a", ErrDenied, 1)
	now = now.Add(loginAgainAfter)
	read("a", nil, 2)
	now = now.Add(41 * time.Minute) // two thirds of an hour have passed
	good.Store("token-c")
	read("a", nil, 3)
}

// What the environment of the server says to Vault's own tools counts for nothing here.
func TestTheEnvironmentCountsForNothing(t *testing.T) {
	t.Setenv("VAULT_TOKEN", "environment")
	t.Setenv("VAULT_NAMESPACE", "environment")
	t.Setenv("VAULT_HEADERS", `{"X-Other": "environment"}`)
	t.Setenv("VAULT_ADDR", "http://127.0.0.1:1")
	var seen atomic.Value
	f := newFar(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Clone())
		give(w, "value")
	})
	for _, namespace := range []string{"", "teams/compute"} {
		c := f.client(t, Options{Namespace: namespace})
		if _, err := c.Read(t.Context(), "acme", "a", "token"); err != nil {
			t.Fatal(err)
		}
		header, _ := seen.Load().(http.Header)
		if strings.Contains(strings.Join(header["X-Vault-Token"], " ")+header.Get("X-Other"), "environment") || header.Get("X-Vault-Namespace") != namespace {
			t.Errorf("it was asked with %v", header)
		}
	}
}

// Whatever the vault does, a read ends, and shows nothing of what it answered.
func TestAVaultThatMisbehaves(t *testing.T) {
	t.Parallel()
	const canary = "canary-19ab"
	elsewhere := newFar(t, func(w http.ResponseWriter, _ *http.Request) { give(w, canary) })
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>" + canary)) },
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"errors":["`+canary+`"]}`, http.StatusInternalServerError)
		},
		"sealed": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"errors":["`+canary+`"]}`, http.StatusServiceUnavailable)
		},
		"a bad request": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"errors":["`+canary+`"]}`, http.StatusBadRequest)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"too much": func(w http.ResponseWriter, _ *http.Request) { give(w, canary+strings.Repeat("x", maxAnswer)) },
		"a number": func(w http.ResponseWriter, _ *http.Request) { give(w, 7) },
		"null":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("null")) },
		"half of it": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"data":{"data":{"token":"` + canary))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := newFar(t, answer).client(t, Options{}).Read(t.Context(), "acme", "a", "token")
			if err == nil || text != "" || strings.Contains(err.Error(), canary) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// Who has given up waits for no login of somebody else's.
func TestWhoHasGivenUp(t *testing.T) {
	t.Parallel()
	f := newFar(t, func(w http.ResponseWriter, _ *http.Request) { give(w, "value") })
	c := f.client(t, Options{})
	c.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Read(ctx, "acme", "a", "token"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
