package audit

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

type world struct {
	*Service
	db *postgres.DB
}

// setup gives a service and these callers: user:root (of the fleet), user:admin (of t1), user:viewer (of t1, without the log),
// user:denied (of t1, and denied again) and user:nobody.
func setup(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bindings := []model.RoleBinding{
		{Subject: "user:root", Role: "fleet-admin", Object: "compute-fleet", Effect: model.Allow},
		{Subject: "user:admin", Role: "tenant-admin", Object: "compute-tenant/t1", Effect: model.Allow},
		{Subject: "user:viewer", Role: "provider-viewer", Object: "compute-tenant/t1", Effect: model.Allow},
		{Subject: "user:denied", Role: "tenant-admin", Object: "compute-tenant/t1", Effect: model.Allow},
		{Subject: "user:denied", Role: "tenant-admin", Object: "compute-tenant/t1", Effect: model.Deny},
	}
	if _, err := db.NewInsert().Model(&bindings).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &world{New(Deps{DB: db, Authz: decider, Cursors: cursor.NewSealer(db)}), db}
}

func as(t *testing.T, subject string) context.Context {
	t.Helper()
	return authz.WithActor(t.Context(), authz.Actor{Subject: subject})
}

func events(t *testing.T, c *model.AuditEventConnection) (texts []string) {
	t.Helper()
	for _, e := range c.Nodes() {
		texts = append(texts, fmt.Sprint(e.Actor, " ", e.Action, " ", e.Object, " ", e.Outcome, " ", e.RequestID))
	}
	return texts
}

