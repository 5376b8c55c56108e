package provideraccount

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"better/compute/authz"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/serverkey"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
)

func TestStamp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret := func(name string) {
		t.Helper()
		_, err := b.db.NewRaw(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t1', ?, 'k', '')
			ON CONFLICT (tenant_id, name) DO UPDATE SET updated_at = clock_timestamp()`, name).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	stamp := func(a *model.ProviderAccount) string {
		t.Helper()
		s, err := b.Stamp(t.Context(), b.db.DB, a)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	secret("mine")
	a := b.create(t, "main")
	updated, err := b.Update(admin(t), update(a, `{"apiToken":"secret://mine"}`))
	if err != nil {
		t.Fatal(err)
	}
	before := stamp(a)
	a = updated.ProviderAccount
	first := stamp(a)
	if before == first {
		t.Error("an update keeps the stamp")
	}
	secret("other")
	if again := stamp(a); again != first {
		t.Errorf("another secret changes the stamp from %s to %s", first, again)
	}
	secret("mine")
	if again := stamp(a); again == first {
		t.Error("a new value of the secret keeps the stamp")
	}
	if err := b.clients.stamps.keeps(AtStamp(t.Context(), stamp(a)), b.db.DB, a, resolved{}); err != nil {
		t.Errorf("a call at the present stamp: %v", err)
	}
	if err := b.clients.stamps.keeps(AtStamp(t.Context(), first), b.db.DB, a, resolved{}); provider.ClassOf(err) != provider.Unavailable || err == nil {
		t.Errorf("a call at a stamp of before: %v", err)
	}
	if err := b.clients.stamps.keeps(t.Context(), b.db.DB, a, resolved{}); err != nil {
		t.Errorf("a call that asks for no stamp: %v", err)
	}
}

// A variable is another project's as soon as its value is, in the replica that was started with it, and what is stored does not tell the value.
func TestStampOfVariables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	replica := func(values map[string]string) func(config string) string {
		s := stamps{key: serverkey.New(db, "account stamp"), secrets: secret.New(secret.Deps{
			DB: db, Authz: decider, EnvAllow: []string{"A", "B"}, LookupEnv: func(name string) (string, bool) { v, ok := values[name]; return v, ok },
		})}
		return func(config string) string {
			t.Helper()
			stamp, err := s.of(t.Context(), db.DB, &model.ProviderAccount{TenantID: "t1", Version: 1, Config: model.JSON(config)}, resolved{})
			if err != nil {
				t.Fatal(err)
			}
			return stamp
		}
	}
	one, same := replica(map[string]string{"A": "project-1", "B": "x"}), replica(map[string]string{"A": "project-1", "B": "y"})
	other, unset := replica(map[string]string{"A": "project-2"}), replica(nil)
	const config = `{"apiToken":"env://A"}`
	if one(config) != same(config) {
		t.Error("replicas with one value have two stamps")
	}
	if one(config) == other(config) || one(config) == unset(config) || other(config) == unset(config) {
		t.Errorf("another value keeps the stamp: %s %s %s", one(config), other(config), unset(config))
	}
	both := `{"a":"env://A","b":"env://B"}`
	if one(both) == same(both) || one(both) != one(`{"b":"env://B","a":"env://A"}`) {
		t.Error("of two variables not both count, or their order does")
	}
	if strings.Contains(one(config), "project") || one(`{}`) != other(`{}`) {
		t.Errorf("stamps are %s and %s", one(config), one(`{}`))
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	stored, elsewhere := references(model.JSON(`{"a":"secret://one","b":[{"c":"secret://two"},"env://X"],"d":"vault://p#f","e":"secret://","n":1,"z":null}`))
	slices.Sort(stored)
	if !slices.Equal(stored, []string{"one", "two"}) || !slices.Equal(elsewhere, []string{"env://X", "vault://p#f"}) {
		t.Errorf("references = %v, %v", stored, elsewhere)
	}
}
