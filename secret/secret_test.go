package secret

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret/vault/vaulttest"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

const canary = "canary-5f1d-value"

type bundle struct {
	*Service
	db  *postgres.DB
	env map[string]string
}

// setup gives a service with a key, two variables of which one is allowed, and a manager and a viewer of tenant t1.
func setup(t *testing.T) *bundle {
	t.Helper()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = authz.EnsureBindings(t.Context(), db, []model.RoleBinding{
		{Subject: "user:manager", Role: "provider-manager", Object: "compute-tenant/t1", Effect: model.Allow},
		{Subject: "user:manager", Role: "provider-manager", Object: "compute-tenant/t2", Effect: model.Allow},
		{Subject: "user:viewer", Role: "provider-viewer", Object: "compute-tenant/t1", Effect: model.Allow},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{db: db, env: map[string]string{"ALLOWED": canary, "DATABASE_URL": canary}}
	b.Service = New(Deps{DB: db, Authz: decider, Key: newKey(t), EnvAllow: []string{"ALLOWED", "UNSET"}, LookupEnv: b.lookup})
	return b
}

func (b *bundle) lookup(name string) (string, bool) {
	v, ok := b.env[name]
	return v, ok
}

func newKey(t testing.TB) *Key {
	t.Helper()
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw)
	key, err := NewKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func as(ctx context.Context, subject string) context.Context {
	return authz.WithActor(ctx, authz.Actor{Subject: subject})
}

func (b *bundle) put(t testing.TB, tenantID, name, value string) {
	t.Helper()
	_, err := b.Put(as(t.Context(), "user:manager"), model.PutSecretInput{TenantID: tenantID, Name: name, Value: value})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) wantUnresolved(t testing.TB, tenantID, reference string) {
	t.Helper()
	value, err := b.Resolve(t.Context(), tenantID, reference)
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != provider.SecretUnresolved {
		t.Fatalf("%s: got %v, %v", reference, value.Reveal(), err)
	}
	if strings.Contains(err.Error(), canary) {
		t.Fatalf("%s: the error shows the value: %v", reference, err)
	}
}

func TestValueShowsNothing(t *testing.T) {
	t.Parallel()
	v := NewValue(canary)
	holder := struct {
		V Value
		P *Value
		m map[string]Value
	}{v, &v, map[string]Value{"x": v}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "p", &v, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "p", &v, "holder", holder)
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := v.MarshalText()
	out := []string{log.String(), string(asJSON), string(text), v.String(), fmt.Errorf("failed: %w, %v", errors.New("x"), v).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%10.3s"} {
		out = append(out, fmt.Sprintf(verb, v), fmt.Sprintf(verb, &v), fmt.Sprintf(verb, holder), fmt.Sprintf(verb, &holder))
	}
	for _, s := range out {
		if strings.Contains(s, canary) || strings.Contains(s, fmt.Sprintf("%x", canary)) {
			t.Errorf("shown in %q", s)
		}
	}
	if v.Reveal() != canary || (Value{}).Reveal() != "" {
		t.Error("Reveal gives something else")
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	multiLine := "-----BEGIN KEY-----\r\nabc\n\tdef\n-----END KEY-----"
	for given, want := range map[string]string{
		canary:                        canary,
		" \t\r\n" + canary + "\v\f\n": canary,
		multiLine + "\n":              multiLine,
		"a b":                         "a b",
		strings.Repeat("x", 64<<10):   strings.Repeat("x", 64<<10),
	} {
		b.put(t, "t1", "sim", given)
		got, err := b.Resolve(t.Context(), "t1", "secret://sim")
		if err != nil || got.Reveal() != want {
			t.Errorf("%.40q came back as %.40q, %v", given, got.Reveal(), err)
		}
	}
}

func TestPutRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := as(t.Context(), "user:manager")
	for name, c := range map[string]struct {
		in   model.PutSecretInput
		want []string
	}{
		"everything":       {model.PutSecretInput{TenantID: "t 1", Name: "A", Value: ""}, []string{"tenantId", "name", "value"}},
		"a name too long":  {model.PutSecretInput{TenantID: "t1", Name: strings.Repeat("a", 64), Value: "x"}, []string{"name"}},
		"a new line":       {model.PutSecretInput{TenantID: "t1\n", Name: "a\n", Value: "x"}, []string{"tenantId", "name"}},
		"only white space": {model.PutSecretInput{TenantID: "t1", Name: "a", Value: " \n"}, []string{"value"}},
		"a control":        {model.PutSecretInput{TenantID: "t1", Name: "a", Value: canary + "\x1b"}, []string{"value"}},
		"a NUL":            {model.PutSecretInput{TenantID: "t1", Name: "a", Value: canary + "\x00x"}, []string{"value"}},
		"not ASCII":        {model.PutSecretInput{TenantID: "t1", Name: "a", Value: canary + "é"}, []string{"value"}},
		"more than 64 KiB": {model.PutSecretInput{TenantID: "t1", Name: "a", Value: strings.Repeat("x", 64<<10+1)}, []string{"value"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Put(ctx, c.in)
			wantCode(t, err, problem.InvalidInput)
			got := []string{}
			for _, i := range problem.From(err).Details["issues"].([]problem.Issue) {
				got = append(got, i.Path)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(fmt.Sprint(err), canary) {
				t.Error("the error shows the value")
			}
		})
	}
	if n := count(t, b.db, "secrets"); n != 0 {
		t.Errorf("%d secrets are stored", n)
	}
}

func wantCode(t testing.TB, err error, code problem.Code) {
	t.Helper()
	if !problem.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func count(t testing.TB, db *postgres.DB, table string) (n int) {
	t.Helper()
	if err := db.NewRaw("SELECT count(*) FROM ?", bun.Ident(table)).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhoMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := model.PutSecretInput{TenantID: "t1", Name: "a", Value: "x"}
	for subject, want := range map[string]problem.Code{"": problem.Unauthenticated, "user:viewer": problem.Forbidden, "user:nobody": problem.Forbidden} {
		ctx := t.Context()
		if subject != "" {
			ctx = as(ctx, subject)
		}
		_, err := b.Put(ctx, put)
		wantCode(t, err, want)
		_, err = b.Delete(ctx, model.DeleteSecretInput{TenantID: "t1", Name: "a"})
		wantCode(t, err, want)
	}
	_, err := b.List(as(t.Context(), "user:nobody"), "t1")
	wantCode(t, err, problem.Forbidden)
	_, err = b.List(t.Context(), "")
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.List(as(t.Context(), "user:nobody"), "")
	wantCode(t, err, problem.InvalidInput)
}

func TestListAndDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	viewer, manager := as(t.Context(), "user:viewer"), as(t.Context(), "user:manager")
	if secrets, err := b.List(viewer, "t1"); err != nil || secrets == nil || len(secrets) != 0 {
		t.Fatalf("an empty store lists %v, %v", secrets, err)
	}
	b.put(t, "t1", "b", "x")
	b.put(t, "t1", "a", "x")
	b.put(t, "t2", "other", "x")
	b.put(t, "t1", "b", canary)
	secrets, err := b.List(viewer, "t1")
	if err != nil || len(secrets) != 2 || secrets[0].Name != "a" || secrets[1].Name != "b" {
		t.Fatalf("got %v, %v", secrets, err)
	}
	if !secrets[1].UpdatedAt.After(secrets[1].CreatedAt.Time) {
		t.Error("a second put leaves updatedAt as it was")
	}
	for _, want := range []bool{true, false} {
		deleted, err := b.Delete(manager, model.DeleteSecretInput{TenantID: "t1", Name: "b"})
		if err != nil || deleted.Deleted != want {
			t.Errorf("got %v, %v, want %v", deleted, err, want)
		}
	}
	b.wantUnresolved(t, "t1", "secret://b")
	var actions []string
	err = b.db.NewRaw("SELECT action || ' ' || outcome FROM audit_log WHERE action LIKE '%Secret' ORDER BY id").Scan(t.Context(), &actions)
	put := putAction + " allowed"
	if diff := cmp.Diff([]string{put, put, put, put, deleteAction + " allowed", deleteAction + " replayed"}, actions); diff != "" || err != nil {
		t.Error("audit rows", err, diff)
	}
}

func TestReferencesThatDoNotResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "t1", "sim", canary)
	b.env["EMPTY"], b.env["BAD"] = "  ", canary+"\x7f"
	b.Service.env["EMPTY"], b.Service.env["BAD"] = true, true
	for _, reference := range []string{
		"", canary, "secret://SIM", "secret://none", "secret://../sim", "env://DATABASE_URL", "env://UNSET", "env://EMPTY", "env://BAD",
		"env://allowed", "vault://sim#token",
	} {
		b.wantUnresolved(t, "t1", reference)
	}
	b.wantUnresolved(t, "t2", "secret://sim")
	if v, err := b.Resolve(t.Context(), "t2", "env://ALLOWED"); err != nil || v.Reveal() != canary {
		t.Errorf("the allowed variable gives %v", err)
	}
	_, notAllowed := b.Resolve(t.Context(), "t1", "env://DATABASE_URL")
	_, notSet := b.Resolve(t.Context(), "t1", "env://UNSET")
	if strings.ReplaceAll(notAllowed.Error(), "DATABASE_URL", "UNSET") != notSet.Error() {
		t.Error("a reference can tell what the server's environment has")
	}
}

func TestWithoutKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "t1", "sim", canary)
	b.Service.key = nil
	_, err := b.Put(as(t.Context(), "user:manager"), model.PutSecretInput{TenantID: "t1", Name: "a", Value: "x"})
	wantCode(t, err, problem.InvalidConfig)
	b.wantUnresolved(t, "t1", "secret://sim")
	b.Service.key = newKey(t)
	b.wantUnresolved(t, "t1", "secret://sim")
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://localhost:1/none?connect_timeout=1", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b.Service.db = db
	_, err = b.Resolve(t.Context(), "t1", "secret://sim")
	if provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("got %v", err)
	}
}