// insert adds a row for each line "actor action object outcome requestId minute".
func (w *world) insert(t *testing.T, tenant string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f := strings.Fields(line)
		_, err := w.db.NewRaw(`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, at)
			VALUES (?, ?, ?, ?, ?, ?, ?::timestamptz)`, tenant, f[0], f[1], f[2], f[3], f[4], "2030-01-01T00:"+f[5]+":00Z").Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEventsAreFilteredNewestFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	tenant := "t1"
	w.insert(
		t, tenant, "user:a createPool compute-pool/1 allowed req-1 01", "user:b compute:pools:manage compute-pool/1 denied req-2 02",
		"user:a createPool compute-pool/1 replayed req-3 03",
	)
	w.insert(t, "t2", "user:a createPool compute-pool/1 allowed req-1 02")
	const one, two, three = "user:a createPool compute-pool/1 allowed req-1", "user:b compute:pools:manage compute-pool/1 denied req-2",
		"user:a createPool compute-pool/1 replayed req-3"
	text := func(s string) *string { return &s }
	minute := func(m int) *model.Time { at := model.NewTime(time.Date(2030, 1, 1, 0, m, 0, 0, time.UTC)); return &at }
	denied := model.AuditDenied
	for name, c := range map[string]struct {
		filter *model.AuditEventFilter
		want   []string
	}{
		"none":      {nil, []string{three, two, one}},
		"empty":     {&model.AuditEventFilter{}, []string{three, two, one}},
		"actor":     {&model.AuditEventFilter{Actor: text("user:a")}, []string{three, one}},
		"action":    {&model.AuditEventFilter{Action: text("compute:pools:manage")}, []string{two}},
		"object":    {&model.AuditEventFilter{Object: text("compute-pool/2")}, nil},
		"outcome":   {&model.AuditEventFilter{Outcome: &denied}, []string{two}},
		"requestId": {&model.AuditEventFilter{RequestID: text("req-3")}, []string{three}},
		"since":     {&model.AuditEventFilter{Since: minute(2)}, []string{three, two}},
		"until":     {&model.AuditEventFilter{Until: minute(2)}, []string{one}},
		"several":   {&model.AuditEventFilter{Actor: text("user:a"), Since: minute(1), Until: minute(3)}, []string{one}},
	} {
		got, err := w.Events(as(t, "user:admin"), EventsInput{TenantID: &tenant, Filter: c.filter})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, events(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var n int
	if err := w.db.NewRaw("SELECT count(*) FROM audit_log").Scan(t.Context(), &n); err != nil || n != 4 {
		t.Errorf("%d rows after reading, %v: to read leaves none", n, err)
	}
}

func TestEventsAreForThoseWhoMayReadTheLog(t *testing.T) {
	t.Parallel()
	w := setup(t)
	t1, t2 := "t1", "t2"
	for _, c := range []struct {
		subject string
		tenant  *string
		want    problem.Code
	}{
		{"", &t1, problem.Unauthenticated},
		{"user:nobody", &t1, problem.Forbidden},
		{"user:viewer", &t1, problem.Forbidden},
		{"user:denied", &t1, problem.Forbidden},
		{"user:admin", &t1, ""},
		{"user:admin", &t2, problem.Forbidden},
		{"user:admin", nil, problem.Forbidden},
		{"user:root", &t2, ""},
		{"user:root", nil, ""},
	} {
		_, err := w.Events(as(t, c.subject), EventsInput{TenantID: c.tenant})
		if c.want == "" && err != nil || c.want != "" && !problem.Is(err, c.want) {
			t.Errorf("%q: %v, want %q", c.subject, err, c.want)
		}
	}
	got, err := w.Events(as(t, "user:root"), EventsInput{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"user:admin compute:audit:read compute-fleet denied "}, events(t, got)); diff != "" {
		t.Errorf("what belongs to no tenant (-want +got):\n%s", diff)
	}
	if e := got.Nodes()[0]; e.TenantID != nil || e.Sequence != nil || e.Hash != nil {
		t.Errorf("an unchained row of no tenant: %+v", e)
	}
}

// A denial beats the right on the tenant: of what is about such an item nothing is told, whatever is asked for.
func TestEventsOfADeniedItemAreLeftOut(t *testing.T) {
	t.Parallel()
	w := setup(t)
	t1 := "t1"
	account, pool, other := authz.ProviderAccount(t1, id.New("pacct")), authz.Pool(t1, id.New("pool")), authz.ProviderAccount(t1, id.New("pacct"))
	w.insert(t, t1, "user:x update "+account.String()+" allowed r1 1", "user:x update "+other.String()+" allowed r2 2",
		"user:x archivePool "+pool.String()+" allowed r3 3", "user:x putSecret compute-tenant/t1 allowed r4 4")
	bindings := []model.RoleBinding{
		{Subject: "user:admin", Role: "tenant-admin", Object: account.String(), Effect: model.Deny},
		{Subject: "user:admin", Role: "tenant-admin", Object: pool.String(), Effect: model.Deny},
		{Subject: "user:admin", Role: "provider-manager", Object: other.String(), Effect: model.Deny}, // which does not say who may read the log
	}
	if _, err := w.db.NewInsert().Model(&bindings).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := func(f *model.AuditEventFilter, first int) []string {
		t.Helper()
		got, err := w.Events(as(t, "user:admin"), EventsInput{TenantID: &t1, Filter: f, First: &first})
		if err != nil {
			t.Fatal(err)
		}
		return events(t, got)
	}
	want := []string{"user:x putSecret compute-tenant/t1 allowed r4", "user:x update " + other.String() + " allowed r2"}
	if diff := cmp.Diff(want, seen(nil, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, hidden := range []authz.Object{account, pool} {
		if got := seen(&model.AuditEventFilter{Object: new(hidden.String())}, 50); got != nil {
			t.Errorf("what is about %s is shown: %s", hidden, got)
		}
	}
	if got := seen(&model.AuditEventFilter{RequestID: new("r1")}, 50); got != nil {
		t.Errorf("what one request did is shown: %s", got)
	}
}

func TestEventsSayAllThatIsWrong(t *testing.T) {
	t.Parallel()
	w := setup(t)
	empty, long, control, tenant := "", strings.Repeat("é", 513), "a\x00b", "not a tenant"
	outcome, first, after := model.AuditOutcome("maybe"), 0, "forged"
	early, late := model.NewTime(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), model.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	_, err := w.Events(as(t, "user:nobody"), EventsInput{TenantID: &tenant, First: &first, After: &after, Filter: &model.AuditEventFilter{
		Actor: &empty, Action: &long, Object: &control, RequestID: &empty, Outcome: &outcome, Since: &late, Until: &early,
	}})
	for _, path := range []string{
		"tenantId", "first", "after", "filter.actor", "filter.action", "filter.object", "filter.requestId", "filter.outcome", "filter.until",
	} {
		if !problem.Is(err, problem.InvalidInput) || !strings.Contains(fmt.Sprintf("%+v", problem.From(err).Details), path) {
			t.Errorf("%s is not named: %v", path, err)
		}
	}
	fits := strings.Repeat("é", 512)
	if _, err := w.Events(as(t, "user:root"), EventsInput{Filter: &model.AuditEventFilter{Actor: &fits}}); err != nil {
		t.Error(err)
	}
}

func TestPagesOfEventsMeet(t *testing.T) {
	t.Parallel()
	w := setup(t)
	write(t, w.db, 11, "t1", "t2")
	// Rows of one moment must be told apart by their numbers.
	if err := w.asOwner(t, "UPDATE audit_log SET at = '2030-01-01' WHERE id % 3 > 0"); err != nil {
		t.Fatal(err)
	}
	sealAll(t, w.db)
	tenant, size := "t1", 3
	var after *string
	var got, want []string
	for pages := 1; ; pages++ {
		page, err := w.Events(as(t, "user:admin"), EventsInput{TenantID: &tenant, First: &size, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Nodes() {
			got = append(got, fmt.Sprint(e.ID, " ", *e.Sequence, " ", *e.Hash))
		}
		if !page.PageInfo.HasNextPage {
			if pages != 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		after = page.PageInfo.EndCursor
	}
	err := w.db.NewRaw(`SELECT l.id || ' ' || c.seq || ' ' || encode(c.hash, 'hex') FROM audit_log l JOIN audit_chain c ON c.audit_id = l.id
		WHERE l.tenant_id = 't1' ORDER BY l.at DESC, l.id DESC`).Scan(t.Context(), &want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	actor, other := "user:u1", "t2"
	for name, in := range map[string]EventsInput{
		"another tenant's list": {TenantID: &other, After: after},
		"the fleet's list":      {After: after},
		"another filter":        {TenantID: &tenant, After: after, Filter: &model.AuditEventFilter{Actor: &actor}},
	} {
		if _, err := w.Events(as(t, "user:root"), in); !problem.Is(err, problem.InvalidInput) {
			t.Errorf("a cursor was taken for %s: %v", name, err)
		}
	}
}

func (w *world) asOwner(t *testing.T, statement string) error {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE NONE"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(t.Context(), statement); err != nil {
		return err
	}
	return tx.Commit()
}

// Each filter alone is answered from an index that has the order too, also when it keeps few rows of many.
func TestEachFilterHasAnIndex(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, statement := range []string{
		`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, at)
			SELECT 't' || n % 3, 'user:' || n % 1000, 'action' || n % 1000, 'object' || n % 1000,
				CASE WHEN n % 5000 = 1 THEN 'denied' ELSE 'allowed' END, 'req' || n, now() - make_interval(secs => n)
			FROM generate_series(1, 60000) AS n`,
		"INSERT INTO audit_chain SELECT tenant_id, id, id, xid, sha256('') FROM audit_log",
		"ANALYZE audit_log, audit_chain",
	} {
		if err := w.asOwner(t, statement); err != nil {
			t.Fatal(err)
		}
	}
	text, denied := "x", model.AuditDenied
	old := model.NewTime(time.Now().Add(-15 * time.Hour))
	for index, f := range map[string]*model.AuditEventFilter{
		"audit_log_tenant_at_idx":   nil,
		"audit_log_actor_idx":       {Actor: &text},
		"audit_log_action_idx":      {Action: &text},
		"audit_log_object_idx":      {Object: &text},
		"audit_log_outcome_idx":     {Outcome: &denied},
		"audit_log_request_idx":     {RequestID: &text},
		"audit_log_tenant_at_idx ":  {Since: &old},
		"audit_log_tenant_at_idx  ": {Until: &old},
	} {
		place := input.Page[eventPlace]{First: 50, After: "x", Place: eventPlace{old.UnixMicro(), "5"}}
		for _, p := range []input.Page[eventPlace]{{First: 50}, place} {
			var plan []string
			if err := w.db.NewRaw("EXPLAIN ?", eventsQuery{"t1", f, []string{"compute-pool/x"}}.page(w.db.DB, p)).Scan(t.Context(), &plan); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(plan, "\n")
			used := regexp.MustCompile(`(using|Bitmap Index Scan on) ` + strings.TrimSpace(index) + `\b`).MatchString(text)
			if !used || strings.Contains(text, "Seq Scan") {
				t.Errorf("%s is not used:\n%s", index, text)
			}
		}
	}
}
