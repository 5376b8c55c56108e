package authz

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

func (b *bundle) page(t *testing.T, d *Decider, subject string, in BindingsInput) (rows []model.RoleBinding, next *string) {
	t.Helper()
	page, err := d.Bindings(as(t.Context(), subject), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range page.Nodes() {
		rows = append(rows, *n)
	}
	if page.PageInfo.HasNextPage {
		next = page.PageInfo.EndCursor
	}
	return rows, next
}

func TestBindingsOfATenant(t *testing.T) {
	t.Parallel()
	acct1, acct2, p1 := "compute-provider-account/"+account1, "compute-provider-account/"+account2, "compute-pool/"+pool1
	mine := []model.RoleBinding{ // of tenant a, in order
		allow("group:g", "made", p1),
		allow("user:x", "provider-viewer", p1),
		deny("user:x", "provider-viewer", p1),
		allow("user:x", "tenant-admin", acct1),
		allow("user:a", "tenant-admin", "compute-tenant/a"),
		allow("user:hole", "tenant-admin", "compute-tenant/a"),
		deny("user:x", "provider-manager", "compute-tenant/a"),
		deny("user:x", "provider-viewer", "compute-tenant/a"),
	}
	fleet := []model.RoleBinding{allow("user:root", "fleet-admin", "compute-fleet"), allow("user:x", "provider-viewer", "compute-fleet")}
	b := setup(t, slices.Concat(mine, fleet, []model.RoleBinding{
		allow("user:x", "tenant-admin", acct2), allow("user:b", "tenant-admin", "compute-tenant/b"), allow("user:x", "tenant-admin", "compute-tenant/aa"),
		deny("user:hole", "tenant-admin", p1),
		allow("user:x", "provider-viewer", "compute-pool/"+id.Derive("pool", "missing")),
	})...)
	b.withItems(t)

	b.db.ScopeBy(b.d.Scope)
	mine = slices.Insert(mine, 1, deny("user:hole", "tenant-admin", p1))
	tenant := func(s string) *string { return &s }
	for _, c := range []struct {
		as   string
		in   BindingsInput
		want []model.RoleBinding
	}{
		{"user:a", BindingsInput{TenantID: tenant("a")}, mine},
		{"user:root", BindingsInput{TenantID: tenant("a")}, mine},
		{"user:root", BindingsInput{}, fleet},
		{"user:root", BindingsInput{TenantID: tenant("nobodys")}, nil},
		{"user:hole", BindingsInput{TenantID: tenant("a")}, mine[4:]},
		{"user:a", BindingsInput{TenantID: tenant("a"), Subject: tenant("user:x")}, slices.Concat(mine[2:5], mine[7:])},
		{"user:a", BindingsInput{TenantID: tenant("a"), Subject: tenant("user:nobody")}, nil},
		{"user:root", BindingsInput{Subject: tenant("user:x")}, fleet[1:]},
	} {
		for _, first := range []int{1, 2, 3, 100} {
			var got []model.RoleBinding
			in := c.in
			in.First = &first
			for pages := 0; ; pages++ {
				rows, next := b.page(t, b.d, c.as, in)
				got = append(got, rows...)
				if in.After = next; next == nil {
					break
				}
				if len(rows) != first || pages > 20 {
					t.Fatalf("a page of %d has %d", first, len(rows))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s %d at a time: %s", c.as, first, diff)
			}
		}
	}
	for subject, in := range map[string]BindingsInput{
		"user:b": {TenantID: tenant("a")}, "user:a": {}, "user:x": {TenantID: tenant("aa-")}, "user:hole": {TenantID: tenant("b")},
	} {
		_, err := b.d.Bindings(as(t.Context(), subject), in)
		wantCode(t, err, problem.Forbidden)
	}
}

func TestInputOfAPageOfBindings(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:root", "fleet-admin", "compute-fleet"), allow("user:v", "fleet-admin", "compute-fleet"))
	text := func(s string) *string { return &s }
	one, none := 1, 0
	_, next := b.page(t, b.d, "user:root", BindingsInput{First: &one})
	for _, c := range []struct {
		in   BindingsInput
		want string
	}{
		{BindingsInput{After: next}, ""},
		{BindingsInput{After: next, TenantID: text("t")}, "after"},
		{BindingsInput{After: next, Subject: text("user:root")}, "after"},
		{BindingsInput{After: text("x")}, "after"},
		{BindingsInput{TenantID: text(""), Subject: text("root"), First: &none, After: text("")}, "tenantId subject first after"},
	} {
		_, err := b.d.Bindings(as(t.Context(), "user:root"), c.in)
		if got := issuePaths(t, err); got != c.want {
			t.Errorf("issues at %q, want %q", got, c.want)
		}
	}
	_, err := b.d.Bindings(t.Context(), BindingsInput{First: &none})
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.d.Bindings(as(t.Context(), "user:stranger"), BindingsInput{First: &none})
	wantCode(t, err, problem.InvalidInput)
}

// With many rows of many tenants no page reads a whole table.
func TestPagesOfBindingsUseIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by)
		SELECT 'pacct_' || n, 't' || n % 2000, 'sim', 'n' || n, '' FROM generate_series(1, 20000) n`)
	b.exec(t, `INSERT INTO pools (id, tenant_id, name, class, agent)
		SELECT 'pool_' || n, 't' || n % 2000, 'n' || n, 'vps', 'none' FROM generate_series(1, 20000) n`)
	b.exec(t, `INSERT INTO role_bindings (subject, role, object, effect)
		SELECT 'user:' || n, 'provider-viewer', 'compute-tenant/t' || n % 2000, 'allow' FROM generate_series(1, 50000) n`)
	b.exec(t, `INSERT INTO role_bindings (subject, role, object, effect)
		SELECT 'user:' || n, 'provider-viewer', 'compute-provider-account/pacct_' || n % 20000, 'allow' FROM generate_series(1, 50000) n`)
	b.insert(t, allow("user:root", "fleet-admin", "compute-fleet"), allow("user:admin", "tenant-admin", "compute-tenant/t7"))
	b.exec(t, "ANALYZE role_bindings, provider_accounts, pools")
	b.db.ScopeBy(b.d.Scope)
	pages := new(pageQueries)
	b.db.AddQueryHook(pages)
	tenant, subject, one := "t7", "user:7", 1
	for _, in := range []BindingsInput{{TenantID: &tenant}, {TenantID: &tenant, Subject: &subject}, {}, {Subject: &subject}} {
		for _, caller := range []string{"user:root", "user:admin"} {
			if in.TenantID == nil && caller == "user:admin" {
				continue
			}
			in.First, in.After = &one, nil
			if _, in.After = b.page(t, b.d, caller, in); in.After != nil {
				b.page(t, b.d, caller, in)
			}
			taken := pages.take()
			if len(taken) == 0 {
				t.Error("no page was read")
			}
			for _, q := range taken {
				var plan []string
				if err := b.db.NewRaw("EXPLAIN ?", bun.Safe(q)).Scan(as(t.Context(), caller), &plan); err != nil {
					t.Fatal(err)
				}
				text := strings.Join(plan, "\n")
				for _, table := range []string{"role_bindings", "provider_accounts", "pools"} {
					if strings.Contains(text, "Seq Scan on "+table) {
						t.Errorf("%s reads all of %s for\n%s\n%s", caller, table, q, text)
					}
				}
			}
		}
	}
}

// pageQueries keeps the statements that read pages.
type pageQueries struct {
	mu      sync.Mutex
	queries []string
}

func (p *pageQueries) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (p *pageQueries) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(e.Query, "SELECT") && strings.Contains(e.Query, "ORDER BY object, subject, role, effect") {
		p.queries = append(p.queries, e.Query)
	}
}

func (p *pageQueries) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.queries
	p.queries = nil
	return taken
}
