package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestScopeDecidesWhatIsSeen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, tenant := range []string{"a", "b", "*", "{}", `q"\`, "x,y"} {
		insertSecretOf(t, db, tenant)
	}
	for name, c := range map[string]struct {
		scope postgres.Scope
		want  []string
	}{
		"all":               {postgres.AllTenants(), []string{"*", "a", "b", `q"\`, "x,y", "{}"}},
		"none":              {postgres.Tenants(), nil},
		"zero":              {postgres.Scope{}, nil},
		"one":               {postgres.Tenants("a"), []string{"a"}},
		"two":               {postgres.Tenants("b", "a"), []string{"a", "b"}},
		"a star":            {postgres.Tenants("*"), []string{"*"}},
		"braces":            {postgres.Tenants("{}"), []string{"{}"}},
		"quotes":            {postgres.Tenants(`q"\`), []string{`q"\`}},
		"a comma":           {postgres.Tenants("x,y"), []string{"x,y"}},
		"what breaks out":   {postgres.Tenants(`a","b`, `"}`, "x", "y"), nil},
		"a NUL":             {postgres.Tenants("a\x00"), []string{"a"}},
		"an empty tenant":   {postgres.Tenants(""), nil},
		"a missing tenant":  {postgres.Tenants("missing"), nil},
		"the word for none": {postgres.Tenants("NULL"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tenantsSeen(t, postgres.WithScope(t.Context(), c.scope), db)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScopeHoldsForWrites(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("a"))
	for _, statement := range []string{
		"UPDATE secrets SET key_id = 'changed'", "DELETE FROM secrets WHERE tenant_id = 'b'",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{
		"INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('b', 'mine', 'k', '')",
		"UPDATE secrets SET tenant_id = 'b'",
	} {
		_, err := db.ExecContext(ctx, statement)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" || !problem.Is(postgres.Translate(err), problem.Unavailable) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	var keys []string
	if err := db.NewRaw("SELECT tenant_id || ' ' || key_id FROM secrets ORDER BY 1").Scan(t.Context(), &keys); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a changed", "b k"}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutAnExplicitScopeTheDatabaseAsks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	if got := tenantsSeen(t, t.Context(), db); len(got) != 2 {
		t.Errorf("without ScopeBy %v are seen", got)
	}
	type caller struct{}
	refused := problem.New(problem.Unavailable, "no rights can be read")
	db.ScopeBy(func(ctx context.Context) (postgres.Scope, error) {
		switch tenant := ctx.Value(caller{}); tenant {
		case nil:
			return postgres.Scope{}, nil
		case "error":
			return postgres.Scope{}, refused
		default:
			return postgres.Tenants(tenant.(string)), nil
		}
	})
	as := func(tenant string) context.Context { return context.WithValue(t.Context(), caller{}, tenant) }
	for name, c := range map[string]struct {
		ctx  context.Context
		want []string
	}{
		"a caller":             {as("a"), []string{"a"}},
		"another":              {as("b"), []string{"b"}},
		"nobody":               {t.Context(), nil},
		"an explicit scope":    {postgres.WithScope(as("a"), postgres.AllTenants()), []string{"a", "b"}},
		"the last one, inside": {postgres.WithScope(postgres.WithScope(as("a"), postgres.AllTenants()), postgres.Tenants("b")), []string{"b"}},
	} {
		if diff := cmp.Diff(c.want, tenantsSeen(t, c.ctx, db)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := db.ExecContext(as("error"), "SELECT 1"); !errors.Is(err, refused) {
		t.Errorf("a scope that cannot be told: %v", err)
	}

	// Who takes a connection from the pool itself says whose rows it is for.
	ctx, err := db.Scoped(as("a"))
	if err != nil {
		t.Fatal(err)
	}
	for ctx, want := range map[context.Context]int{ctx: 1, as("a"): 0} {
		var n int
		if err := db.Pool.QueryRow(ctx, "SELECT count(*) FROM secrets").Scan(&n); err != nil || n != want {
			t.Errorf("the pool itself shows %d rows, want %d: %v", n, want, err)
		}
	}
}

// The scope is found with a query of its own, while the pool has a single connection.
func TestFindingAScopeNeedsNoSecondConnection(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	insertSecretOf(t, db, "a")
	db.ScopeBy(func(ctx context.Context) (postgres.Scope, error) {
		var tenant string
		err := db.NewRaw("SELECT tenant_id FROM secrets").Scan(postgres.WithScope(ctx, postgres.AllTenants()), &tenant)
		return postgres.Tenants(tenant), err
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var g errgroup.Group
	for range 20 {
		g.Go(func() error {
			n, err := db.NewSelect().Table("secrets").Count(ctx)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d rows", n)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestNarrowEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	insertSecretOf(t, db, "a")
	insertSecretOf(t, db, "b")
	ended := errors.New("rolled back")
	for _, end := range []error{nil, ended} {
		err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			if err := postgres.Narrow(ctx, tx, postgres.Tenants("b")); err != nil {
				return err
			}
			var seen []string
			if err := tx.NewRaw("SELECT tenant_id FROM secrets").Scan(ctx, &seen); err != nil || !slices.Equal(seen, []string{"b"}) {
				t.Errorf("narrowed to b, %v are seen: %v", seen, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		if got := tenantsSeen(t, t.Context(), db); len(got) != 2 {
			t.Errorf("afterwards %v are seen", got)
		}
	}
}

// TestPoolNeverLeaksAScope gives few connections to many callers, who end their use of them in every way there is.
func TestPoolNeverLeaksAScope(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const tenants, callers, rounds = 5, 24, 40
	for i := range tenants {
		insertSecretOf(t, db, fmt.Sprint("t", i))
	}
	var looks, leaks atomic.Int64
	var g errgroup.Group
	for range callers {
		g.Go(func() error {
			for range rounds {
				tenant := fmt.Sprint("t", rand.N(tenants))
				ctx := postgres.WithScope(t.Context(), postgres.Tenants(tenant))
				seen, err := useConnection(ctx, db)
				if err != nil {
					return err
				}
				looks.Add(1)
				if !slices.Equal(seen, []string{tenant}) {
					leaks.Add(1)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("scopes looks=%d leaks=%d", looks.Load(), leaks.Load())
	if leaks.Load() != 0 {
		t.Errorf("%d of %d looks saw other rows than their own", leaks.Load(), looks.Load())
	}
}

// useConnection looks, after some use that may have gone wrong.
func useConnection(ctx context.Context, db *postgres.DB) (seen []string, err error) {
	var use func(tx bun.Tx) error
	switch rand.N(6) {
	case 0:
		use = func(bun.Tx) error { return errors.New("rolled back") }
	case 1:
		use = func(tx bun.Tx) error { return postgres.Narrow(ctx, tx, postgres.AllTenants()) }
	case 2:
		use = func(tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT 1 / 0")
			return err
		}
	case 3:
		use = func(tx bun.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(10)")
			return err
		}
	case 4:
		use = func(tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		}
	case 5: // as when a caller gives up while a connection is being made ready for it
		ctx, cancel := context.WithTimeout(ctx, rand.N(300*time.Microsecond))
		defer cancel()
		_, _ = db.ExecContext(ctx, "SELECT 1")
	}
	if use != nil {
		_ = db.RunInTx(ctx, func(_ context.Context, tx bun.Tx) error { return use(tx) })
	}
	err = db.NewRaw("SELECT tenant_id FROM secrets").Scan(ctx, &seen)
	return seen, err
}

func TestWarmConnectionCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("a"))
	look := func() {
		t.Helper()
		if _, err := db.ExecContext(ctx, "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
	look()
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	// The statement before this one, as the server saw it: it is replaced as soon as another arrives.
	watch := connect(t, url)
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	for range 3 {
		before := lastStatement(t, watch, pid)
		look()
		conn, err := db.Pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		conn.Release()
		if last = lastStatement(t, watch, pid); strings.Contains(last, "set_config") || strings.Contains(before, "set_config") {
			t.Errorf("a connection with the same scope was given it again: %s", last)
		}
	}
	ctx = postgres.WithScope(t.Context(), postgres.Tenants("b"))
	conn, err = db.Pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	conn.Release()
	if last = lastStatement(t, watch, pid); !strings.Contains(last, "set_config") {
		t.Errorf("a connection with another scope was not given the new one: %s", last)
	}
}

func insertSecretOf(t *testing.T, db *postgres.DB, tenant string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES (?, 'n', 'k', '')", tenant)
	if err != nil {
		t.Fatal(err)
	}
}

func tenantsSeen(t *testing.T, ctx context.Context, db *postgres.DB) (seen []string) {
	t.Helper()
	if err := db.NewRaw("SELECT tenant_id FROM secrets ORDER BY tenant_id").Scan(ctx, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}
