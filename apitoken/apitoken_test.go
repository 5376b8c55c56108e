package apitoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

type world struct {
	*Service
	db *postgres.DB
}

func setup(t *testing.T, bindings ...string) *world {
	t.Helper()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append([]string{
		"user:root fleet-admin compute-fleet", "user:a tenant-admin compute-tenant/a", "user:b tenant-admin compute-tenant/b",
		"user:viewer provider-viewer compute-tenant/a",
	}, bindings...) {
		f := strings.Fields(b)
		binding := model.RoleBinding{Subject: f[0], Role: f[1], Object: f[2], Effect: model.Allow}
		if len(f) > 3 {
			binding.Effect = model.BindingEffect(f[3])
		}
		if _, err := authz.Grant(t.Context(), db, "service:test", binding); err != nil {
			t.Fatal(err)
		}
	}
	return &world{New(Deps{DB: db, Authz: decider, Cursors: cursor.NewSealer(db), Log: slog.New(slog.DiscardHandler)}), db}
}

func as(ctx context.Context, subject string) context.Context {
	return authz.WithActor(ctx, authz.Actor{Subject: subject})
}

func in(d time.Duration) *model.Time { return new(model.NewTime(time.Now().Add(d))) }

func (w *world) create(t *testing.T, as string, in model.CreateAPITokenInput) *model.CreateAPITokenPayload {
	t.Helper()
	created, err := w.Create(authz.WithActor(t.Context(), authz.Actor{Subject: as}), in)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func TestATokenIsShownOnceAndKeptAsAHash(t *testing.T) {
	t.Parallel()
	w := setup(t)
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci", Description: new("it's \\ ? „x“"), ExpiresAt: in(time.Hour)})
	row := created.APIToken
	if row.Subject != "service:a/ci" || *row.TenantID != "a" || row.CreatedBy != "user:a" || row.Description != "it's \\ ? „x“" || row.LastUsedAt != nil || row.RevokedAt != nil {
		t.Errorf("%+v", row)
	}
	var tables string
	err := w.db.NewRaw("SELECT (SELECT json_agg(t)::text FROM api_tokens t) || (SELECT json_agg(l)::text FROM audit_log l)").Scan(t.Context(), &tables)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(tables, created.Token[len(Prefix):]) || strings.Contains(tables, created.Token[len(Prefix):20]) {
		t.Error("the token is stored")
	}
	h := hashOf(created.Token)
	if !strings.Contains(tables, fmt.Sprintf("%x", h[:])) || !strings.Contains(tables, createAction) || strings.Count(tables, fmt.Sprintf("%x", h[:])) != 1 {
		t.Errorf("neither hash nor audit row as they should be: %s", tables)
	}
	actor, err := w.Authenticate(t.Context(), created.Token)
	if err != nil || actor.Subject != "service:a/ci" || actor.Credential != row.ID || len(actor.Groups) != 0 {
		t.Errorf("%+v, %v", actor, err)
	}
	if off := actor.Expires.Sub(row.ExpiresAt.Time).Abs(); off > time.Minute {
		t.Errorf("ends %v from what the database says", off)
	}
	fleet := w.create(t, "user:root", model.CreateAPITokenInput{Name: "ci"})
	if actor, err := w.Authenticate(t.Context(), fleet.Token); err != nil || actor.Subject != "service:ci" || fleet.APIToken.TenantID != nil || !actor.Expires.IsZero() {
		t.Errorf("of the fleet: %+v, %v", actor, err)
	}
}

func TestCreateSaysAllThatIsWrongAtOnceAndStoresNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, err := w.Create(as(t.Context(), "user:a"), model.CreateAPITokenInput{
		TenantID: new("a/b"), Name: "CI/x", Description: new("\x00" + strings.Repeat("x", 201)), ExpiresAt: in(-time.Second),
	})
	issues, _ := problem.From(err).Details["issues"].([]problem.Issue)
	var paths []string
	for _, i := range issues {
		paths = append(paths, i.Path)
	}
	if got := strings.Join(paths, " "); got != "tenantId name description expiresAt" {
		t.Errorf("%v: %s", err, got)
	}
	for name, c := range map[string]struct {
		as   string
		in   model.CreateAPITokenInput
		code problem.Code
	}{
		"nobody":          {"", model.CreateAPITokenInput{TenantID: new("a"), Name: "x"}, problem.Unauthenticated},
		"a viewer":        {"user:viewer", model.CreateAPITokenInput{TenantID: new("a"), Name: "x"}, problem.Forbidden},
		"another tenant":  {"user:a", model.CreateAPITokenInput{TenantID: new("b"), Name: "x"}, problem.Forbidden},
		"the fleet":       {"user:a", model.CreateAPITokenInput{Name: "x"}, problem.Forbidden},
		"an empty tenant": {"user:root", model.CreateAPITokenInput{TenantID: new(""), Name: "x"}, problem.InvalidInput},
		"the last second": {"user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "x", ExpiresAt: in(-time.Second)}, problem.InvalidInput},
		"the year 1":      {"user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "x", ExpiresAt: new(model.NewTime(time.Time{}))}, problem.InvalidInput},
	} {
		ctx := t.Context()
		if c.as != "" {
			ctx = as(ctx, c.as)
		}
		if _, err := w.Create(ctx, c.in); !problem.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if n := w.count(t, "SELECT count(*) FROM api_tokens"); n != 0 {
		t.Errorf("%d tokens are stored", n)
	}
}

func (w *world) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := w.db.NewRaw(query, args...).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Nobody mints a credential for a service that may do more than they may.
func TestATokenGivesNobodyMoreThanTheyHold(t *testing.T) {
	t.Parallel()
	w := setup(t,
		"service:a/weak provider-viewer compute-tenant/a",
		"service:a/equal tenant-admin compute-tenant/a",
		"service:a/root fleet-admin compute-fleet",
		"service:a/elsewhere provider-viewer compute-tenant/b",
		"service:a/both provider-viewer compute-tenant/a", "service:a/both provider-manager compute-tenant/b",
		"service:a/shared provider-viewer compute-tenant/c", "user:a provider-viewer compute-tenant/c",
		"service:a/denied fleet-admin compute-fleet", "service:a/denied fleet-admin compute-fleet deny",
		"service:a/gone provider-viewer compute-pool/pool_00000000000000000000000000",
		"user:limited tenant-admin compute-tenant/a", "user:limited provider-viewer compute-pool/"+poolOfA+" deny",
		"group:held tenant-admin compute-tenant/a",
	)
	if _, err := w.db.NewRaw("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, 'a', 'p', 'vps-host', 'bcd')", poolOfA).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		as, name string
		ok       bool
	}{
		{"user:a", "nobody", true},
		{"user:a", "weak", true},
		{"user:a", "equal", true},
		{"user:a", "shared", true},
		{"user:a", "root", false},
		{"user:a", "elsewhere", false},
		{"user:a", "both", false},
		{"user:a", "denied", false}, // the denial can be lifted while the token stays
		{"user:a", "gone", false},   // what is not there is the fleet's
		{"user:limited", "nobody", true},
		{"user:limited", "weak", false}, // it could read the pool that its maker must not
		{"user:root", "root", true},
		{"user:root", "gone", true},
	} {
		_, err := w.Create(as(t.Context(), c.as), model.CreateAPITokenInput{TenantID: new("a"), Name: c.name})
		if c.ok && err != nil || !c.ok && !problem.Is(err, problem.Forbidden) {
			t.Errorf("%s for service:a/%s: %v", c.as, c.name, err)
		}
	}
	member := authz.WithActor(t.Context(), authz.Actor{Subject: "user:member", Groups: []string{"group:held"}})
	if _, err := w.Create(member, model.CreateAPITokenInput{TenantID: new("a"), Name: "equal"}); err != nil {
		t.Errorf("what a group holds does not count: %v", err)
	}
	if n := w.count(t, "SELECT count(*) FROM audit_log WHERE action LIKE 'compute:%' AND outcome = 'denied'"); n != 6 {
		t.Errorf("%d denials are in the audit log, want 6", n)
	}
}

const poolOfA = "pool_11111111111111111111111111"

func TestRevokeEndsATokenOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci"})
	id := created.APIToken.ID
	for name, c := range map[string]struct {
		as   string
		in   model.RevokeAPITokenInput
		code problem.Code
	}{
		"a viewer":           {"user:viewer", model.RevokeAPITokenInput{TenantID: new("a"), TokenID: id}, problem.Forbidden},
		"another's":          {"user:b", model.RevokeAPITokenInput{TenantID: new("b"), TokenID: id}, problem.NotFound},
		"the fleet's":        {"user:root", model.RevokeAPITokenInput{TokenID: id}, problem.NotFound},
		"the fleet's, by a":  {"user:a", model.RevokeAPITokenInput{TokenID: id}, problem.Forbidden},
		"one that is absent": {"user:a", model.RevokeAPITokenInput{TenantID: new("a"), TokenID: "tok_00000000000000000000000000"}, problem.NotFound},
		"no id":              {"user:a", model.RevokeAPITokenInput{TenantID: new("a"), TokenID: created.Token}, problem.InvalidInput},
	} {
		if _, err := w.Revoke(as(t.Context(), c.as), c.in); !problem.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := w.Authenticate(t.Context(), created.Token); err != nil {
		t.Fatalf("before it is revoked: %v", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	revoked := 0
	for range 8 {
		wg.Go(func() {
			got, err := w.Revoke(as(t.Context(), "user:a"), model.RevokeAPITokenInput{TenantID: new("a"), TokenID: id})
			if err != nil || got.APIToken.RevokedAt == nil {
				t.Errorf("%+v, %v", got, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Revoked {
				revoked++
			}
		})
	}
	wg.Wait()
	if revoked != 1 {
		t.Errorf("%d of 8 calls revoked it", revoked)
	}
	if _, err := w.Authenticate(t.Context(), created.Token); !errors.Is(err, ErrEnded) {
		t.Errorf("after it was revoked: %v", err)
	}
	if n := w.count(t, "SELECT count(*) FROM audit_log WHERE action = ? AND outcome = 'allowed'", revokeAction); n != 1 {
		t.Errorf("%d revocations in the audit log", n)
	}
}

func TestAuthenticateRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci", ExpiresAt: in(time.Hour)})
	if _, err := w.Authenticate(t.Context(), created.Token[:len(created.Token)-1]+"~"); !errors.Is(err, ErrMalformed) {
		t.Errorf("a typo: %v", err)
	}
	for range 100 {
		if _, err := w.Authenticate(t.Context(), newToken()); !errors.Is(err, ErrUnknown) {
			t.Fatalf("a made-up one: %v", err)
		}
	}
	if n := w.known.Len(); n != 0 {
		t.Errorf("%d made-up tokens are remembered", n)
	}
	if _, err := w.Authenticate(t.Context(), created.Token); err != nil {
		t.Fatal(err)
	}
	// The clock of the database decides, whatever this process remembers.
	if _, err := w.db.NewRaw("UPDATE api_tokens SET expires_at = now() - interval '1 second'").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.Authenticate(t.Context(), created.Token); !errors.Is(err, ErrEnded) {
			t.Errorf("an expired one: %v", err)
		}
	}
	if _, err := w.db.Pool.Exec(t.Context(), asOwner("DELETE FROM api_tokens")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Authenticate(t.Context(), created.Token); !errors.Is(err, ErrUnknown) {
		t.Errorf("one that was deleted: %v", err)
	}
}

// A clock of this process that is wrong does not move the end of a token.
func TestExpiryFollowsTheDatabaseClock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci", ExpiresAt: in(time.Hour)})
	wrong := time.Now().Add(-24 * time.Hour)
	w.now = func() time.Time { return wrong }
	actor, err := w.Authenticate(t.Context(), created.Token)
	if err != nil {
		t.Fatal(err)
	}
	if left := actor.Expires.Sub(wrong); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it is said to last another %v", left)
	}
	for s, want := range map[float64]time.Duration{1.5: 1500 * time.Millisecond, 1e12: 100 * 365 * 24 * time.Hour, -1e12: -100 * 365 * 24 * time.Hour} {
		if got := seconds(s); got != want {
			t.Errorf("%v seconds are %v", s, got)
		}
	}
}

func TestUseIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	defer func() { stop(); <-ran }()
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci"})
	now := time.Now()
	w.now = func() time.Time { return now }
	use := func() {
		if _, err := w.Authenticate(t.Context(), created.Token); err != nil {
			t.Fatal(err)
		}
	}
	before := version(t, w.db)
	use()
	first := w.waitForUse(t, created.APIToken.ID, nil)
	for range 100 {
		use()
	}
	if n := len(w.uses); n != 0 {
		t.Errorf("%d more notes within the minute", n)
	}
	if v := version(t, w.db); v != before {
		t.Errorf("its use moved the policy's version by %d", v-before)
	}
	// A minute later, as far as both clocks can be told.
	if _, err := w.db.NewRaw("UPDATE api_tokens SET last_used_at = last_used_at - interval '2 minutes'").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	moved := first.Add(-2 * time.Minute)
	now = now.Add(time.Minute)
	use()
	w.waitForUse(t, created.APIToken.ID, &moved)
}

// waitForUse waits for a note other than that one.
func (w *world) waitForUse(t *testing.T, id string, other *time.Time) time.Time {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		token, err := one(t.Context(), w.db.DB, "SELECT "+columns+" FROM api_tokens WHERE id = ?", id)
		if err != nil {
			t.Fatal(err)
		}
		if token.LastUsedAt != nil && (other == nil || !token.LastUsedAt.Equal(*other)) {
			return token.LastUsedAt.Time
		}
	}
	t.Fatal("its use was not noted")
	return time.Time{}
}

// Nobody waits for a note, and none fails a request.
func TestUseWithoutAnybodyToNoteIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.uses = make(chan string) // always full
	created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci"})
	if _, err := w.Authenticate(t.Context(), created.Token); err != nil {
		t.Error(err)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var want []string
	for i := range 5 {
		created := w.create(t, "user:a", model.CreateAPITokenInput{TenantID: new("a"), Name: fmt.Sprint("n", i)})
		want = append([]string{created.APIToken.ID}, want...)
	}
	w.create(t, "user:b", model.CreateAPITokenInput{TenantID: new("b"), Name: "n"})
	w.create(t, "user:root", model.CreateAPITokenInput{Name: "n"})
	var got []string
	var after *string
	for {
		page, err := w.Page(as(t.Context(), "user:a"), PageInput{TenantID: new("a"), First: new(2), After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Edges {
			got = append(got, e.Node.ID)
		}
		text, err := json.Marshal(page)
		if err != nil || strings.Contains(string(text), "hash") {
			t.Errorf("%s, %v", text, err)
		}
		if !page.PageInfo.HasNextPage {
			break
		}
		after = page.PageInfo.EndCursor
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if fleet, err := w.Page(as(t.Context(), "user:root"), PageInput{}); err != nil || len(fleet.Edges) != 1 || fleet.Edges[0].Node.TenantID != nil {
		t.Errorf("of the fleet: %+v, %v", fleet, err)
	}
	for name, c := range map[string]struct {
		as   string
		in   PageInput
		code problem.Code
	}{
		"a viewer":         {"user:viewer", PageInput{TenantID: new("a")}, problem.Forbidden},
		"another tenant":   {"user:b", PageInput{TenantID: new("a")}, problem.Forbidden},
		"the fleet":        {"user:a", PageInput{}, problem.Forbidden},
		"too many":         {"user:a", PageInput{TenantID: new("a"), First: new(101)}, problem.InvalidInput},
		"another's cursor": {"user:b", PageInput{TenantID: new("b"), After: after}, problem.InvalidInput},
	} {
		if _, err := w.Page(as(t.Context(), c.as), c.in); !problem.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func TestTheOperatorIssuesAndEndsTokens(t *testing.T) {
	t.Parallel()
	w := setup(t)
	created, err := Issue(t.Context(), w.db, "service:compute-api", model.CreateAPITokenInput{TenantID: new("a"), Name: "ci", ExpiresAt: in(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Authenticate(t.Context(), created.Token); err != nil {
		t.Error(err)
	}
	if _, err := Issue(t.Context(), w.db, "service:compute-api", model.CreateAPITokenInput{Name: "A B"}); !problem.Is(err, problem.InvalidInput) {
		t.Error(err)
	}
	for _, want := range []bool{true, false} {
		if revoked, err := End(t.Context(), w.db, "service:compute-api", created.APIToken.ID); err != nil || revoked != want {
			t.Errorf("%v, %v", revoked, err)
		}
	}
	if _, err := End(t.Context(), w.db, "service:compute-api", "tok_00000000000000000000000000"); !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
	if _, err := w.Authenticate(t.Context(), created.Token); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	all, err := List(t.Context(), w.db)
	if err != nil || len(all) != 1 || all[0].RevokedAt == nil {
		t.Errorf("%+v, %v", all, err)
	}
	if n := w.count(t, "SELECT count(*) FROM audit_log WHERE actor = 'service:compute-api' AND tenant_id = 'a' AND object = 'compute-tenant/a'"); n != 3 {
		t.Errorf("%d rows in the audit log, want 3", n)
	}
}
