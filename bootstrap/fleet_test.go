package bootstrap

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// ofOthers gives another tenant an account with a run, which is given, and an orphan.
func (b *bench) ofOthers(tenantID string) (runID, account string) {
	b.t.Helper()
	runID, account = id.New("boot"), id.New("pacct")
	pool := id.New("pool")
	b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'scripted', 'main', 'test')", account, tenantID)
	b.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", pool, tenantID)
	b.exec(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, machine_id, created_by, operation_id, status)
		VALUES (?, ?, ?, ?, 'm', 'test', ?, 'claiming')`, runID, tenantID, account, pool, someOperation())
	b.exec("INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id) VALUES (?, ?, ?, 'not-ours', 'm')", id.New("orph"), tenantID, account)
	return runID, account
}

func TestOperatorsFindWhatWaitsForAPersonInAllTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	waits, calm := b.start(b.offer("k1")), b.start(b.offer("k2"))
	b.exec("UPDATE bootstraps SET wait_reason = 'CLAIM_UNCERTAIN' WHERE id = ?", waits)
	blocked, _ := b.ofOthers("other")
	b.exec("UPDATE bootstraps SET status = 'failed', failure = '{}', cleanup = 'blocked', wait_reason = 'CLAIM_UNCERTAIN' WHERE id = ?", blocked)
	_, account := b.ofOthers("hidden")
	b.ofOthers("denied")
	b.grant("user:operator", "provider-viewer", "compute-fleet")
	for _, object := range []string{"compute-tenant/denied", "compute-provider-account/" + account} {
		b.exec("INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:operator', 'provider-viewer', ?, 'deny')", object)
	}
	operator := as(t.Context(), "user:operator")
	page := func(ctx context.Context, q PageQuery) []string {
		t.Helper()
		found := []string{}
		q.First = new(1)
		for {
			p, err := b.service.Page(ctx, q)
			if err != nil {
				t.Fatalf("Page: %v", err)
			}
			for _, n := range p.Nodes() {
				found = append(found, n.ID)
			}
			if !p.PageInfo.HasNextPage {
				return found
			}
			q.After = p.PageInfo.EndCursor
		}
	}
	uncertain, block := []string{model.ClaimUncertain}, []model.CleanupStatus{model.CleanupBlocked}
	equal(t, "all", page(operator, PageQuery{}), []string{blocked, calm, waits})
	equal(t, "uncertain", page(operator, PageQuery{WaitReasons: uncertain}), []string{blocked, waits})
	equal(t, "blocked", page(operator, PageQuery{Cleanups: block}), []string{blocked})
	equal(t, "uncertain of the tenant", page(operator, PageQuery{TenantID: new(tenant), WaitReasons: uncertain}), []string{waits})
	equal(t, "blocked of the tenant", page(operator, PageQuery{TenantID: new(tenant), Cleanups: block}), []string{})
	equal(t, "of the denied account", page(operator, PageQuery{TenantID: new("hidden")}), []string{})

	orphans, err := b.service.Orphans(operator, OrphansInput{})
	if err != nil || len(orphans.Edges) != 1 || orphans.Nodes()[0].TenantID != "other" {
		t.Errorf("Orphans = %+v, %v, want that of the tenant other", orphans, err)
	}
	_, err = b.service.Page(b.ctx, PageQuery{})
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Orphans(b.ctx, OrphansInput{})
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Page(operator, PageQuery{
		AccountID: &account, PoolID: &b.pool, WaitReasons: []string{"why?"}, Cleanups: []model.CleanupStatus{"tidy"},
	})
	if got := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue); len(got) != 4 {
		t.Errorf("issues = %v, want four", got)
	}
	p, err := b.service.Page(operator, PageQuery{WaitReasons: uncertain, First: new(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []PageQuery{{}, {TenantID: new(tenant), WaitReasons: uncertain}, {Cleanups: block}} {
		q.After = p.PageInfo.EndCursor
		_, err := b.service.Page(operator, q)
		wantCode(t, err, problem.InvalidInput)
	}
}

// However many runs there are, a filter finds its few by an index.
func TestListsOfRunsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.start(b.offer("k"))
	b.exec(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, machine_id, created_by, operation_id, status, failure, cleanup, wait_reason, created_at)
		SELECT 'boot_' || n, 't' || n % 100, r.account_id, r.pool_id, 'm', 'test', 'o' || n, 'failed', '{}',
			CASE WHEN n % 500 = 0 THEN 'blocked' ELSE 'released' END, CASE WHEN n % 500 = 1 THEN 'CLAIM_UNCERTAIN' END, now() - n * interval '1 second'
		FROM generate_series(1, 20000) AS n, bootstraps AS r`)
	b.exec(`INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id, first_seen_at)
		SELECT 'orph_' || n, 't' || n % 100, ?, 'not-ours', 'm' || n, now() - n * interval '1 second' FROM generate_series(1, 20000) AS n`, b.account)
	b.exec("ANALYZE bootstraps")
	b.exec("ANALYZE orphans")
	everything := everyTenant(authz.WithActor(t.Context(), authz.Actor{Subject: owner}))
	uses := func(query any, indexes string) {
		t.Helper()
		var plan []string
		if err := b.db.NewRaw("EXPLAIN ?", query).Scan(everything, &plan); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(plan, "\n")
		if strings.Contains(text, "Seq Scan") || !regexp.MustCompile(`(using|Index Scan on) (`+indexes+`)\b`).MatchString(text) {
			t.Errorf("%s is not used:\n%s", indexes, text)
		}
	}
	uses(orderedQuery(b.db.DB, &model.ProviderAccount{ID: b.account, TenantID: "t1"}, []string{"m1", "m2"}), "bootstraps_account_idx|bootstraps_tenant_idx")
	b.grant(owner, "provider-viewer", "compute-fleet")
	tenantID := new("t1")
	later := input.Page[*place]{First: 50, Place: &place{CreatedMicro: time.Now().Add(-time.Hour).UnixMicro(), ID: "boot_1"}}
	for _, p := range []input.Page[*place]{{First: 50}, later} {
		for _, c := range []struct {
			q       PageQuery
			indexes string
		}{
			{PageQuery{}, "bootstraps_created_idx"},
			{PageQuery{WaitReasons: []string{model.ClaimUncertain}}, "bootstraps_waiting_idx"},
			{PageQuery{Cleanups: []model.CleanupStatus{model.CleanupBlocked}}, "bootstraps_cleanup_idx"},
			{PageQuery{TenantID: tenantID}, "bootstraps_tenant_idx"},
			{PageQuery{TenantID: tenantID, WaitReasons: []string{model.ClaimUncertain}}, "bootstraps_waiting_idx|bootstraps_tenant_idx"},
			{PageQuery{TenantID: tenantID, Cleanups: []model.CleanupStatus{model.CleanupBlocked}}, "bootstraps_cleanup_idx|bootstraps_tenant_idx"},
		} {
			visible, err := b.service.readable(b.ctx, c.q.TenantID, nil)
			if err != nil {
				t.Fatal(err)
			}
			var items []*model.Bootstrap
			uses(pageOf(b.db.NewSelect().Model(&items), visible, c.q, p), c.indexes)
		}
	}
	visible, err := b.service.readable(b.ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var items []*model.Orphan
	uses(orphansOf(b.db.NewSelect().Model(&items), visible, OrphansInput{}, later), "orphans_seen_idx")
}

