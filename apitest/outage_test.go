package apitest

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/postgres/embedded"
	"better/compute/internal/problem"
)

// TestDatabaseOutage takes the database away from a running server: it says UNAVAILABLE over both transports and is not ready, and it
// recovers by itself. A server that is started before its database serves as soon as that comes.
func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := os.Chmod(filepath.Dir(state), 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() *embedded.Server {
		pg, err := embedded.Start(t.Context(), embedded.Options{StateDir: state})
		if err != nil {
			t.Fatal(err)
		}
		return pg
	}
	stop := func(pg *embedded.Server) {
		if err := pg.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pg := start()
	d := newDeployment(t)
	d.database = pg.URL()
	d.settings["database"] = map[string]any{"url": pg.URL(), "maxConns": 8}
	token := d.caller("user:a", "tenant-admin compute-tenant/away")
	stop(pg)

	s := d.start(t)
	t.Cleanup(func() { s.stop(t) })
	s.AwaitLine(t, func(line []byte) bool { return bytes.Contains(line, []byte("waiting for the database")) })
	pg = start()
	s.waitReady(t)
	list := func() [2]outcome {
		return [...]outcome{s.rest(t, "list", token, []byte(`{"tenantId":"away"}`)), s.graphql(t, "list", token, map[string]any{"tenantId": "away"})}
	}
	status := func(path string) int { return s.send(t, http.MethodGet, path, "", "", nil).status }
	for range 2 {
		for _, out := range list() {
			if out.Code != "" {
				t.Errorf("with a database: %+v", out)
			}
		}
		stop(pg)
		for _, out := range list() {
			if out.Code != problem.Unavailable {
				t.Errorf("without one: %+v, want UNAVAILABLE", out)
			}
		}
		harness.Await(t, "the server not to be ready", func() bool { return status("/readyz") == http.StatusServiceUnavailable })
		if health := status("/healthz"); health != http.StatusOK {
			t.Errorf("without a database /healthz says %d", health)
		}
		pg = start()
		harness.Await(t, "the server to be ready", func() bool { return status("/readyz") == http.StatusOK })
	}
	joinOne(t, s, token, "away")
	stop(pg)
}

// joinOne has a machine of the simulated cloud bootstrapped until it has joined.
func joinOne(t *testing.T, s *process, token, tenant string) {
	t.Helper()
	ask := func(method string, input map[string]any) any {
		input["tenantId"] = tenant
		out := s.graphql(t, method, token, input)
		if out.Code != "" {
			t.Fatalf("%s: %+v", method, out)
		}
		return member(out.Data, "id")
	}
	ask("putSecret", map[string]any{"name": "sim", "value": newSecret()})
	account := ask("create", map[string]any{"provider": "sim", "name": "a", "config": map[string]any{"apiToken": "secret://sim"}})
	pool := ask("createPool", map[string]any{"name": "hosts", "class": "VPS_HOST", "agent": "BCD"})
	run := map[string]any{"accountId": account, "poolId": pool, "offerId": "vps-small:fra1", "idempotencyKey": "k"}
	ask("bootstrap", run)
	harness.Await(t, "the machine to join", func() bool {
		return member(s.graphql(t, "bootstrap", token, run).Data, "status") == "joined"
	})
}
