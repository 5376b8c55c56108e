package provideraccount

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func names(accounts []*model.ProviderAccount) []string {
	out := []string{}
	for _, a := range accounts {
		out = append(out, a.Name)
	}
	return out
}

func TestGet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	foreign := b.createIn(t, "t2", "main")
	viewer := as(t.Context(), "user:viewer")
	for name, in := range map[string]GetInput{
		"none":             {"t1", id.New("pacct")},
		"another tenant's": {"t1", foreign.ID},
	} {
		_, err := b.Get(viewer, in)
		p := wantCode(t, err, problem.NotFound)
		if strings.Contains(p.Message, in.AccountID) || len(p.Details) > 0 {
			t.Errorf("%s: %v, %v: must not differ", name, p.Message, p.Details)
		}
	}
	_, err := b.Get(viewer, GetInput{"t2", a.ID})
	wantCode(t, err, problem.Forbidden)
	_, err = b.Get(viewer, GetInput{"t2", id.New("pacct")})
	wantCode(t, err, problem.Forbidden)
	_, err = b.Get(as(t.Context(), "user:nobody"), GetInput{"t1", a.ID})
	wantCode(t, err, problem.Forbidden)
	_, err = b.Get(t.Context(), GetInput{})
	wantCode(t, err, problem.Unauthenticated)

	for accountID, want := range map[string][]string{
		"":                                  {"accountId"},
		"pacct_" + strings.Repeat("0", 25):  {"accountId"},
		"pacct_" + strings.Repeat("0", 53):  {"accountId"},
		"pacct_" + strings.Repeat("u", 26):  {"accountId"},
		"pacct_" + strings.Repeat("A", 26):  {"accountId"},
		"pool_" + strings.Repeat("0", 26):   {"accountId"},
		"xpacct_" + strings.Repeat("0", 26): {"accountId"},
		a.ID + "\n":                         {"accountId"},
	} {
		_, err := b.Get(viewer, GetInput{"t1", accountID})
		wantIssues(t, err, want...)
	}
	_, err = b.Get(viewer, GetInput{})
	wantIssues(t, err, "tenantId", "accountId")
	for _, n := range []int{26, 52} {
		_, err = b.Get(viewer, GetInput{"t1", "pacct_" + strings.Repeat("z", n)})
		wantCode(t, err, problem.NotFound)
	}
}

// All accounts at once are no more than one answer holds.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	insert := func(from, to, bytes int) {
		_, err := b.db.NewRaw(`INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by)
			SELECT 'pacct_' || n, 't1', 'sim', 'n' || n, jsonb_build_object('a', repeat('x', ?)), '' FROM generate_series(?::int, ?::int) n`, bytes, from, to).
			Exec(postgres.WithScope(t.Context(), postgres.AllTenants()))
		if err != nil {
			t.Fatal(err)
		}
	}
	viewer := as(t.Context(), "user:viewer")
	insert(1, 2*listPage, 10)
	got, err := b.List(viewer, ListInput{"t1"})
	if err != nil || len(got) != 2*listPage || !slices.IsSorted(names(got)) {
		t.Fatalf("%d accounts, %v", len(got), err)
	}
	insert(1_000, 1_000+listBytes/(60<<10), 60<<10)
	got, err = b.List(viewer, ListInput{"t1"})
	if p := wantCode(t, err, problem.InvalidInput); p.Details["rule"] != "answer_bytes" || got != nil {
		t.Errorf("%v, %d accounts", p.Details, len(got))
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	viewer, nobody := as(t.Context(), "user:viewer"), as(t.Context(), "user:nobody")
	got, err := b.List(viewer, ListInput{"t1"})
	if err != nil || got == nil || len(got) != 0 {
		t.Fatalf("an empty tenant lists %v, %v", got, err)
	}
	byName := map[string]*model.ProviderAccount{}
	for _, name := range []string{"b", "a-b", "a.b", "a_b", "a0", "a"} {
		byName[name] = b.create(t, name)
	}
	foreign := b.createIn(t, "t2", "foreign")

	got, err = b.List(viewer, ListInput{"t1"})
	if diff := cmp.Diff([]string{"a", "a-b", "a.b", "a0", "a_b", "b"}, names(got)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	b.bind(t, binding("user:viewer", "provider-viewer", "compute-provider-account/"+byName["a0"].ID, model.Deny))
	got, err = b.List(viewer, ListInput{"t1"})
	if diff := cmp.Diff([]string{"a", "a-b", "a.b", "a_b", "b"}, names(got)); diff != "" || err != nil {
		t.Error("with one denied", err, diff)
	}
	_, err = b.List(nobody, ListInput{"t1"})
	wantCode(t, err, problem.Forbidden)
	b.bind(t,
		binding("user:nobody", "provider-viewer", "compute-provider-account/"+byName["b"].ID, model.Allow),
		binding("user:nobody", "provider-viewer", "compute-provider-account/"+foreign.ID, model.Allow))
	got, err = b.List(nobody, ListInput{"t1"})
	if diff := cmp.Diff([]string{"b"}, names(got)); diff != "" || err != nil {
		t.Error("with a grant on one", err, diff)
	}
	b.bind(t, binding("user:nobody", "provider-viewer", "compute-tenant/t1", model.Deny))
	_, err = b.List(nobody, ListInput{"t1"})
	wantCode(t, err, problem.Forbidden)
	_, err = b.List(t.Context(), ListInput{})
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.List(viewer, ListInput{})
	wantIssues(t, err, "tenantId")
}

func TestPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := []string{}
	for i := range 7 {
		name := fmt.Sprintf("account-%d", i)
		b.create(t, name)
		want = append(want, name)
	}
	viewer := as(t.Context(), "user:viewer")
	for size := 1; size <= 8; size++ {
		got, after := []string{}, (*string)(nil)
		for {
			page, err := b.Page(viewer, PageInput{TenantID: "t1", First: &size, After: after})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, names(page.Nodes())...)
			if page.PageInfo.HasPreviousPage != (after != nil) {
				t.Errorf("size %d: hasPreviousPage is %v", size, page.PageInfo.HasPreviousPage)
			}
			if !page.PageInfo.HasNextPage {
				break
			}
			after = page.PageInfo.EndCursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d give %v", size, got)
		}
	}
	page, err := b.Page(viewer, PageInput{TenantID: "t1", Provider: new("other")})
	if err != nil || len(page.Edges) != 0 || page.PageInfo.HasNextPage || page.PageInfo.EndCursor != nil {
		t.Errorf("another provider's page: %+v, %v", page, err)
	}
	page, err = b.Page(viewer, PageInput{TenantID: "t1", First: new(1)})
	if err != nil {
		t.Fatal(err)
	}
	good := page.PageInfo.EndCursor
	b.bind(t, binding("user:viewer", "provider-viewer", "compute-tenant/t2", model.Allow))
	for _, in := range []PageInput{
		{TenantID: "t1", After: new("")},
		{TenantID: "t1", After: new("x")},
		{TenantID: "t1", After: new(base64.RawURLEncoding.EncodeToString([]byte(`{"name":"a"}`)))},
		{TenantID: "t2", After: good},
		{TenantID: "t1", Provider: new("other"), After: good},
	} {
		_, err := b.Page(viewer, in)
		wantIssues(t, err, "after")
	}
	_, err = b.Page(viewer, PageInput{TenantID: "", Provider: new("X"), First: new(0), After: new("x")})
	wantIssues(t, err, "tenantId", "provider", "first", "after")
	_, err = b.Page(viewer, PageInput{TenantID: "t1", First: new(101)})
	wantIssues(t, err, "first")
	_, err = b.Page(as(t.Context(), "user:nobody"), PageInput{TenantID: "t1"})
	wantCode(t, err, problem.Forbidden)
}

func TestByIDsAndNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second, foreign := b.create(t, "first"), b.create(t, "second"), b.createIn(t, "t2", "foreign")
	b.bind(t, binding("user:viewer", "provider-viewer", "compute-provider-account/"+second.ID, model.Deny))
	viewer := as(t.Context(), "user:viewer")
	got, err := b.ByIDs(viewer, "t1", []string{first.ID, second.ID, foreign.ID, id.New("pacct")})
	if err != nil || len(got) != 1 || got[first.ID].Name != "first" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := b.ByIDs(as(t.Context(), "user:nobody"), "t1", []string{first.ID}); err != nil || len(got) != 0 {
		t.Errorf("without rights: %v, %v", got, err)
	}
	if n := b.count(t, "SELECT count(*) FROM audit_log WHERE outcome = 'denied'"); n != 0 {
		t.Errorf("%d denials of what is left out", n)
	}
	for accountID, want := range map[string]bool{first.ID: true, second.ID: false, foreign.ID: false, id.New("pacct"): false, "x": false} {
		node, err := b.Node(viewer, accountID)
		if err != nil || (node != nil) != want {
			t.Errorf("%s: %v, %v", accountID, node, err)
		}
	}
	_, err = b.Node(t.Context(), first.ID)
	wantCode(t, err, problem.Unauthenticated)
}

func TestProviders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Providers(t.Context())
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Providers(authz.WithActor(t.Context(), authz.Actor{Subject: "user:x", Expires: t0}))
	wantCode(t, err, problem.Unauthenticated)
	providers, err := b.Providers(as(t.Context(), "user:nobody"))
	if err != nil || len(providers) != 2 || providers[1].Name != "sim" {
		t.Errorf("got %v, %v", providers, err)
	}
	if b.Provider("sim") == nil || b.Provider("gone") != nil {
		t.Error("one provider by name")
	}
}

// Whatever arguments come, a page is read in the order of an index, and only as far as it goes.
func TestReadsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by)
		SELECT 'pacct_' || n, 't' || n % 1000, 'sim', 'n' || n, '' FROM generate_series(1, 20000) n`)
	b.exec(t, `INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by)
		SELECT 'pacct_x' || n, 'big', 'sim', 'n' || n, '' FROM generate_series(1, 1000) n`)
	if _, err := pgtest.Owner(t, b.db).ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("t7", "t8"))
	uses := func(index, query string, args ...any) {
		t.Helper()
		plan := pgtest.Plan(ctx, t, b.db, query, args...)
		sorts := strings.Contains(plan, "Sort") && !strings.Contains(query, "id = ANY") // those that are granted one by one may be sorted
		if sorts || strings.Contains(plan, "Seq Scan") || !regexp.MustCompile(`(using|Index Scan on) (`+index+`)\b`).MatchString(plan) {
			t.Errorf("%s is not used for\n%s\n%s", index, query, plan)
		}
	}
	uses("provider_accounts_pkey", getAccount, "", "")
	uses("provider_accounts_pkey", getAccounts, "", "")
	for _, f := range []authz.Filter{{All: true}, {Granted: []string{"pacct_7"}}} {
		text, args := listQuery{}.statement(f)
		uses("provider_accounts_tenant_name_key", text, args...)
		text, args = listQuery{provider: new("sim")}.statement(f)
		uses("provider_accounts_tenant_name_key|provider_accounts_tenant_provider_idx", text, args...)
	}
}
