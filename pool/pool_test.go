package pool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

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
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

type bundle struct {
	*Service
	db *postgres.DB
}

// setup gives a service and these callers: user:admin (tenant-admin of t1 and t2), user:viewer (of t1), user:nobody.
func setup(t testing.TB) *bundle {
	t.Helper()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{New(Deps{DB: db, Authz: decider, Cursors: cursor.NewSealer(db)}), db}
	b.bind(t,
		binding("user:admin", "tenant-admin", "compute-tenant/t1", model.Allow),
		binding("user:admin", "tenant-admin", "compute-tenant/t2", model.Allow),
		binding("user:viewer", "provider-viewer", "compute-tenant/t1", model.Allow),
	)
	return b
}

func binding(subject, role, object string, effect model.BindingEffect) model.RoleBinding {
	return model.RoleBinding{Subject: subject, Role: role, Object: object, Effect: effect}
}

func (b *bundle) bind(t testing.TB, bindings ...model.RoleBinding) {
	t.Helper()
	if _, err := b.db.NewInsert().Model(&bindings).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := b.db.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func as(ctx context.Context, subject string) context.Context {
	return authz.WithActor(ctx, authz.Actor{Subject: subject})
}

func admin(t testing.TB) context.Context {
	t.Helper()
	return as(t.Context(), "user:admin")
}

func hosts(name string) model.CreatePoolInput {
	return model.CreatePoolInput{TenantID: "t1", Name: name, Class: model.ClassVPSHost, Agent: model.AgentBCD}
}

func (b *bundle) create(t testing.TB, in model.CreatePoolInput) *model.Pool {
	t.Helper()
	created, err := b.Create(admin(t), in)
	if err != nil {
		t.Fatal(err)
	}
	return created.Pool
}

func (b *bundle) account(t testing.TB, tenantID string) string {
	t.Helper()
	accountID := id.New("pacct")
	b.exec(t, `INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'sim', ?, 'user:x')`,
		accountID, tenantID, strings.ToLower(accountID[6:]))
	return accountID
}

func (b *bundle) insertBootstrap(t testing.TB, poolID, accountID string) (runID string) {
	t.Helper()
	runID = id.New("boot")
	b.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, operation_id)
		VALUES (?, 't1', ?, ?, 'user:x', 'cpx22:fsn1', 'claiming', ?)`, runID, accountID, poolID, runID)
	return runID
}

func (b *bundle) archive(ctx context.Context, p *model.Pool) (*model.Pool, error) {
	archived, err := b.Archive(ctx, model.ArchivePoolInput{TenantID: p.TenantID, PoolID: p.ID})
	if err != nil {
		return nil, err
	}
	return archived.Pool, nil
}

func wantCode(t testing.TB, err error, code problem.Code) *problem.Error {
	t.Helper()
	if !problem.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
	return problem.From(err)
}

func wantIssues(t testing.TB, err error, paths ...string) {
	t.Helper()
	p := wantCode(t, err, problem.InvalidInput)
	got := []string{}
	for _, i := range p.Details["issues"].([]problem.Issue) {
		got = append(got, i.Path)
	}
	slices.Sort(got)
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		t.Errorf("issues at %q, want %q", got, paths)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := hosts("main")
	in.AccountID = new(b.account(t, "t1"))
	created := b.create(t, in)
	if created.Name != "main" || created.Class != in.Class || created.Agent != in.Agent || *created.AccountID != *in.AccountID ||
		created.ArchivedAt != nil || created.CreatedAt.IsZero() || !id.Valid("pool", created.ID) {
		t.Errorf("got %+v", created)
	}
	got, err := b.Get(as(t.Context(), "user:viewer"), GetInput{"t1", created.ID})
	if diff := cmp.Diff(created, got); diff != "" || err != nil {
		t.Error("get differs from create", err, diff)
	}
	_, err = b.Create(admin(t), hosts("main"))
	wantCode(t, err, problem.Conflict)
	elsewhere := hosts("main")
	elsewhere.TenantID = "t2"
	b.create(t, elsewhere)
}

// The right to read the account is taken away while the create waits for the account.
func TestCreateDecidesAboutTheAccountOnceMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := hosts("main")
	in.AccountID = new(b.account(t, "t1"))
	ended := make(chan error, 1)
	err := b.db.RunInTx(postgres.WithScope(t.Context(), postgres.AllTenants()), func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw("SELECT FROM provider_accounts WHERE id = ? FOR UPDATE", *in.AccountID).Exec(ctx); err != nil {
			return err
		}
		go func() {
			_, err := b.Create(admin(t), in)
			ended <- err
		}()
		for waits := false; !waits; {
			err := tx.NewRaw("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))").Scan(ctx, &waits)
			if err != nil {
				return err
			}
		}
		denial := binding("user:admin", "provider-viewer", "compute-provider-account/"+*in.AccountID, model.Deny)
		_, err := tx.NewInsert().Model(&denial).Exec(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-ended, problem.Forbidden)
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := model.CreatePoolInput{TenantID: "!", Name: "!", Class: "x", Agent: "x", AccountID: new("x")}
	_, err := b.Create(t.Context(), bad)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Create(as(t.Context(), "user:nobody"), bad)
	wantIssues(t, err, "tenantId", "name", "class", "agent", "accountId")
	_, err = b.Create(as(t.Context(), "user:nobody"), model.CreatePoolInput{TenantID: "t1", Name: strings.Repeat("a", 64), Class: "VPS_HOST", Agent: "BCD"})
	wantIssues(t, err, "name", "class", "agent")
	_, err = b.Create(as(t.Context(), "user:viewer"), hosts("main"))
	wantCode(t, err, problem.Forbidden)
	for _, accountID := range []string{id.New("pacct"), b.account(t, "t2")} {
		in := hosts("main")
		in.AccountID = &accountID
		_, err = b.Create(admin(t), in)
		wantCode(t, err, problem.NotFound)
	}
	b.bind(t, binding("user:pools", "tenant-admin", "compute-tenant/t1", model.Allow))
	for _, accountID := range []string{id.New("pacct"), b.account(t, "t1")} { // one that is there, and one that is not, look the same
		b.bind(t, binding("user:pools", "tenant-admin", "compute-provider-account/"+accountID, model.Deny))
		in := hosts("main")
		in.AccountID = &accountID
		_, err = b.Create(as(t.Context(), "user:pools"), in)
		wantCode(t, err, problem.Forbidden)
	}
	for _, class := range []model.PoolClass{"vps-host", "metal-host", "vps", "metal", "container"} {
		in := hosts("p-" + string(class))
		in.Class, in.Agent = class, model.AgentNone
		b.create(t, in)
	}
}

func TestOneNameAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var wg sync.WaitGroup
	errs := make([]error, 32)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.Create(admin(t), hosts("main")) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantCode(t, err, problem.Conflict)
		}
	}
	if won != 1 {
		t.Errorf("%d pools of one name", won)
	}
}

func TestGetRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.create(t, hosts("main"))
	viewer := as(t.Context(), "user:viewer")
	_, err := b.Get(viewer, GetInput{"t1", id.New("pool")})
	wantCode(t, err, problem.NotFound)
	_, err = b.Get(admin(t), GetInput{"t2", p.ID})
	wantCode(t, err, problem.NotFound)
	_, err = b.Get(viewer, GetInput{"t2", p.ID})
	wantCode(t, err, problem.Forbidden)
	_, err = b.Get(viewer, GetInput{"", "pacct_00000000000000000000000000"})
	wantIssues(t, err, "tenantId", "poolId")
	_, err = b.Get(t.Context(), GetInput{})
	wantCode(t, err, problem.Unauthenticated)
}

func TestArchive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accountID := b.account(t, "t1")
	in := hosts("main")
	in.AccountID = &accountID
	p := b.create(t, in)
	_, err := b.archive(as(t.Context(), "user:viewer"), p)
	wantCode(t, err, problem.Forbidden)
	_, err = b.Archive(admin(t), model.ArchivePoolInput{TenantID: "t1", PoolID: id.New("pool")})
	wantCode(t, err, problem.NotFound)
	_, err = b.Archive(admin(t), model.ArchivePoolInput{})
	wantIssues(t, err, "tenantId", "poolId")

	archived, err := b.archive(admin(t), p)
	if err != nil || archived.ArchivedAt == nil || archived.AccountID != nil {
		t.Fatalf("got %+v, %v", archived, err)
	}
	again, err := b.archive(admin(t), p)
	if diff := cmp.Diff(archived, again); diff != "" || err != nil {
		t.Error("archiving again", err, diff)
	}
	b.exec(t, `DELETE FROM provider_accounts WHERE id = ?`, accountID)
	b.create(t, hosts("main")) // the name is free
	_, err = CreateInstance(t.Context(), b.db.DB, "t1", p.ID, "x")
	wantCode(t, err, problem.InvalidState)
	if got, err := b.ForBootstrap(t.Context(), b.db.DB, "t1", p.ID); err != nil || got.ArchivedAt == nil {
		t.Errorf("for a run: %+v, %v", got, err)
	}
	var outcomes []string
	err = b.db.NewRaw(`SELECT outcome FROM audit_log WHERE action = ? ORDER BY id`, archiveAction).Scan(t.Context(), &outcomes)
	if diff := cmp.Diff([]string{"allowed", "replayed"}, outcomes); diff != "" || err != nil {
		t.Error("audit rows", err, diff)
	}
}

func TestArchiveBlockers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accountID := b.account(t, "t1")
	in := hosts("main")
	in.AccountID = &accountID
	p := b.create(t, in)
	runID := b.insertBootstrap(t, p.ID, accountID)
	b.exec(t, `INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES ('host_1', 't1', ?, ?, ?, 'm1')`, p.ID, runID, accountID)
	instance, err := CreateInstance(t.Context(), b.db.DB, "t1", p.ID, "instance-1")
	if err != nil {
		t.Fatal(err)
	}
	wantBlockers := func(want ...blocker) {
		t.Helper()
		_, err := b.archive(admin(t), p)
		if diff := cmp.Diff(want, wantCode(t, err, problem.InvalidState).Details["blockers"]); diff != "" {
			t.Error(diff)
		}
	}
	host := blocker{"host", "host_1", "m1"}
	wantBlockers(blocker{"bootstrap", runID, "cpx22:fsn1"}, host, blocker{"instance", instance.ID, "instance-1"})
	b.exec(t, `UPDATE bootstraps SET status = 'joined', host_id = 'host_1', joined_at = now()`)
	wantBlockers(host, blocker{"instance", instance.ID, "instance-1"})
	for range 2 {
		if err := DeleteInstance(t.Context(), b.db.DB, "t1", instance.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantBlockers(host)
	b.exec(t, `UPDATE hosts SET removed_at = now()`)
	if _, err := b.archive(admin(t), p); err != nil {
		t.Error(err)
	}
}

// Who may archive the pool need not hear of runs of accounts that they may not read, nor of hosts where they may not read the pool.
func TestArchiveHidesWhatTheCallerMayNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.create(t, hosts("main"))
	accounts := []string{b.account(t, "t1"), b.account(t, "t1")}
	run := b.insertBootstrap(t, p.ID, accounts[0])
	b.insertBootstrap(t, p.ID, accounts[1])
	b.exec(t, `INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES ('host_1', 't1', ?, ?, ?, 'm1')`, p.ID, run, accounts[0])
	b.exec(t, "INSERT INTO roles (name, permissions, created_by, updated_by) VALUES ('archivist', '{compute:pools:manage}', '', '')")
	shown, host := blocker{"bootstrap", run, "cpx22:fsn1"}, blocker{"host", "host_1", "m1"}
	for _, step := range []struct {
		role, object string
		effect       model.BindingEffect
		told         []blocker
		hidden       any
	}{
		{"archivist", "compute-pool/" + p.ID, model.Allow, []blocker{}, 3},
		{"provider-viewer", "compute-provider-account/" + accounts[0], model.Allow, []blocker{shown}, 2},
		{"provider-viewer", "compute-pool/" + p.ID, model.Allow, []blocker{shown, host}, 1},
		{"tenant-admin", "compute-tenant/t1", model.Allow, nil, nil},
		{"provider-viewer", "compute-provider-account/" + accounts[1], model.Deny, []blocker{shown, host}, 1},
	} {
		b.bind(t, binding("user:keeper", step.role, step.object, step.effect))
		_, err := b.archive(as(t.Context(), "user:keeper"), p)
		details := wantCode(t, err, problem.InvalidState).Details
		if diff := cmp.Diff(step.told, details["blockers"]); step.told != nil && diff != "" || details["hidden"] != step.hidden {
			t.Errorf("with %s on %s: %v", step.role, step.object, details)
		}
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := CreateInstance(t.Context(), b.db.DB, "t1", id.New("pool"), "x")
	wantCode(t, err, problem.NotFound)
	p := b.create(t, hosts("no-account"))
	_, err = CreateInstance(t.Context(), b.db.DB, "t1", p.ID, "x")
	wantCode(t, err, problem.InvalidState)
	_, err = CreateInstance(t.Context(), b.db.DB, "t2", p.ID, "x")
	wantCode(t, err, problem.NotFound)
	wantCode(t, DeleteInstance(t.Context(), b.db.DB, "t1", id.New("inst")), problem.NotFound)
}

func TestPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	archived := []*model.Pool{}
	for range 3 {
		p := b.create(t, hosts("same"))
		if _, err := b.archive(admin(t), p); err != nil {
			t.Fatal(err)
		}
		archived = append(archived, p)
	}
	inUse := b.create(t, hosts("same"))
	last := b.create(t, hosts("z"))
	viewer := as(t.Context(), "user:viewer")
	collect := func(in PageInput) []string {
		t.Helper()
		got := []string{}
		for {
			page, err := b.Page(viewer, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Nodes() {
				got = append(got, p.ID)
			}
			if !page.PageInfo.HasNextPage {
				return got
			}
			in.After = page.PageInfo.EndCursor
		}
	}
	all := []string{archived[0].ID, archived[1].ID, archived[2].ID, inUse.ID}
	slices.Sort(all)
	all = append(all, last.ID)
	for size := 1; size <= 6; size++ {
		if diff := cmp.Diff(all, collect(PageInput{TenantID: "t1", IncludeArchived: true, First: &size})); diff != "" {
			t.Error(size, diff)
		}
		if diff := cmp.Diff([]string{inUse.ID, last.ID}, collect(PageInput{TenantID: "t1", First: &size})); diff != "" {
			t.Error(size, diff)
		}
	}
	b.bind(t, binding("user:viewer", "provider-viewer", "compute-pool/"+inUse.ID, model.Deny))
	if diff := cmp.Diff([]string{last.ID}, collect(PageInput{TenantID: "t1"})); diff != "" {
		t.Error("with one denied", diff)
	}
	page, err := b.Page(viewer, PageInput{TenantID: "t1", First: new(1)})
	if err != nil {
		t.Fatal(err)
	}
	good := page.PageInfo.EndCursor
	for _, in := range []PageInput{
		{TenantID: "t1", After: new("")},
		{TenantID: "t1", After: new(base64.RawURLEncoding.EncodeToString([]byte(`{"name":"a"}`)))},
		{TenantID: "t2", After: good},
		{TenantID: "t1", IncludeArchived: true, After: good},
	} {
		_, err := b.Page(viewer, in)
		wantIssues(t, err, "after")
	}
	_, err = b.Page(viewer, PageInput{First: new(101), After: new("x")})
	wantIssues(t, err, "tenantId", "first", "after")
	_, err = b.Page(as(t.Context(), "user:nobody"), PageInput{TenantID: "t1"})
	wantCode(t, err, problem.Forbidden)
	_, err = b.Page(t.Context(), PageInput{})
	wantCode(t, err, problem.Unauthenticated)
}

func TestByIDsAndNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.create(t, hosts("main"))
	elsewhere := hosts("main")
	elsewhere.TenantID = "t2"
	foreign := b.create(t, elsewhere)
	b.bind(t, binding("user:held-back", "tenant-admin", "compute-tenant/t1", model.Allow),
		binding("user:held-back", "tenant-admin", "compute-pool/"+p.ID, model.Deny),
		binding("user:one", "provider-viewer", "compute-pool/"+p.ID, model.Allow))
	for subject, want := range map[string]int{"user:viewer": 1, "user:one": 1, "user:held-back": 0, "user:nobody": 0} {
		got, err := b.ByIDs(as(t.Context(), subject), "t1", []string{p.ID, foreign.ID, id.New("pool")})
		if err != nil || len(got) != want || (want == 1 && got[p.ID] == nil) {
			t.Errorf("%s: %v, %v", subject, got, err)
		}
	}
	if n, err := b.db.NewSelect().Table("audit_log").Where("outcome = 'denied'").Count(t.Context()); err != nil || n != 0 {
		t.Errorf("%d denials of what is left out, %v", n, err)
	}
	if got, err := b.ByIDs(as(t.Context(), "user:viewer"), "t1", nil); err != nil || len(got) != 0 {
		t.Errorf("of none: %v, %v", got, err)
	}
	_, err := b.ByIDs(t.Context(), "t1", []string{p.ID})
	wantCode(t, err, problem.Unauthenticated)
	for poolID, want := range map[string]bool{p.ID: true, foreign.ID: false, id.New("pool"): false, "x": false} {
		node, err := b.Node(as(t.Context(), "user:viewer"), poolID)
		if err != nil || (node != nil) != want {
			t.Errorf("%s: %v, %v", poolID, node, err)
		}
	}
	_, err = b.Node(t.Context(), p.ID)
	wantCode(t, err, problem.Unauthenticated)
}

// TestArchiveAgainstUse races an archive with a run and with an instance that come into the pool.
func TestArchiveAgainstUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accountID := b.account(t, "t1")
	errArchived := errors.New("archived")
	uses := map[string]func(p *model.Pool) error{
		"bootstrap": func(p *model.Pool) error {
			return b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				got, err := b.ForBootstrap(ctx, tx, "t1", p.ID)
				if err != nil {
					return err
				}
				if got.ArchivedAt != nil {
					return errArchived
				}
				_, err = tx.NewRaw(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id)
					VALUES (?0, 't1', ?1, ?2, 'user:x', 'm', 'identifying', ?0)`, id.New("boot"), accountID, p.ID).Exec(ctx)
				return err
			})
		},
		"instance": func(p *model.Pool) error {
			err := b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				_, err := CreateInstance(ctx, tx, "t1", p.ID, "x")
				return err
			})
			if problem.Is(err, problem.InvalidState) {
				return errArchived
			}
			return err
		},
	}
	for kind, use := range uses {
		for i := range 150 {
			in := hosts(fmt.Sprintf("%s-%d", kind, i))
			in.AccountID = &accountID
			p := b.create(t, in)
			var archiveErr, useErr error
			var wg sync.WaitGroup
			wg.Go(func() { _, archiveErr = b.archive(admin(t), p) })
			wg.Go(func() { useErr = use(p) })
			wg.Wait()
			archived := archiveErr == nil && useErr == errArchived
			used := problem.Is(archiveErr, problem.InvalidState) && useErr == nil
			if !archived && !used {
				t.Fatalf("%s: archive says %v, the other %v", kind, archiveErr, useErr)
			}
		}
	}
	var n int
	err := b.db.NewRaw(`SELECT count(*) FROM pools p WHERE archived_at IS NOT NULL AND (
		EXISTS (SELECT FROM instances WHERE pool_id = p.id AND deleted_at IS NULL) OR EXISTS (SELECT FROM bootstraps WHERE pool_id = p.id))`).
		Scan(t.Context(), &n)
	if n != 0 || err != nil {
		t.Errorf("%d archived pools are in use, %v", n, err)
	}
}
