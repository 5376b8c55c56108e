package bootstrap

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/pool"
	"better/compute/provider"
	"better/compute/provideraccount"
	"better/compute/secret"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

const (
	tenant = "acme"
	owner  = "user:owner"
)

// bench is a tenant with an account at a scripted cloud, a pool and somebody who may do everything.
type bench struct {
	t       *testing.T
	ctx     context.Context // with the owner as the caller
	db      *postgres.DB
	cloud   *cloud
	deps    Deps
	service *Service
	rec     *Reconciler
	account string
	pool    string
	facts   string // JSON of what agents that join say of their machine
}

func setup(t *testing.T, mode model.ClaimMode) *bench {
	t.Helper()
	c := newCloud(mode)
	b := setupWith(t, c, "{}")
	b.cloud = c
	return b
}

// setupWith makes a bench without a script, whose account is at the driver's provider.
func setupWith(t *testing.T, driver provider.Driver, config string) *bench {
	t.Helper()
	b := &bench{t: t, ctx: as(t.Context(), owner), db: pgtest.New(t), account: id.New("pacct"), pool: id.New("pool"), facts: "{}"}
	log := slog.New(slog.DiscardHandler)
	decider, err := authz.New(b.db, log)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := provider.NewRegistry(driver)
	if err != nil {
		t.Fatal(err)
	}
	accounts := provideraccount.New(provideraccount.Deps{
		DB: b.db, Authz: decider, Registry: registry, Log: log, Secrets: secret.New(secret.Deps{
			DB: b.db, Authz: decider, EnvAllow: []string{"CLOUD_TOKEN"}, LookupEnv: func(name string) (string, bool) { return "project-of-" + name, true },
		}),
	})
	t.Cleanup(accounts.Close)
	b.deps = Deps{
		DB: b.db, Authz: decider, Accounts: accounts, Pools: pool.New(pool.Deps{DB: b.db, Authz: decider}),
		Cursors: cursor.NewSealer(b.db),
		Options: &Options{
			AgentBinary: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("agent")), nil },
			JoinURL:     "https://127.0.0.1:8443", CAPin: func() string { return "sha256:pin" },
		},
		Timing: Timing{
			Poll: time.Millisecond, PollMax: 5 * time.Millisecond, Retry: time.Millisecond, RetryMax: 5 * time.Millisecond,
			Cleanup: time.Millisecond, CleanupMax: 5 * time.Millisecond, ListMargin: 50 * time.Millisecond,
		},
		Log: log,
	}
	if b.service, err = New(b.deps); err != nil {
		t.Fatal(err)
	}
	b.rec = NewReconciler(b.deps)
	b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) VALUES (?, ?, ?, 'main', ?, 'test')",
		b.account, tenant, driver.Manifest().Name, config)
	b.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", b.pool, tenant)
	b.grant(owner, "tenant-admin", "compute-tenant/"+tenant)
	return b
}

func as(ctx context.Context, subject string) context.Context {
	return authz.WithActor(ctx, authz.Actor{Subject: subject})
}

func (b *bench) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.db.NewRaw(query, args...).Exec(b.t.Context()); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
}

func (b *bench) grant(subject, role, object string) {
	b.t.Helper()
	b.exec("INSERT INTO role_bindings (subject, role, object, effect) VALUES (?, ?, ?, 'allow')", subject, role, object)
}

func (b *bench) offer(key string) model.BootstrapMachineInput {
	offer := "small"
	return model.BootstrapMachineInput{TenantID: tenant, AccountID: b.account, PoolID: b.pool, OfferID: &offer, IdempotencyKey: key}
}

func (b *bench) machine(machineID, key string) model.BootstrapMachineInput {
	return model.BootstrapMachineInput{TenantID: tenant, AccountID: b.account, PoolID: b.pool, MachineID: &machineID, IdempotencyKey: key}
}

func (b *bench) start(in model.BootstrapMachineInput) string {
	b.t.Helper()
	p, err := b.service.Start(b.ctx, in)
	if err != nil {
		b.t.Fatalf("Start: %v", err)
	}
	return p.Bootstrap.ID
}