// TestSealedBytes proves that what is stored opens only where it was sealed, and as it was sealed.
func TestSealedBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "t1", "sim", canary)
	b.put(t, "t1", "other", canary)
	row, found, err := readSealed(t.Context(), b.db, "t1", "sim")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	other, _, err := readSealed(t.Context(), b.db, "t1", "other")
	if err != nil || bytes.Equal(row.Sealed, other.Sealed) {
		t.Error("equal values are sealed alike")
	}
	if bytes.Contains(row.Sealed, []byte(canary)) {
		t.Fatal("the value is stored in clear")
	}
	store := func(tenantID, name string, sealed []byte) {
		t.Helper()
		_, err := b.db.NewRaw(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant_id, name) DO UPDATE SET sealed = excluded.sealed`, tenantID, name, row.KeyID, sealed).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	store("t2", "sim", row.Sealed)
	b.wantUnresolved(t, "t2", "secret://sim")
	store("t1", "moved", row.Sealed)
	b.wantUnresolved(t, "t1", "secret://moved")
	for i := range row.Sealed {
		tampered := bytes.Clone(row.Sealed)
		tampered[i] ^= 1
		if _, err := b.key.open("t1", "sim", sealedRow{row.KeyID, tampered}); err == nil {
			t.Fatalf("a flipped bit in byte %d goes unnoticed", i)
		}
	}
	for _, cut := range [][]byte{nil, {1}, row.Sealed[:24], row.Sealed[:len(row.Sealed)-1]} {
		store("t1", "sim", append([]byte{}, cut...))
		b.wantUnresolved(t, "t1", "secret://sim")
	}
	store("t1", "sim", row.Sealed)
	if v, err := b.Resolve(t.Context(), "t1", "secret://sim"); err != nil || v.Reveal() != canary {
		t.Errorf("what is put back does not resolve: %v", err)
	}
	if bytes.Equal(b.key.context("ab", "c"), b.key.context("a", "bc")) {
		t.Error("two places read alike")
	}
}

// TestNoPlaintextInStatements listens to every statement that Bun sends.
func TestNoPlaintextInStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener := &statements{}
	b.db.DB.AddQueryHook(listener)
	b.put(t, "t1", "sim", canary)
	if _, err := b.Resolve(t.Context(), "t1", "secret://sim"); err != nil {
		t.Fatal(err)
	}
	all := listener.all()
	if !strings.Contains(all, "INSERT INTO secrets") {
		t.Fatal("the listener hears nothing")
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary)} {
		if strings.Contains(all, form) {
			t.Error("a statement shows the value")
		}
	}
}

type statements struct {
	mu   sync.Mutex
	seen strings.Builder
}

func (s *statements) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (s *statements) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.WriteString(e.Query + "\n")
}

func (s *statements) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret.key")
	if _, err := LoadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write := func(path string, raw []byte) string {
		t.Helper()
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	raw := bytes.Repeat([]byte{7}, keySize)
	key, err := LoadKey(write(path, raw))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := LoadKey(path); err != nil || again.id != key.id {
		t.Errorf("the file gives another key: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil {
		t.Error("a key that the group can read is taken")
	}
	for _, size := range []int{0, 31, 33, 64} {
		if _, err := LoadKey(write(fmt.Sprintf("%s-%d", path, size), bytes.Repeat([]byte{7}, size))); err == nil {
			t.Errorf("a key of %d bytes is taken", size)
		}
	}
}

// A tenant's own name for a variable counts for that tenant alone, and before a variable of that name that every tenant may read.
func TestVariablesOfTenants(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ACME_TOKEN": "of acme", "TOKEN": "of all", "DATABASE_URL": canary}
	s := New(Deps{
		DB:       pgtest.New(t),
		EnvAllow: []string{"TOKEN"}, EnvOf: map[string]map[string]string{"acme": {"TOKEN": "ACME_TOKEN", "UNSET": "NOT_THERE"}},
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	for _, c := range []struct{ tenant, reference, want string }{
		{"acme", "env://TOKEN", "of acme"},
		{"other", "env://TOKEN", "of all"},
		{"other", "env://ACME_TOKEN", ""},
		{"acme", "env://ACME_TOKEN", ""},
		{"acme", "env://UNSET", ""},
		{"acme", "env://DATABASE_URL", ""},
	} {
		value, err := s.Resolve(t.Context(), c.tenant, c.reference)
		if value.Reveal() != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s of %s: %q, %v; want %q", c.reference, c.tenant, value.Reveal(), err, c.want)
		}
	}
}

// Whoever gets past the decisions to another tenant finds nothing there, wherever the tenant keeps it, and cannot tell it from what is not there.
func TestNothingOfATenantThatTheContextMayNotSee(t *testing.T) {
	t.Parallel()
	b, asked := setup(t), vaulttest.New(t)
	b.put(t, "t2", "sim", canary)
	b.envOf = map[string]map[string]string{"t2": {"THEIRS": "ALLOWED"}}
	asked.Put("t2/clouds/hetzner", canary)
	b.vault = asked.Client(t)
	ctx := postgres.WithScope(t.Context(), postgres.Tenants("t1", "t3"))
	for held, absent := range map[string]string{
		"secret://sim": "secret://none", "env://THEIRS": "env://NONE", "vault://clouds/hetzner#token": "vault://none#token",
	} {
		_, err := b.Resolve(ctx, "t2", held)
		_, want := b.Resolve(ctx, "t1", absent)
		if err == nil || strings.ReplaceAll(err.Error(), held, absent) != want.Error() || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v; want as of what is not there: %v", held, err, want)
		}
	}
	for _, req := range asked.Taken() {
		if !isInside(req, "/v1/secret/data/compute/t1/") {
			t.Errorf("the vault was asked for %s", req.RequestURI)
		}
	}
	ctx = postgres.WithScope(t.Context(), postgres.Tenants("t2"))
	for _, reference := range []string{"secret://sim", "env://THEIRS", "vault://clouds/hetzner#token"} {
		if value, err := b.Resolve(ctx, "t2", reference); err != nil || value.Reveal() != canary {
			t.Errorf("%s where it may be seen: %v", reference, err)
		}
	}
}

// While the key is replaced, a server that knows both reads everything, and so does one that has only the new key once all is sealed anew.
func TestReseal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.key, newKey(t)
	const secrets = 2*resealedAtOnce + 7
	for i := range secrets {
		b.put(t, []string{"t1", "t2"}[i%2], fmt.Sprintf("s%d", i), fmt.Sprintf("value %d", i))
	}
	lost := newKey(t).seal("t1", "lost", canary)
	owner := pgtest.Owner(t, b.db)
	_, err := owner.NewRaw(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t1', 'lost', ?, ?)`, lost.KeyID, lost.Sealed).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	times := func() (at string) {
		if err := owner.NewRaw("SELECT md5(string_agg(updated_at::text, ' ' ORDER BY tenant_id, name)) FROM secrets").Scan(t.Context(), &at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	reads := func(what string, s *Service) {
		t.Helper()
		for i := range secrets {
			value, err := s.Resolve(t.Context(), []string{"t1", "t2"}[i%2], fmt.Sprintf("secret://s%d", i))
			if err != nil || value.Reveal() != fmt.Sprintf("value %d", i) {
				t.Fatalf("%s: s%d: %v", what, i, err)
			}
		}
	}
	before := times()
	both := New(Deps{DB: b.db, Authz: b.authz, Key: second, OldKeys: []*Key{newKey(t), first}})
	reads("both keys, before", both)
	for round, want := range []Resealed{{Done: secrets, Unopened: 1}, {Unopened: 1}} {
		if got, err := both.Reseal(t.Context()); err != nil || got != want {
			t.Fatalf("round %d: %+v, %v; want %+v", round, got, err, want)
		}
	}
	if times() != before {
		t.Error("secrets count as written again")
	}
	reads("both keys, after", both)
	reads("the new key alone", New(Deps{DB: b.db, Authz: b.authz, Key: second}))
	if _, err := New(Deps{DB: b.db, Authz: b.authz, Key: first}).Resolve(t.Context(), "t1", "secret://s0"); err == nil {
		t.Error("the old key still opens something")
	}
}
