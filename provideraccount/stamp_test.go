package provideraccount

import (
	"slices"
	"testing"

	"better/compute/model"
	"better/compute/provider"
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
	if err := keepsStamp(AtStamp(t.Context(), stamp(a)), b.db.DB, a); err != nil {
		t.Errorf("a call at the present stamp: %v", err)
	}
	if err := keepsStamp(AtStamp(t.Context(), first), b.db.DB, a); provider.ClassOf(err) != provider.Unavailable || err == nil {
		t.Errorf("a call at a stamp of before: %v", err)
	}
	if err := keepsStamp(t.Context(), b.db.DB, a); err != nil {
		t.Errorf("a call that asks for no stamp: %v", err)
	}
}

func TestStoredSecrets(t *testing.T) {
	t.Parallel()
	got := storedSecrets(model.JSON(`{"a":"secret://one","b":[{"c":"secret://two"},"env://X"],"d":"vault://p#f","e":"secret://","n":1,"z":null}`))
	slices.Sort(got)
	if !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("storedSecrets = %v", got)
	}
}
