package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/bootstrap"
	"better/compute/internal/id"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/provider/sim/cloud"
)

const (
	// callLimit is how long a call waits for a server, or the cloud, that says nothing; then another is asked.
	callLimit = 30 * time.Second
	lease     = time.Second
	listLag   = 5 * time.Second // the simulated cloud's
	token     = "torture-token"
)

// timing makes moments of minutes.
func timing() bootstrap.Timing {
	return bootstrap.Timing{
		ClaimVPS: 25 * time.Second, ClaimMetal: 25 * time.Second, Identifying: 20 * time.Second, Preparing: 20 * time.Second,
		Installing: 20 * time.Second, Installed: 20 * time.Second,
		Lease: lease, Unattended: 500 * time.Millisecond, Call: 1500 * time.Millisecond, Deliver: 1500 * time.Millisecond,
		Poll: 50 * time.Millisecond, PollMax: 500 * time.Millisecond, Retry: 100 * time.Millisecond, RetryMax: time.Second,
		Cleanup: 200 * time.Millisecond, CleanupMax: 2 * time.Second, Uncertain: time.Second, ListMargin: 2 * time.Second,
		ClockSkew: 5 * time.Minute,
	}
}

// unhurried gives each state of a run a minute, for a test in which runs have to come to a good end.
func (r *rig) unhurried() {
	r.timing.ClaimVPS, r.timing.ClaimMetal, r.timing.Identifying = time.Minute, time.Minute, time.Minute
	r.timing.Preparing, r.timing.Installing, r.timing.Installed = time.Minute, time.Minute, time.Minute
}

// account is one project of the cloud.
type account struct {
	tenant, id, pool string
	provider         string
	secret           string // the API token
	machine          string // that the project has from its beginning
}

// rig is a deployment that is tortured.
type rig struct {
	t        testing.TB
	dir      string
	db       *postgres.DB // as the owner of the tables
	cloudURL string
	// killCloud leaves the servers without a provider.
	killCloud func()
	replicas  []*replica
	front     string // where machines reach the replicas
	arrived   atomic.Int64
	http      *http.Client
	accounts  []account
	providers []string // of the accounts that each tenant has
	// ordersPerHour is how many orders a tenant may send; zero: as many as it likes.
	ordersPerHour int
	timing        bootstrap.Timing
	offer         string
	armed         int
	said          atomic.Int64 // orders that a person said what became of
	books         struct {     // the ledger, as far as it was read
		sync.Mutex
		read    int64
		entries []cloud.Entry
	}
	turn   atomic.Int64
	runs   sync.Map // run id: account
	server string   // the program
	dsn    string   // of the database
	clocks []string // by how many seconds the replicas are off
}

