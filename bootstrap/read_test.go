package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"better/compute/internal/id"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestGetTellsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	absent := id.New("boot")
	b.grant("user:single", "provider-viewer", "compute-provider-account/"+b.account)
	b.grant("user:foreign", "tenant-admin", "compute-tenant/other")

	if got, err := b.service.Get(as(t.Context(), "user:single"), tenant, runID); err != nil || got.ID != runID {
		t.Errorf("a grant on the account: %v, %v", got, err)
	}
	_, err := b.service.Get(b.ctx, tenant, absent)
	wantCode(t, err, problem.NotFound)
	_, err = b.service.Get(as(t.Context(), "user:foreign"), "other", runID)
	wantCode(t, err, problem.NotFound)
	_, err = b.service.Get(b.ctx, tenant, "boot_x")
	wantCode(t, err, problem.InvalidInput)
	_, err = b.service.Get(t.Context(), tenant, runID)
	wantCode(t, err, problem.Unauthenticated)

	// Whether the run exists makes no difference to one who may not read it.
	for _, caller := range []string{"user:nobody", "user:foreign"} {
		ctx := as(t.Context(), caller)
		_, there := b.service.Get(ctx, tenant, runID)
		_, gone := b.service.Get(ctx, tenant, absent)
		there, gone = wantCode(t, there, problem.Forbidden), wantCode(t, gone, problem.Forbidden)
		equal(t, "denials", there.Error(), gone.Error())
		equal(t, "details", problem.From(there).Details, problem.From(gone).Details)
	}
	// Reading is not enough to cancel.
	_, err = b.service.Cancel(as(t.Context(), "user:single"), model.CancelBootstrapInput{TenantID: tenant, BootstrapID: runID})
	wantCode(t, err, problem.Forbidden)
	// One account denied looks like no run at all, to a caller who has the tenant.
	b.exec("INSERT INTO role_bindings (subject, role, object, effect) VALUES (?, 'tenant-admin', ?, 'deny')", owner, "compute-provider-account/"+b.account)
	_, err = b.service.Get(b.ctx, tenant, runID)
	wantCode(t, err, problem.NotFound)
}

func (b *bench) secondAccount() string {
	account := id.New("pacct")
	b.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'scripted', 'second', 'test')", account, tenant)
	return account
}

func TestPage(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	second := b.secondAccount()
	var newest []string
	for i := range 25 {
		in := b.offer(fmt.Sprint("k", i))
		if i%5 == 0 {
			in.AccountID = second
		}
		newest = append([]string{b.start(in)}, newest...)
	}
	// Equal times page too.
	b.exec("UPDATE bootstraps SET created_at = date_trunc('minute', now())")
	slices.SortFunc(newest, func(x, y string) int {
		if x > y {
			return -1
		}
		return 1
	})
	all := func(ctx context.Context, q PageQuery) []string {
		t.Helper()
		var ids []string
		first := 4
		q.TenantID, q.First = new(tenant), &first
		for {
			p, err := b.service.Page(ctx, q)
			if err != nil {
				t.Fatalf("Page: %v", err)
			}
			for _, n := range p.Nodes() {
				ids = append(ids, n.ID)
			}
			if !p.PageInfo.HasNextPage {
				return ids
			}
			q.After = p.PageInfo.EndCursor
		}
	}
	equal(t, "all", all(b.ctx, PageQuery{}), newest)
	equal(t, "of the second account", len(all(b.ctx, PageQuery{AccountID: &second})), 5)
	equal(t, "of the pool", len(all(b.ctx, PageQuery{PoolID: &b.pool})), 25)
	equal(t, "failed", len(all(b.ctx, PageQuery{Statuses: []model.BootstrapStatus{model.Failed}})), 0)
	equal(t, "claiming", len(all(b.ctx, PageQuery{Statuses: []model.BootstrapStatus{model.Claiming, model.Failed}})), 25)

	b.grant("user:single", "provider-viewer", "compute-provider-account/"+second)
	single := as(t.Context(), "user:single")
	equal(t, "readable", len(all(single, PageQuery{})), 5)
	_, err := b.service.Page(single, PageQuery{TenantID: new(tenant), AccountID: &b.account})
	wantCode(t, err, problem.Forbidden)
	_, err = b.service.Page(as(t.Context(), "user:nobody"), PageQuery{TenantID: new(tenant)})
	wantCode(t, err, problem.Forbidden)

	zero, bad := 0, "%%%"
	_, err = b.service.Page(b.ctx, PageQuery{TenantID: new(tenant), First: &zero, After: &bad, AccountID: &bad, Statuses: []model.BootstrapStatus{"nowhere"}})
	issues := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue)
	equal(t, "issues", len(issues), 4)
	_, err = b.service.Page(b.ctx, PageQuery{TenantID: new(tenant), WaitReasons: slices.Repeat([]string{"CLAIM_UNCERTAIN"}, maxReasons+1)})
	wantCode(t, err, problem.InvalidInput)
}

// What a list is narrowed to goes to the database once each, however often it was said.
func TestPageIsNarrowedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	many := PageQuery{
		Statuses: slices.Repeat([]model.BootstrapStatus{model.Failed, model.Joined}, 2000), WaitReasons: slices.Repeat([]string{"CLAIM_UNCERTAIN"}, 90),
		Cleanups: slices.Repeat([]model.CleanupStatus{model.CleanupBlocked}, 2000),
	}
	query := narrow(b.db.NewSelect().TableExpr("bootstraps AS b"), many).String()
	if len(query) > 300 || strings.Count(query, "'joined'") != 1 || strings.Count(query, "'failed'") != 1 {
		t.Errorf("%d bytes: %.400s", len(query), query)
	}
}

