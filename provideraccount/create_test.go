package provideraccount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestCreateStoresTheAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := model.CreateProviderAccountInput{
		TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: new("k"),
		Config: model.JSON(`{"project" : "p", "apiToken":"secret://sim", "n": 1.50, "list": [1e2, {"b":1,"a":2}]}`),
	}
	created, err := b.Create(as(t.Context(), "user:manager"), in)
	if err != nil {
		t.Fatal(err)
	}
	a := created.ProviderAccount
	if a.TenantID != "t1" || a.Provider != "sim" || a.Name != "main" || a.Version != 1 || created.Replayed || a.CreatedBy != "user:manager" ||
		a.CreatedAt.IsZero() || !a.UpdatedAt.Equal(a.CreatedAt.Time) || len(a.ID) != len("pacct_")+52 {
		t.Errorf("got %+v", created)
	}
	got, err := b.Get(as(t.Context(), "user:viewer"), GetInput{"t1", a.ID})
	if diff := cmp.Diff(a, got); diff != "" || err != nil {
		t.Error("get differs from create", err, diff)
	}
	replayed, err := b.Create(as(t.Context(), "user:manager"), in)
	if err != nil || !replayed.Replayed {
		t.Fatalf("a repeat gives %v, %v", replayed, err)
	}
	if diff := cmp.Diff(a, replayed.ProviderAccount); diff != "" {
		t.Error("the repeat differs", diff)
	}
	var outcomes []string
	err = b.db.NewRaw(`SELECT outcome FROM audit_log WHERE action = ? AND actor = 'user:manager' AND object = ? ORDER BY id`,
		createAction, "compute-provider-account/"+a.ID).Scan(t.Context(), &outcomes)
	if diff := cmp.Diff([]string{"allowed", "replayed"}, outcomes); diff != "" || err != nil {
		t.Error("audit rows", err, diff)
	}
	if n := b.count(t, `SELECT count(*) FROM audit_log WHERE details::text LIKE '%secret://%'`); n != 0 {
		t.Error("an audit row shows the config")
	}
}

