// Package vaulttest has a vault for tests of what reads from one.
//
// It refuses to know who reads. The invariant: it answers reads of the second key-value engine as a whole Vault does, which apitest/vault compares;
// it can do nothing else.
package vaulttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"better/compute/secret/vault"
)

// Namespace is that in which the vault is read.
const Namespace = "operators"

const (
	mount = "secret"
	path  = "compute"
)

// Server keeps fields by the paths below secret/compute, such as acme/clouds/hetzner, and what it was asked. Safe for concurrent use.
type Server struct {
	url, tokenFile string

	mu     sync.Mutex
	fields map[string]map[string]any
	away   bool
	asked  []*http.Request
}

// New starts a vault that has nothing, for the time of the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{fields: map[string]map[string]any{}, tokenFile: filepath.Join(t.TempDir(), "token")}
	far := httptest.NewServer(s)
	t.Cleanup(far.Close)
	s.url = far.URL
	if err := os.WriteFile(s.tokenFile, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Client reads from it.
func (s *Server) Client(t testing.TB) *vault.Client {
	t.Helper()
	client, err := vault.New(vault.Options{
		Address: s.url, Namespace: Namespace, Engine: vault.KV2, Mount: mount, Path: path, Login: vault.Login{TokenFile: s.tokenFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Put keeps the field token at a path, in the place of what was there.
func (s *Server) Put(path, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fields[path] = map[string]any{"token": token}
}

// SetAway makes it answer like one that is sealed, or as before.
func (s *Server) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// Taken gives what it was asked since the last call.
func (s *Server) Taken() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.asked
	s.asked = nil
	return taken
}

// ServeHTTP answers a read.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req.Clone(req.Context()))
	fields, kept := s.fields[strings.TrimPrefix(req.URL.Path, "/v1/"+mount+"/data/"+path+"/")]
	switch {
	case s.away:
		http.Error(w, `{"errors":["Vault is sealed"]}`, http.StatusServiceUnavailable)
	case !kept:
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{
			"data": fields, "metadata": map[string]any{"version": 1, "created_time": "2026-01-01T00:00:00Z"},
		}})
	}
}