func (b *bench) row(runID string) *run {
	b.t.Helper()
	r, err := load(b.t.Context(), b.db.DB, tenant, runID)
	if err != nil || r == nil {
		b.t.Fatalf("load(%s) = %v, %v", runID, r, err)
	}
	return r
}

// step takes the run one step further.
func (b *bench) step(runID string) Next {
	b.t.Helper()
	next, err := b.rec.Step(b.t.Context(), runID)
	if err != nil {
		b.t.Fatalf("Step: %v", err)
	}
	return next
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

// driveTo steps the run, without waiting for what it waits for, until the condition holds.
func (b *bench) driveTo(runID, what string, done func(*run) bool) *run {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if r := b.row(runID); done(r) {
			return r
		}
		b.step(runID)
	}
	r := b.row(runID)
	b.t.Fatalf("the run did not get to %s: status %s step %q wait %v cleanup %s failure %v", what, r.Status, r.Step, deref(r.WaitReason), r.Cleanup, r.Failure)
	return nil
}

func (b *bench) driveToStatus(runID string, s model.BootstrapStatus) *run {
	b.t.Helper()
	return b.driveTo(runID, string(s), func(r *run) bool { return r.Status == s })
}

// driveToEnd steps a failed run until nothing is left to clean up, or a person is needed.
func (b *bench) driveToEnd(runID string) *run {
	b.t.Helper()
	return b.driveTo(runID, "the end of its cleanup", func(r *run) bool {
		return r.Status == model.Failed && (r.LiveAccountID == nil || r.Cleanup == model.CleanupBlocked)
	})
}

// join does what the join of an agent does to a run.
func (b *bench) join(runID string) error {
	r := b.row(runID)
	return b.db.RunInTx(b.t.Context(), func(ctx context.Context, tx bun.Tx) error {
		hostID := id.New("host")
		_, err := tx.NewRaw("INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id, facts) VALUES (?, ?, ?, ?, ?, ?, ?::jsonb)",
			hostID, r.TenantID, r.PoolID, r.ID, r.AccountID, "m", b.facts).Exec(ctx)
		if err != nil {
			return err
		}
		return MarkJoined(ctx, tx, runID, hostID)
	})
}

func (b *bench) mustJoin(runID string) {
	b.t.Helper()
	if err := b.join(runID); err != nil {
		b.t.Fatalf("joining: %v", err)
	}
}

// events are the types and target states of the run's events, in order.
func (b *bench) events(runID string) []string {
	b.t.Helper()
	var events []string
	err := b.db.NewRaw(`SELECT replace(type, 'provider.bootstrap.', '') || ' ' || (data->'data'->>'to') FROM events
		WHERE bootstrap_id = ? ORDER BY xid, id`, runID).Scan(b.t.Context(), &events)
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

// history is the states of the run, in order, checked to be a chain.
func (b *bench) history(runID string) []model.BootstrapStatus {
	b.t.Helper()
	all, err := b.service.Histories(b.t.Context(), []*model.Bootstrap{{ID: runID}})
	if err != nil {
		b.t.Fatal(err)
	}
	var states []model.BootstrapStatus
	for i, h := range all[0] {
		if i == 0 != (h.From == nil) || i > 0 && *h.From != states[i-1] {
			b.t.Errorf("history of %s is no chain at %d: %v", runID, i, h)
		}
		states = append(states, h.To)
	}
	return states
}

func (b *bench) reservations(runID string) int {
	b.t.Helper()
	var n int
	if err := b.db.NewRaw("SELECT count(*) FROM machine_reservations WHERE bootstrap_id = ?", runID).Scan(b.t.Context(), &n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func wantCode(t *testing.T, err error, code problem.Code) *problem.Error {
	t.Helper()
	if !problem.Is(err, code) {
		t.Fatalf("error = %v, want %s", err, code)
	}
	return problem.From(err)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