// TestConfigsComeBackAsTheyWere stores texts that SQL or JSON could trip over.
func TestConfigsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	for _, text := range []string{`'`, `''; --`, `\'`, `\\`, `"`, `?`, `?0 ??`, `$1 %s`, "\u2028\u0001\t", "é😀", `<&>`, `{"a":1}`} {
		raw, err := json.Marshal(map[string]any{"list": []any{text, map[string]any{text: text}}})
		if err != nil {
			t.Fatal(err)
		}
		updated, err := b.Update(admin(t), update(a, string(raw)))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var want, got any
		if err := errors.Join(json.Unmarshal(raw, &want), json.Unmarshal(updated.ProviderAccount.Config, &got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCreateWithoutConfigOrKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	if string(a.Config) != "{}" || len(a.ID) != len("pacct_")+26 {
		t.Errorf("got %+v", a)
	}
}

func TestCreateChecksShapesAllAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := func(n int) string { return strings.Repeat("a", n) }
	for name, c := range map[string]struct {
		in   model.CreateProviderAccountInput
		want []string
	}{
		"nothing":    {model.CreateProviderAccountInput{}, []string{"tenantId", "provider", "name"}},
		"everything": {model.CreateProviderAccountInput{TenantID: "t 1", Provider: "Sim", Name: "-", IdempotencyKey: new("a b")}, []string{"tenantId", "provider", "name", "idempotencyKey"}},
		"too long": {
			model.CreateProviderAccountInput{TenantID: long(129), Provider: long(65), Name: long(64), IdempotencyKey: new(long(129))},
			[]string{"tenantId", "provider", "name", "idempotencyKey"},
		},
		"new lines": {
			model.CreateProviderAccountInput{TenantID: "t1\n", Provider: "sim\n", Name: "a\n", IdempotencyKey: new("k\n")},
			[]string{"tenantId", "provider", "name", "idempotencyKey"},
		},
		"an empty key":  {model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "a", IdempotencyKey: new("")}, []string{"idempotencyKey"}},
		"other scripts": {model.CreateProviderAccountInput{TenantID: "tеnant", Provider: "sim", Name: "é"}, []string{"tenantId", "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Create(admin(t), c.in)
			wantIssues(t, err, c.want...)
		})
	}
	b.bind(t, binding("user:long", "tenant-admin", "compute-tenant/"+long(128), model.Allow))
	_, err := b.Create(as(t.Context(), "user:long"), model.CreateProviderAccountInput{
		TenantID: long(128), Provider: "sim", Name: long(63), IdempotencyKey: new(long(110) + "azAZ09._~:/+=-"),
	})
	if err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

func TestCreateChecksConfig(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "nowhere", Name: "main", IdempotencyKey: new("k")}
	_, err := b.Create(admin(t), in)
	wantIssues(t, err, "provider")
	if diff := cmp.Diff([]string{"other", "sim"}, problem.From(err).Details["known"]); diff != "" {
		t.Error("known", diff)
	}
	in.Provider = "sim"
	for config, want := range map[string][]string{
		`{"apiToken":"` + canary + `","project":"a project with a long name","more":1}`: {"/apiToken", "/project", "/more"},
		`{"list":[{"Password":42}]}`:               {"/list/0/Password"},
		`{"project":"https://u:` + canary + `@h"}`: {"/project"},
		`[]`:          {""},
		`null`:        {""},
		`{"n":1e400}`: {"/n"},
	} {
		in.Config = model.JSON(config)
		_, err := b.Create(admin(t), in)
		wantIssues(t, err, want...)
		if strings.Contains(fmt.Sprintf("%v %v", err, problem.From(err).Details), canary) {
			t.Errorf("%s: the error shows the value", config)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM provider_accounts`); n != 0 {
		t.Fatalf("a refused create stored %d accounts", n)
	}
	in.Config = nil
	if created, err := b.Create(admin(t), in); err != nil || created.Replayed {
		t.Errorf("a refused create kept name or key: %v, %v", created, err)
	}
}

func TestCreateOrderOfChecks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := model.CreateProviderAccountInput{TenantID: "!", Provider: "!", Name: "!"}
	_, err := b.Create(t.Context(), bad)
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Create(as(t.Context(), "user:nobody"), bad)
	wantCode(t, err, problem.InvalidInput)
	unknown := model.CreateProviderAccountInput{TenantID: "t1", Provider: "nowhere", Name: "a", Config: model.JSON(`[]`)}
	_, err = b.Create(as(t.Context(), "user:viewer"), unknown)
	p := wantCode(t, err, problem.Forbidden)
	if diff := cmp.Diff(map[string]any{"permission": "compute:providers:manage", "object": "compute-tenant/t1"}, p.Details); diff != "" {
		t.Error(diff)
	}
	taken := b.create(t, "taken")
	_, err = b.Create(admin(t), model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: taken.Name, Config: model.JSON(`[]`)})
	wantCode(t, err, problem.InvalidInput)
	_, err = b.Create(admin(t), model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: taken.Name})
	wantCode(t, err, problem.Conflict)
	b.createIn(t, "t2", taken.Name) // a name counts within its tenant
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	manager := as(t.Context(), "user:manager")
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: new("k")}
	created, err := b.Create(manager, in)
	if err != nil {
		t.Fatal(err)
	}
	id := created.ProviderAccount.ID

	_, err = b.Update(manager, model.UpdateProviderAccountInput{TenantID: "t1", AccountID: id, Config: model.JSON(`{"project":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `DELETE FROM role_bindings WHERE subject = 'user:manager'`)
	in.Config = model.JSON(`{"project":"of the repeat, not looked at"}`)
	again, err := b.Create(manager, in)
	if err != nil || !again.Replayed || again.ProviderAccount.Version != 2 || string(again.ProviderAccount.Config) != `{"project": "x"}` {
		t.Errorf("a repeat without rights gives %+v, %v; want the account as it is now", again, err)
	}
	for name, change := range map[string]func(*model.CreateProviderAccountInput){
		"another name":     func(in *model.CreateProviderAccountInput) { in.Name = "x" },
		"another provider": func(in *model.CreateProviderAccountInput) { in.Provider = "other" },
		"an unknown one":   func(in *model.CreateProviderAccountInput) { in.Provider = "nowhere" },
	} {
		other := in
		change(&other)
		_, err := b.Create(manager, other)
		if !problem.Is(err, problem.Conflict) {
			t.Errorf("%s under the key: %v", name, err)
		}
	}
	_, err = b.Create(as(t.Context(), "user:nobody"), in)
	wantCode(t, err, problem.Forbidden) // the key is the manager's own
	other := in
	other.Name, other.Config = "second", nil
	second, err := b.Create(admin(t), other)
	if err != nil || second.ProviderAccount.ID == id {
		t.Errorf("another caller's key: %v, %v", second, err)
	}
	elsewhere := in
	elsewhere.TenantID = "t2"
	_, err = b.Create(manager, elsewhere)
	wantCode(t, err, problem.Forbidden)

	if _, err := b.Delete(admin(t), model.DeleteProviderAccountInput{TenantID: "t1", AccountID: id}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Create(manager, in)
	wantCode(t, err, problem.Forbidden) // nothing is stored under the key any more
}

// Who has lost the right repeats at the price of denials, and fills no log; who has it repeats at will.
func TestReplaysWithoutTheRightAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit = 3
	b.authz.Denials = authz.DenialLimits{PerSecond: 1, AtMost: limit}
	manager := as(t.Context(), "user:manager")
	in := model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: new("k")}
	create := func() error { _, err := b.Create(manager, in); return err }
	for range 3 * limit {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	b.exec(t, `DELETE FROM role_bindings WHERE subject = 'user:manager'`)
	before, answered, refused := b.count(t, "SELECT count(*) FROM audit_log"), 0, 0
	for refused < limit && answered < 1000 {
		if err := create(); err == nil {
			answered++
		} else {
			wantCode(t, err, problem.RateLimited)
			refused++
		}
	}
	if rows := b.count(t, "SELECT count(*) FROM audit_log") - before; refused < limit || answered < limit || rows != answered {
		t.Errorf("%d repeats without a right are answered, %d refused, and %d rows written", answered, refused, rows)
	}
	b.bind(t, binding("user:manager", "provider-manager", "compute-tenant/t1", model.Allow))
	if err := create(); err != nil {
		t.Errorf("with the right again: %v", err)
	}
}

// run calls f n times at once.
func run(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestEqualCreatesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	services := []*bundle{b, b.replica(t)}
	for round := range 5 {
		name := fmt.Sprintf("account-%d", round)
		ids, fresh := make([]string, 64), make([]bool, 64)
		run(64, func(i int) {
			payload, err := services[i%2].Create(admin(t), model.CreateProviderAccountInput{
				TenantID: "t1", Provider: "sim", Name: name, IdempotencyKey: &name,
			})
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			ids[i], fresh[i] = payload.ProviderAccount.ID, !payload.Replayed
		})
		created := 0
		for i := range ids {
			if ids[i] != ids[0] {
				t.Fatalf("callers got different accounts")
			}
			if fresh[i] {
				created++
			}
		}
		if n := b.count(t, `SELECT count(*) FROM provider_accounts WHERE name = ?`, name); n != 1 || created != 1 {
			t.Fatalf("%d accounts, and %d callers were told that theirs is new", n, created)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM audit_log WHERE action = ?`, createAction); n != 5*64 {
		t.Errorf("%d audit rows, want one for each call", n)
	}
}

func TestOneNameWithManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	services := []*bundle{b, b.replica(t)}
	for round := range 5 {
		name := fmt.Sprintf("account-%d", round)
		errs := make([]error, 64)
		run(64, func(i int) {
			var key *string
			if i%3 > 0 {
				key = new(fmt.Sprintf("%s-%d", name, i))
			}
			_, errs[i] = services[i%2].Create(admin(t), model.CreateProviderAccountInput{
				TenantID: "t1", Provider: "sim", Name: name, IdempotencyKey: key,
			})
		})
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				wantCode(t, err, problem.Conflict)
			}
		}
		if n := b.count(t, `SELECT count(*) FROM provider_accounts WHERE name = ?`, name); n != 1 || won != 1 {
			t.Fatalf("%d accounts, %d callers won", n, won)
		}
	}
}

// TestCreateAgainstDelete has names and keys freed while they are asked for.
func TestCreateAgainstDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run(16, func(i int) {
		for round := range 20 {
			key := new(fmt.Sprint((i + round) % 3))
			payload, err := b.Create(admin(t), model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: key})
			if err != nil {
				if !problem.Is(err, problem.Conflict) {
					t.Errorf("create: %v", err)
				}
				continue
			}
			in := model.DeleteProviderAccountInput{TenantID: "t1", AccountID: payload.ProviderAccount.ID}
			if _, err := b.Delete(admin(t), in); err != nil && !problem.Is(err, problem.NotFound) {
				t.Errorf("delete: %v", err)
			}
		}
	})
	if n := b.count(t, `SELECT count(*) FROM provider_accounts`); n > 1 {
		t.Errorf("%d accounts of one name", n)
	}
}

func TestTheCallersContextEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(admin(t))
	cancel()
	_, err := b.Create(ctx, model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main"})
	if err == nil {
		t.Error("a create whose caller is gone succeeds")
	}
	if n := b.count(t, `SELECT count(*) FROM provider_accounts`); n != 0 {
		t.Error("and is stored")
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: "postgres://127.0.0.1:1/none?connect_timeout=1", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := newService(t, db, newCloud("sim"))
	_, err = s.Create(admin(t), model.CreateProviderAccountInput{TenantID: "t1", Provider: "sim", Name: "main", IdempotencyKey: new("k")})
	wantCode(t, err, problem.Unavailable)
	_, err = s.Get(admin(t), GetInput{"t1", "pacct_00000000000000000000000000"})
	wantCode(t, err, problem.Unavailable)
	_, err = s.Account(t.Context(), db.DB, "t1", "x")
	wantCode(t, err, problem.Unavailable)
}