func TestByAccountsIsOneStatement(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	second := b.secondAccount()
	var mine, theirs []string
	for i := range 6 {
		in := b.offer(fmt.Sprint("a", i))
		mine = append([]string{b.start(in)}, mine...)
		if i < 2 {
			in = b.offer(fmt.Sprint("b", i))
			in.AccountID = second
			theirs = append([]string{b.start(in)}, theirs...)
		}
	}
	accounts := []*model.ProviderAccount{{ID: second, TenantID: tenant}, {ID: id.New("pacct"), TenantID: tenant}, {ID: b.account, TenantID: tenant}}
	if _, err := b.service.Cursors.List(b.ctx, "", tenant); err != nil { // the key is read once in the life of a process
		t.Fatal(err)
	}
	count := func(n int) int {
		statements := pgtest.CountQueries(b.db)
		first := 4
		pages, err := b.service.ByAccounts(b.ctx, accounts[:n], nil, &first, nil)
		if err != nil || len(pages) != n {
			t.Fatalf("ByAccounts: %d, %v", len(pages), err)
		}
		equal(t, "second account", idsOf(pages[0]), theirs)
		if n == 3 {
			equal(t, "no runs", idsOf(pages[1]), []string(nil))
			equal(t, "first account", idsOf(pages[2]), mine[:4])
			equal(t, "more", pages[2].PageInfo.HasNextPage, true)
			next, err := b.service.ByAccounts(b.ctx, accounts[2:], nil, &first, pages[2].PageInfo.EndCursor)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "next page", idsOf(next[0]), mine[4:])
			return statements() / 2
		}
		return statements()
	}
	equal(t, "statements", count(3), count(1))

	_, err := b.service.ByAccounts(as(t.Context(), "user:nobody"), accounts, nil, nil, nil)
	wantCode(t, err, problem.Forbidden)
	if pages, err := b.service.ByAccounts(b.ctx, nil, nil, nil, nil); err != nil || len(pages) != 0 {
		t.Errorf("no accounts: %v, %v", pages, err)
	}
}

func idsOf(c *model.BootstrapConnection) []string {
	var ids []string
	for _, n := range c.Nodes() {
		ids = append(ids, n.ID)
	}
	return ids
}

func TestHistories(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	first, second := b.start(b.offer("k1")), b.start(b.machine("box", "k2"))
	b.driveToStatus(first, model.Identifying)
	b.cancel(second)
	b.driveToEnd(second)
	got, err := b.service.Histories(b.ctx, []*model.Bootstrap{{ID: second}, {ID: first}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "steps", []int{len(got[0]), len(got[1])}, []int{2, 2})
	equal(t, "reason", deref(got[0][1].Reason), "CANCELLED")
	if got[1][1].Reason != nil || *got[1][1].From != model.Claiming {
		t.Errorf("history = %+v", got[1][1])
	}
	if none, err := b.service.Histories(b.ctx, nil); err != nil || len(none) != 0 {
		t.Errorf("no runs: %v, %v", none, err)
	}
}

// A page goes on only in the list that it is of.
func TestCursorsOfOtherLists(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	second := b.secondAccount()
	for i := range 2 {
		b.start(b.offer(fmt.Sprint("k", i)))
	}
	one := 1
	statuses := []model.BootstrapStatus{model.Claiming, model.Failed}
	page, err := b.service.Page(b.ctx, PageQuery{TenantID: new(tenant), Statuses: statuses, First: &one})
	if err != nil {
		t.Fatal(err)
	}
	good := page.PageInfo.EndCursor
	again, err := b.service.Page(b.ctx, PageQuery{
		TenantID: new(tenant), Statuses: []model.BootstrapStatus{model.Failed, model.Claiming, model.Failed}, First: &one, After: good,
	})
	if err != nil || len(again.Edges) != 1 {
		t.Errorf("the same states in another order: %+v, %v", again, err)
	}
	for _, q := range []PageQuery{
		{TenantID: new(tenant)},
		{TenantID: new(tenant), Statuses: statuses[:1]},
		{TenantID: new(tenant), Statuses: statuses, AccountID: &b.account},
		{TenantID: new(tenant), Statuses: statuses, PoolID: &b.pool},
	} {
		q.After = good
		_, err := b.service.Page(b.ctx, q)
		wantCode(t, err, problem.InvalidInput)
	}
	account, other := &model.ProviderAccount{ID: b.account, TenantID: tenant}, &model.ProviderAccount{ID: second, TenantID: tenant}
	nested, err := b.service.ByAccounts(b.ctx, []*model.ProviderAccount{account}, nil, &one, nil)
	if err != nil {
		t.Fatal(err)
	}
	good = nested[0].PageInfo.EndCursor
	for _, accounts := range [][]*model.ProviderAccount{{other}, {account, other}} {
		_, err := b.service.ByAccounts(b.ctx, accounts, nil, nil, good)
		wantCode(t, err, problem.InvalidInput)
	}
	_, err = b.service.Page(b.ctx, PageQuery{TenantID: new(tenant), AccountID: &b.account, After: good})
	wantCode(t, err, problem.InvalidInput)
}
