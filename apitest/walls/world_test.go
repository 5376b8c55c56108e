package walls

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/event"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/model"
)

const tenants = 50

// tenant is one tenant and what it has, all of it marked.
type tenant struct {
	id      string
	things  map[string][]string // ids by their prefix
	callers []string            // subjects
}

// world is a server's database with the rows of all tenants, and whose each mark and each id in it is.
type world struct {
	db      *postgres.DB // the server's
	owner   *postgres.DB
	tenants []*tenant
	owners  map[string]*tenant // by mark and by id
	callers map[string]*tenant // by subject; nil for a subject that belongs nowhere
}

// markLength is that of "cnry" and what follows it. Marks are good for names of every kind.
const markLength = 4 + 16

// mark makes a text that is the tenant's alone.
func (w *world) mark(of *tenant) string {
	m := "cnry" + strings.ToLower(rand.Text()[:markLength-4])
	w.owners[m] = of
	return m
}

// thing makes the id of something that the tenant has.
func (w *world) thing(of *tenant, prefix string) string {
	made := id.New(prefix)
	of.things[prefix] = append(of.things[prefix], made)
	w.owners[made] = of
	return made
}

// machine makes the name of a machine that the tenant has without an owner.
func (w *world) machine(of *tenant) string {
	made := w.mark(of)
	of.things["machine"] = append(of.things["machine"], made)
	return made
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	w := &world{db: db, owner: pgtest.Owner(t, db), owners: map[string]*tenant{}, callers: map[string]*tenant{"user:nobody": nil}}
	w.defineRoles(t)
	for i := range tenants {
		of := &tenant{id: fmt.Sprintf("tenant-%d", i), things: map[string][]string{}}
		w.tenants = append(w.tenants, of)
		err := w.owner.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error { return w.fill(ctx, tx, of) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// fill gives the tenant a row of each kind, and marks all that a column can hold.
func (w *world) fill(ctx context.Context, tx bun.Tx, of *tenant) error {
	var err error
	insert := func(table string, columns map[string]any) {
		if err == nil {
			_, err = tx.NewInsert().Model(&columns).TableExpr(table).Exec(ctx)
		}
	}
	mark := func() string { return w.mark(of) }
	for range 2 {
		account, pool := w.thing(of, "pacct"), w.thing(of, "pool")
		insert("provider_accounts", map[string]any{
			"id": account, "tenant_id": of.id, "provider": "sim", "name": mark(), "created_by": "user:" + mark(),
			"config": object{"apiToken": "secret://" + mark(), "region": mark()},
		})
		insert("pools", map[string]any{"id": pool, "tenant_id": of.id, "name": mark(), "class": "vps-host", "agent": "bcd", "account_id": account})
		insert("instances", map[string]any{"id": w.thing(of, "inst"), "tenant_id": of.id, "pool_id": pool, "name": mark()})
		w.fillRuns(of, account, pool, insert)
		insert("inventory_claims", map[string]any{"account_id": account, "machine_id": mark(), "operation_id": mark()})
		insert("orphans", map[string]any{
			"id": w.thing(of, "orph"), "tenant_id": of.id, "account_id": account, "kind": "not-ours", "machine_id": w.machine(of), "operation_id": mark(),
		})
		for _, item := range []string{"compute-tenant/" + of.id, "compute-provider-account/" + account, "compute-pool/" + pool} {
			insert("role_bindings", map[string]any{"subject": "user:" + mark(), "role": "provider-viewer", "object": item, "effect": "allow", "created_by": mark()})
		}
		insert("api_tokens", map[string]any{
			"id": w.thing(of, "tok"), "tenant_id": of.id, "name": mark(), "subject": "service:" + of.id + "/" + mark(), "description": mark(),
			"token_hash": []byte(rand.Text() + rand.Text())[:32], "created_by": mark(),
		})
		insert("audit_log", map[string]any{
			"tenant_id": of.id, "actor": "user:" + mark(), "action": "createPool", "object": "compute-pool/" + pool, "outcome": "allowed",
			"request_id": mark(), "details": object{"name": mark()},
		})
		insert("secrets", map[string]any{"tenant_id": of.id, "name": mark(), "key_id": "k", "sealed": []byte(mark())})
	}
	w.addCallers(of, insert)
	return err
}

// fillRuns makes a run that failed and one that joined, with its host.
func (w *world) fillRuns(of *tenant, account, pool string, insert func(string, map[string]any)) {
	mark := func() string { return w.mark(of) }
	for _, status := range []string{"failed", "joined", "claiming"} {
		run := w.thing(of, "boot")
		columns := map[string]any{
			"id": run, "tenant_id": of.id, "account_id": account, "pool_id": pool, "created_by": mark(), "machine_id": mark(), "offer_id": mark(),
			"status": status, "step": mark(), "operation_id": mark(), "order_ref": mark(), "last_error": mark(), "order_intent_at": "2026-01-01",
			"order_intent": object{"offerId": mark()}, "machine": object{"hostname": mark()}, "wait_reason": mark(), "token_hash": []byte(mark()),
			"failure": object{"reason": "DEADLINE", "message": mark(), "logTail": []string{mark()}}, "cleanup": "kept",
		}
		if status == "joined" {
			columns["host_id"], columns["joined_at"] = w.thing(of, "host"), "2026-01-01"
		}
		insert("bootstraps", columns)
		insert("bootstrap_transitions", map[string]any{"bootstrap_id": run, "to_status": status, "reason": mark()})
		insert("events", eventOf(of, run, account, mark()))
		if status != "joined" {
			continue
		}
		insert("hosts", map[string]any{
			"id": columns["host_id"], "tenant_id": of.id, "pool_id": pool, "bootstrap_id": run, "account_id": account, "machine_id": mark(),
			"facts": object{"hostname": mark()}, "agent_version": mark(),
		})
		insert("host_certificates", map[string]any{
			"serial": mark(), "host_id": columns["host_id"], "tenant_id": of.id, "key_hash": []byte(mark()), "certificate": []byte(mark()), "not_after": "2036-01-01",
		})
		insert("machine_reservations", map[string]any{"machine_key": mark(), "bootstrap_id": run, "host_id": columns["host_id"]})
	}
}

type object map[string]any

func eventOf(of *tenant, run, account, mark string) map[string]any {
	return map[string]any{"tenant_id": of.id, "type": mark, "bootstrap_id": run, "account_id": account, "data": changed(mark)}
}

func changed(mark string) model.JSON {
	text, _ := json.Marshal(object{"id": mark, "data": object{"from": "claiming", "to": "identifying"}}) // never fails
	return text
}

// addCallers gives the tenant one caller of each reach, by a binding of its own or of a group, and of two roles that were defined for the
// purpose; and some that are denied a part of what they were given.
func (w *world) addCallers(of *tenant, insert func(string, map[string]any)) {
	here, account, pool := "compute-tenant/"+of.id, "compute-provider-account/"+of.things["pacct"][0], "compute-pool/"+of.things["pool"][0]
	group := "group:" + of.id
	bind := func(subject, role, object, effect string) {
		insert("role_bindings", map[string]any{"subject": subject, "role": role, "object": object, "effect": effect})
	}
	bind(group, "tenant-admin", here, "allow")
	bind(group+"-items", "provider-manager", account, "allow")
	bind(group+"-items", readsPools, here, "deny")
	for name, bindings := range map[string][][3]string{
		"admin":      {{"tenant-admin", here, "allow"}},
		"manager":    {{"provider-manager", here, "allow"}},
		"viewer":     {{"provider-viewer", here, "allow"}},
		"item":       {{"provider-manager", account, "allow"}},
		"barred":     {{"tenant-admin", here, "allow"}, {"provider-viewer", account, "deny"}, {readsPools, pool, "deny"}},
		"expelled":   {{"provider-manager", account, "allow"}, {"tenant-admin", here, "deny"}},
		"pools":      {{readsPools, here, "allow"}},
		"one-pool":   {{readsPools, pool, "allow"}},
		"auditor":    {{readsAudit, here, "allow"}},
		"member":     nil,
		"of-items":   nil,
		"of-both":    nil,
		"held-back":  {{"provider-viewer", here, "deny"}},
		"not-a-user": {{"no-such-role", here, "allow"}},
	} {
		subject := "user:" + of.id + "-" + name
		of.callers = append(of.callers, subject)
		w.callers[subject] = of
		for _, b := range bindings {
			bind(subject, b[0], b[1], b[2])
		}
	}
	slices.Sort(of.callers) // so that a seed repeats a run
}

// The roles that are defined beside the built-in ones.
const (
	readsPools = "reads-pools"
	readsAudit = "reads-audit"
)

func (w *world) defineRoles(t *testing.T) {
	t.Helper()
	for name, permission := range map[string]model.Permission{readsPools: model.PoolsRead, readsAudit: model.AuditRead} {
		_, err := w.owner.NewRaw("INSERT INTO roles (name, permissions, created_by, updated_by) VALUES (?, ARRAY[?], 'test', 'test')", name, string(permission)).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
}

// groupsOf are those that the identity provider says a caller is in.
func groupsOf(subject string) []string {
	name := strings.TrimPrefix(subject, "user:")
	if of, ok := strings.CutSuffix(name, "-member"); ok {
		return []string{"group:" + of}
	}
	if of, ok := strings.CutSuffix(name, "-of-items"); ok {
		return []string{"group:" + of + "-items"}
	}
	if of, ok := strings.CutSuffix(name, "-of-both"); ok {
		return []string{"group:" + of + "-items", "group:" + of}
	}
	if of, ok := strings.CutSuffix(name, "-held-back"); ok {
		return []string{"group:" + of}
	}
	return nil
}

// keepTelling writes events of random runs until the test ends, for who follows them.
func (w *world) keepTelling(ctx context.Context, rnd *mathrand.Rand) error {
	ctx = postgres.WithScope(ctx, postgres.AllTenants())
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		<-pace.C
		of := w.tenants[rnd.IntN(len(w.tenants))]
		runs := of.things["boot"]
		err := w.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			return event.Append(ctx, tx, event.Record{
				TenantID: of.id, Type: "changed", BootstrapID: runs[rnd.IntN(len(runs))], AccountID: of.things["pacct"][0], Data: changed("again"),
			})
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// foreignWrites counts what callers of one tenant changed in another, as the audit log has it.
func (w *world) foreignWrites(t *testing.T) (n int) {
	t.Helper()
	var rows []struct{ TenantID, Actor string }
	err := w.owner.NewRaw("SELECT tenant_id, actor FROM audit_log WHERE outcome = 'allowed' AND tenant_id <> ''").Scan(t.Context(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		of, known := w.callers[r.Actor]
		if known && (of == nil || of.id != r.TenantID) {
			n++
		}
	}
	return n
}

// tearDown takes row security off every table.
func (w *world) tearDown(t *testing.T) {
	t.Helper()
	var tables []string
	if err := w.owner.NewRaw("SELECT relname FROM pg_class WHERE relrowsecurity").Scan(t.Context(), &tables); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if _, err := w.owner.NewRaw("ALTER TABLE ? DISABLE ROW LEVEL SECURITY", bun.Ident(table)).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) static() (tokens map[string]authz.Subject) {
	tokens = map[string]authz.Subject{}
	for subject := range w.callers {
		tokens["token-of-"+subject] = subject
	}
	return tokens
}
