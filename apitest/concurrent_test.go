package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
	"better/compute/provider/sim/cloud"
)

const callers = 64

// replicas is two servers on one database, a tenant and its administrator.
type replicas struct {
	*deployment
	servers [2]*process
	token   string
}

const racedTenant = "raced"

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{deployment: newDeployment(t)}
	r.token = r.caller("user:racer", "tenant-admin compute-tenant/"+racedTenant)
	for i := range r.servers {
		r.servers[i] = r.serve(t)
	}
	r.must(t, "putSecret", map[string]any{"tenantId": racedTenant, "name": "sim", "value": newSecret()})
	return r
}

func (r *replicas) must(t *testing.T, method string, input map[string]any) any {
	t.Helper()
	out := r.servers[0].graphql(t, method, r.token, input)
	if out.Code != "" {
		t.Fatalf("%s: %+v", method, out)
	}
	return out.Data
}

// atOnce makes the calls of all callers at the same moment, half of them to each server and half of those over REST.
func (r *replicas) atOnce(t *testing.T, method string, input func(i int) map[string]any) []outcome {
	t.Helper()
	outcomes := make([]outcome, callers)
	start := make(chan struct{})
	var calls sync.WaitGroup
	for i := range callers {
		in := input(i)
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		calls.Go(func() {
			<-start
			s := r.servers[i%2]
			if i/2%2 == 0 {
				outcomes[i] = s.rest(t, method, r.token, body)
			} else {
				outcomes[i] = s.graphql(t, method, r.token, in)
			}
		})
	}
	close(start)
	calls.Wait()
	return outcomes
}

// tally counts what came: the id of a success, or the code.
func tally(outcomes []outcome) map[string]int {
	counts := map[string]int{}
	for _, out := range outcomes {
		if out.Code != "" {
			counts[string(out.Code)]++
			continue
		}
		id, _ := member(out.Data, "id").(string)
		counts[id]++
	}
	return counts
}

func (r *replicas) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := r.db.Pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	account := func(name, key string) map[string]any {
		in := map[string]any{"tenantId": racedTenant, "provider": "sim", "name": name, "config": map[string]any{"apiToken": "secret://sim"}}
		if key != "" {
			in["idempotencyKey"] = key
		}
		return in
	}
	t.Run("equal ones give everybody the one account", func(t *testing.T) {
		counts := tally(r.atOnce(t, "create", func(int) map[string]any { return account("equal", "k") }))
		if len(counts) != 1 || counts["CONFLICT"] != 0 {
			t.Errorf("got %v, want one id %d times", counts, callers)
		}
	})
	t.Run("one name under different keys goes to one", func(t *testing.T) {
		counts := tally(r.atOnce(t, "create", func(i int) map[string]any { return account("name", fmt.Sprint("key-", i)) }))
		if len(counts) != 2 || counts[string(problem.Conflict)] != callers-1 {
			t.Errorf("got %v, want one id once and CONFLICT %d times", counts, callers-1)
		}
	})
	t.Run("one name without keys goes to one", func(t *testing.T) {
		counts := tally(r.atOnce(t, "create", func(int) map[string]any { return account("keyless", "") }))
		if len(counts) != 2 || counts[string(problem.Conflict)] != callers-1 {
			t.Errorf("got %v, want one id once and CONFLICT %d times", counts, callers-1)
		}
	})
	t.Run("one key for two names goes to one of them", func(t *testing.T) {
		counts := tally(r.atOnce(t, "create", func(i int) map[string]any { return account(fmt.Sprint("two-", i/8%2), "shared") }))
		if len(counts) != 2 || counts[string(problem.Conflict)] != callers/2 {
			t.Errorf("got %v, want one id and CONFLICT, each %d times", counts, callers/2)
		}
	})
	if n := r.count(t, "SELECT count(*) FROM provider_accounts"); n != 4 {
		t.Errorf("there are %d accounts, want 4", n)
	}
	if n := r.count(t, "SELECT count(*) FROM audit_log WHERE action = 'createProviderAccount' AND outcome = 'allowed'"); n != 4 {
		t.Errorf("the audit log has %d creates, want 4", n)
	}
}