// Whatever arguments come, what hangs on a page is looked up.
func TestWhatHangsOnAPageIsLookedUp(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.start(b.offer("k"))
	b.exec(`INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) SELECT 'pacct_' || n, 't' || n % 100, 'sim', 'n' || n, '' FROM generate_series(1, 2000) AS n`)
	b.exec(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, machine_id, created_by, operation_id, status, failure, created_at)
		SELECT 'boot_' || n, 't' || n % 100, 'pacct_' || 1 + n % 2000, r.pool_id, 'm', 'test', 'o' || n, 'failed', '{}', now() - n * interval '1 second'
		FROM generate_series(1, 20000) AS n, bootstraps AS r`)
	b.exec("INSERT INTO bootstrap_transitions (bootstrap_id, to_status) SELECT 'boot_' || n, s FROM generate_series(1, 20000) n, unnest(ARRAY['x', 'y', 'z']) s")
	if _, err := pgtest.Owner(t, b.db).ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("t7", "t8"))
	uses := func(index, query string, args ...any) {
		t.Helper()
		plan := pgtest.Plan(ctx, t, b.db, query, args...)
		if strings.Contains(plan, "Seq Scan") || !regexp.MustCompile(`(using|Index Scan on) (`+index+`)\b`).MatchString(plan) || strings.Count(plan, "Sort  ") > 1 {
			t.Errorf("%s is not used for\n%s\n%s", index, query, plan)
		}
	}
	uses("bootstraps_pkey", getOrders, "")
	uses("bootstrap_transitions_(bootstrap_idx|once)", getHistories, "")
	later := input.Page[*place]{First: 5, Place: &place{CreatedMicro: time.Now().UnixMicro(), ID: "boot_1"}}
	for _, p := range []input.Page[*place]{{First: 5}, later} {
		for _, statuses := range [][]model.BootstrapStatus{nil, {model.Failed}} {
			text, args := lastOfEach(nil, statuses, p)
			uses("bootstraps_account_idx", text, args...)
		}
	}
}