// newRig starts everything. Each of the tenants has a pool and, unless that is changed, two accounts.
func newRig(t testing.TB, tenants, replicas int, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), timing: timing(), providers: []string{"sim", "sim"},
		http: &http.Client{Timeout: callLimit, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	r.server = programs.Program(t, "compute-api")
	for _, fn := range change {
		fn(r)
	}
	if r.dsn == "" {
		r.dsn = pgtest.URL(t)
	}
	db, err := postgres.Open(t.Context(), postgres.Options{URL: r.dsn, AsOwner: true, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	r.db = db
	r.migrate()
	t.Cleanup(func() {
		if t.Failed() {
			r.tellUnfinished()
		}
	})
	t.Cleanup(r.http.CloseIdleConnections)
	r.write("faults/timing", mustJSON(t, r.timing))
	r.startCloud()
	r.makeAccounts(tenants)
	r.front = harness.FreeAddress(t, "127.0.0.1")
	if _, err := pki.Init(filepath.Join(r.dir, "pki"), "torture.test"); err != nil {
		t.Fatal(err)
	}
	for i := range replicas {
		r.replicas = append(r.replicas, r.newReplica(i))
	}
	harness.NewRelay(t, r.front, r.toAReplica)
	for _, p := range r.replicas {
		p.start()
	}
	for _, p := range r.replicas {
		p.Ready(r.t)
	}
	r.readCatalogue()
	return r
}

// migrate brings the database to the schema of the rig's server.
func (r *rig) migrate() {
	r.t.Helper()
	config := harness.Config(r.t, map[string]any{"database": map[string]any{"url": r.dsn}})
	out, err := exec.CommandContext(r.t.Context(), r.server, "migrate", "up", "--config", config).CombinedOutput()
	if err != nil {
		r.t.Fatalf("migrate up: %v\n%s", err, out)
	}
}

// tellUnfinished says where runs have got to, and what their agents have to say.
func (r *rig) tellUnfinished() {
	var told []string
	err := r.db.NewRaw(`SELECT concat_ws(' ', b.id, b.machine_id, b.status, b.cleanup, b.step, b.wait_reason, b.last_error, 'due', b.next_at - now(), 'lease',
		b.lease_until - now(), 'job', j.state, j.scheduled_at - now()) FROM bootstraps b LEFT JOIN river_job j ON j.id = b.job_id
		WHERE b.live_account_id IS NOT NULL LIMIT 20`).Scan(context.Background(), &told)
	r.t.Logf("unfinished: %s %v", strings.Join(told, "\n"), err)
	consoles, _ := filepath.Glob(filepath.Join(r.dir, "cloud", "machines", "*", "console.log"))
	for _, path := range consoles[max(0, len(consoles)-3):] {
		text, _ := os.ReadFile(path)
		r.t.Logf("%s:\n%s", path, text[max(0, len(text)-1000):])
	}
}

func (r *rig) write(name string, content []byte) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil { // whole or not at all: a server may be reading
		err = errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *rig) exec(query string, args ...any) {
	r.t.Helper()
	if _, err := r.db.NewRaw(query, args...).Exec(r.t.Context()); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
}

// count reads one number.
func (r *rig) count(query string, args ...any) int {
	r.t.Helper()
	var n int
	if err := r.db.NewRaw(query, args...).Scan(r.t.Context(), &n); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (r *rig) makeAccounts(tenants int) {
	for t := range tenants {
		tenant, pool := fmt.Sprint("tenant-", t), id.New("pool")
		r.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", pool, tenant)
		for i, provider := range r.providers {
			a := account{tenant: tenant, id: id.New("pacct"), pool: pool, provider: provider, secret: fmt.Sprintf("project-%d-%d", t, i)}
			r.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) VALUES (?, ?, ?, ?, ?, 'test')",
				a.id, tenant, provider, fmt.Sprint("account-", i), fmt.Sprintf(`{"apiToken":"env://PROJECT_%d"}`, len(r.accounts)))
			r.accounts = append(r.accounts, a)
		}
	}
}

func (r *rig) variables() (names, settings []string) {
	for i := range r.accounts {
		name := fmt.Sprint("PROJECT_", i)
		names, settings = append(names, name), append(settings, name+"="+r.accounts[i].secret)
	}
	return names, settings
}

// startCloud runs the simulated cloud as a process of its own.
func (r *rig) startCloud() {
	address := harness.FreeAddress(r.t, "127.0.0.1")
	r.cloudURL = "http://" + address
	cmd := exec.CommandContext(context.Background(), programs.Program(r.t, "compute-api"), "sim", "--listen", address, // ends with Kill
		"--dir", filepath.Join(r.dir, "cloud"), "--agent", programs.Program(r.t, "joiner"), "--delay", "30ms")
	p := harness.Start(r.t, cmd, new(harness.Log))
	r.killCloud = p.Kill
	r.t.Cleanup(p.Kill)
	harness.Await(r.t, "the cloud listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// cloudCall speaks to the cloud as the project of the token, or as whoever runs it.
func (r *rig) cloudCall(method, path, secret string, body any) []byte {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.cloudURL+path, bytes.NewReader(mustJSON(r.t, body)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(cloud.AdminHeader, "test")
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := (&http.Client{Transport: r.http.Transport, Timeout: harness.Patience}).Do(req)
	if err != nil {
		r.t.Fatalf("asking the cloud: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode > 299 {
		r.t.Fatalf("asking the cloud: %s %v: %s", res.Status, err, text)
	}
	return text
}

// readCatalogue finds an offer that is in stock, and the machine that each project has.
func (r *rig) readCatalogue() {
	r.t.Helper()
	for _, o := range cloud.Catalogue() {
		if o.Category == "vps" && r.offer == "" && o.Stock == "in_stock" && !strings.Contains(o.ID, "/") {
			r.offer = o.ID
		}
	}
	if r.offer == "" {
		r.t.Fatal("the cloud sells no machine")
	}
	for i := range r.accounts {
		var page struct{ Machines []struct{ ID string } }
		if err := json.Unmarshal(r.cloudCall(http.MethodGet, "/v1/machines?name=existing-vps", r.accounts[i].secret, nil), &page); err != nil {
			r.t.Fatal(err)
		}
		r.accounts[i].machine = page.Machines[0].ID
	}
}

// ledger is what the cloud knows, which is the judge. It is only ever added to, so that what was read of it stays.
func (r *rig) ledger() []cloud.Entry {
	r.t.Helper()
	r.books.Lock()
	defer r.books.Unlock()
	more, read, err := cloud.ReadLedgerFrom(filepath.Join(r.dir, "cloud"), r.books.read)
	if err != nil {
		r.t.Fatal(err)
	}
	r.books.read, r.books.entries = read, append(r.books.entries, more...)
	return slices.Clip(r.books.entries)
}

// refusal is an error that the API gave. Message is all of the answer.
type refusal struct{ Code, Message string }

func (e *refusal) Error() string { return e.Code + ": " + e.Message }

// ask makes a mutation through one of the replicas, and through the next while none answers. It may thus be made more than once.
func ask[T any](ctx context.Context, r *rig, mutation, input, fields string, values map[string]any) (payload T, err error) {
	body := mustJSON(r.t, map[string]any{
		"query":     fmt.Sprintf("mutation($input: %s!) { payload: %s(input: $input) %s }", input, mutation, fields),
		"variables": map[string]any{"input": values},
	})
	for deadline := time.Now().Add(harness.Patience); ; {
		replica := r.replicas[int(r.turn.Add(1))%len(r.replicas)]
		payload, err = askOne[T](ctx, r, replica, body)
		e, refused := errors.AsType[*refusal](err)
		if err == nil || refused && e.Code != "UNAVAILABLE" && e.Code != "INTERNAL" || ctx.Err() != nil || time.Now().After(deadline) {
			return payload, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func askOne[T any](ctx context.Context, r *rig, p *replica, body []byte) (payload T, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.listen+"/graphql", bytes.NewReader(body))
	if err != nil {
		return payload, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := r.http.Do(req)
	if err != nil {
		return payload, err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Data   *struct{ Payload T }
		Errors []struct{ Extensions struct{ Code string } }
	}
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return payload, fmt.Errorf("the answer with status %s: %w", res.Status, err)
	}
	if len(answer.Errors) > 0 {
		return payload, &refusal{answer.Errors[0].Extensions.Code, string(text)}
	}
	if answer.Data == nil {
		return payload, fmt.Errorf("an answer without data: %s", res.Status)
	}
	return answer.Data.Payload, nil
}

// start starts a run; the same key gives the same.
func (r *rig) start(ctx context.Context, a account, machineID, key string) (runID string, err error) {
	values := map[string]any{"tenantId": a.tenant, "accountId": a.id, "poolId": a.pool, "idempotencyKey": key}
	if machineID == "" {
		values["offerId"] = r.offer
	} else {
		values["machineId"] = machineID
	}
	payload, err := ask[struct{ Bootstrap struct{ ID string } }](ctx, r, "bootstrapMachine", "BootstrapMachineInput", "{ bootstrap { id } }", values)
	return payload.Bootstrap.ID, err
}

func (r *rig) cancel(ctx context.Context, a account, runID string) error {
	_, err := ask[struct{ Bootstrap struct{ ID string } }](ctx, r, "cancelBootstrap", "CancelBootstrapInput", "{ bootstrap { id } }",
		map[string]any{"tenantId": a.tenant, "bootstrapId": runID})
	if e, refused := errors.AsType[*refusal](err); refused && e.Code == "INVALID_STATE" {
		return nil // it has joined
	}
	return err
}

// arm says what happens when the point is reached for the nth time from now on, in whichever replica that is.
func (r *rig) arm(action, point string, hit int) {
	r.armed++
	r.write("faults/arm", fmt.Appendf(nil, "%d %s %d %s", r.armed, action, hit, point))
}

func (r *rig) disarm() {
	if err := os.Remove(filepath.Join(r.dir, "faults", "arm")); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
}

// replica is one server.
type replica struct {
	*harness.Process // of its present life
	name             string
	listen, agent    string
	config           map[string]any
	env              []string
	log              harness.Log
	starts           int
	r                *rig
}

func (r *rig) newReplica(i int) *replica {
	r.t.Helper()
	name := fmt.Sprint("replica-", i)
	names, env := r.variables()
	limits := map[string]any{"operationsPerSubject": 11, "operationsPerTenant": 11, "operationWait": "1m"}
	for _, points := range []string{"pointsPerSecond", "pointsAtMost", "tenantPointsPerSecond", "tenantPointsAtMost"} {
		limits[points] = 10_000_000
	}
	p := &replica{
		name: name, listen: harness.FreeAddress(r.t, "127.0.0.1"), agent: harness.FreeAddress(r.t, "127.0.0.1"), r: r,
		env: append(env, "COMPUTE_FAULTS="+filepath.Join(r.dir, "faults")),
	}
	providers := []any{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.providers))) {
		providers = append(providers, map[string]any{"name": name, "endpoint": r.cloudURL})
	}
	p.config = map[string]any{
		"listen": p.listen, "stateDir": filepath.Join(r.dir, name), "database": map[string]any{"maxConns": 12},
		"providers": providers,
		"secrets":   map[string]any{"env": map[string]any{"allow": names}},
		"bootstrap": r.bootstrapSettings(),
		"pki":       map[string]any{"dir": filepath.Join(r.dir, "pki")},
		"agent":     map[string]any{"listen": p.agent},
		"limits":    limits,
		"auth":      map[string]any{"allowStaticTokens": true, "tokens": []any{map[string]any{"token": token, "subject": "service:torture"}}},
		"authz": map[string]any{"bindings": []any{
			map[string]any{"subject": "service:torture", "role": "fleet-admin", "object": "compute-fleet"},
		}},
	}
	if i < len(r.clocks) {
		p.env = append(p.env, "CLOCK_OFFSET="+r.clocks[i])
	}
	r.t.Cleanup(func() {
		if p.Process != nil {
			p.Kill()
		}
		if r.t.Failed() || bytes.Contains(p.log.Bytes(), []byte("panic:")) {
			r.t.Logf("the end of the log of %s:\n%s", name, p.log.End(8000))
		}
	})
	return p
}

func (r *rig) bootstrapSettings() map[string]any {
	return map[string]any{
		"ordersPerHour": r.ordersPerHour, "agentURL": "https://" + r.front, "agentBinaries": programs.Dir(r.t), "trustDomain": "torture.test",
		"limits": map[string]any{ // as in timing: calls of the API need them too
			"claimVPS": "25s", "claimMetal": "25s", "identifying": "20s", "preparing": "20s", "installing": "20s", "installed": "20s",
		},
	}
}

// start starts a new life of the server, which the database knows by a name of its own.
func (p *replica) start() {
	p.r.t.Helper()
	p.starts++
	database := p.config["database"].(map[string]any)
	dsn, err := url.Parse(p.r.dsn)
	if err != nil {
		p.r.t.Fatal(err)
	}
	query := dsn.Query()
	query.Set("application_name", fmt.Sprintf("%s.%d", p.name, p.starts))
	dsn.RawQuery = query.Encode()
	database["url"] = dsn.String()
	p.Process = harness.Serve(p.r.t, p.r.server, harness.Config(p.r.t, p.config), &p.log, p.env...)
}

// revive starts again what is dead, and says how many that were.
func (r *rig) revive() (revived int) {
	r.t.Helper()
	for _, p := range r.replicas {
		if p.Dead() {
			p.start()
			p.Ready(r.t)
			revived++
		}
	}
	return revived
}

// toAReplica takes a machine to the agent listener of a replica that takes it, as a load balancer does.
func (r *rig) toAReplica(machine net.Conn) (server net.Conn, marked bool, err error) {
	first := int(r.arrived.Add(1))
	for i := range r.replicas {
		server, err = net.DialTimeout("tcp", r.replicas[(first+i)%len(r.replicas)].agent, 5*time.Second)
		if err != nil {
			continue
		}
		end := time.Now().Add(time.Minute) // a join takes moments
		return server, false, errors.Join(machine.SetDeadline(end), server.SetDeadline(end))
	}
	return nil, false, err
}