func TestConcurrentUpdatesEachCount(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	config := map[string]any{"apiToken": "secret://sim"}
	id := member(r.must(t, "create", map[string]any{"tenantId": racedTenant, "provider": "sim", "name": "a", "config": config}), "id")
	versions := map[string]bool{}
	for _, out := range r.atOnce(t, "update", func(int) map[string]any {
		return map[string]any{"tenantId": racedTenant, "accountId": id, "config": config}
	}) {
		versions[fmt.Sprint(member(out.Data, "version"))] = true
	}
	account := r.must(t, "get", map[string]any{"tenantId": racedTenant, "accountId": id})
	if got := fmt.Sprint(member(account, "version")); got != fmt.Sprint(callers+1) || len(versions) != callers {
		t.Errorf("the version is %s after %d updates that answered %d versions", got, callers, len(versions))
	}
}

func TestConcurrentBootstraps(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	account := member(r.must(t, "create", map[string]any{
		"tenantId": racedTenant, "provider": "sim", "name": "a", "config": map[string]any{"apiToken": "secret://sim"},
	}), "id")
	pool := member(r.must(t, "createPool", map[string]any{"tenantId": racedTenant, "name": "hosts", "class": "VPS_HOST", "agent": "BCD"}), "id")
	run := func(more map[string]any) map[string]any {
		in := map[string]any{"tenantId": racedTenant, "accountId": account, "poolId": pool, "idempotencyKey": "k"}
		maps.Copy(in, more)
		return in
	}
	tokens := watchJoinTokens(t, r.cloudDir)
	machines, _ := r.must(t, "machines", map[string]any{"tenantId": racedTenant, "accountId": account}).([]any)
	counts := tally(r.atOnce(t, "bootstrap", func(int) map[string]any { return run(map[string]any{"offerId": "vps-small:fra1"}) }))
	if len(counts) != 1 {
		t.Errorf("got %v, want one run for everybody", counts)
	}
	named := tally(r.atOnce(t, "bootstrap", func(i int) map[string]any {
		return run(map[string]any{"machineId": member(machines[0], "id"), "idempotencyKey": fmt.Sprint("machine-", i)})
	}))
	if len(named) != 2 || named[string(problem.Conflict)] != callers-1 {
		t.Errorf("one machine under different keys: got %v, want one run and CONFLICT %d times", named, callers-1)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.logRuns(t)
		}
	})
	harness.Await(t, "both runs to join", func() bool { return r.count(t, "SELECT count(*) FROM bootstraps WHERE status = 'joined'") == 2 })
	if n := r.count(t, "SELECT count(*) FROM bootstraps"); n != 2 {
		t.Errorf("there are %d runs, want 2", n)
	}
	if n := r.count(t, "SELECT count(*) FROM events WHERE type = 'provider.bootstrap.joined'"); n != 2 {
		t.Errorf("there are %d joined events, want 2", n)
	}
	if orders := ordersIn(t, r.cloudDir); orders != 1 {
		t.Errorf("the cloud sold %d machines, want 1", orders)
	}
	if tokens() == 0 {
		t.Error("no join token was seen on a machine's disk, so none was searched for")
	}
}

// logRuns tells where the runs stand.
func (r *replicas) logRuns(t *testing.T) {
	t.Helper()
	var runs []string
	err := r.db.NewRaw("SELECT to_jsonb(b) - 'token_hash' - 'token_key_hash' FROM bootstraps b").Scan(context.WithoutCancel(t.Context()), &runs)
	t.Logf("the runs: %s %v\nthe log of the first server:\n%s", strings.Join(runs, "\n"), err, r.servers[0].Log.Text())
}

func ordersIn(t *testing.T, dir string) (n int) {
	t.Helper()
	ledger, err := cloud.ReadLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ledger {
		if e.Kind == cloud.EntryOrder {
			n++
		}
	}
	return n
}

// watchJoinTokens has each join token that appears on a machine of the cloud searched for from then on. It reads them from the
// machines' disks, the one place where they may be; seen says how many there were.
func watchJoinTokens(t *testing.T, cloudDir string) (seen func() int) {
	t.Helper()
	var mu sync.Mutex
	tokens := map[string]bool{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(time.Millisecond); ; {
			_ = filepath.WalkDir(filepath.Join(cloudDir, "machines"), func(path string, d fs.DirEntry, err error) error {
				if err == nil && strings.HasSuffix(path, "/etc/bcd/token") {
					if token, err := os.ReadFile(path); err == nil && len(token) > 0 {
						mu.Lock()
						tokens[strings.TrimSpace(string(token))] = true
						mu.Unlock()
						planted.add("a join token", strings.TrimSpace(string(token)))
					}
				}
				return nil // the machine may have been wiped since
			})
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return func() int { mu.Lock(); defer mu.Unlock(); return len(tokens) }
}
