package event_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/internal/event"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

type bundle struct {
	db  *postgres.DB
	hub *event.Hub
}

func setup(t *testing.T) bundle {
	t.Helper()
	db := pgtest.New(t)
	hub := event.NewHub(db, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = hub.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return bundle{db: db, hub: hub}
}

func everything(*event.Event) bool { return true }

func (b bundle) write(ctx context.Context, bootstrap, typ string) error {
	return event.Append(ctx, b.db.DB, event.Record{
		TenantID: "t1", Type: typ, BootstrapID: bootstrap, AccountID: "pacct_1", Data: model.EmptyJSON(),
	})
}

func TestMain(m *testing.M) {
	leaktest.Main(m, pgtest.IgnoreServer())
}

// Writers commit late, in any order, and sometimes not at all. A naive reader by id loses a fifth of such events.
func TestSubscriptionSeesEveryCommittedEventOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub, err := b.hub.Subscribe(t.Context(), 10_000, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	const writers, perWriter = 8, 100
	abandoned := errors.New("abandoned")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range perWriter {
				err := b.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
					record := event.Record{
						TenantID: "t1", Type: "test", BootstrapID: fmt.Sprint("boot_", w), AccountID: "a",
						Data: model.JSON(fmt.Sprintf(`{"n":%d}`, i)),
					}
					if err := event.Append(ctx, tx, record); err != nil {
						return err
					}
					if rnd.IntN(3) == 0 {
						if _, err := tx.NewRaw("SELECT pg_sleep(?)", rnd.Float64()/100).Exec(ctx); err != nil {
							return err
						}
					}
					if rnd.IntN(10) == 0 {
						return abandoned
					}
					return nil
				})
				if err != nil && !errors.Is(err, abandoned) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()

	var want []string
	err = b.db.NewRaw("SELECT e.id::text FROM events e ORDER BY e.xid, e.id").Scan(t.Context(), &want)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(want))
	last := map[string]string{}
	for range want {
		e := receive(t, sub.C)
		got = append(got, fmt.Sprint(e.Position.ID))
		if prev := last[e.BootstrapID]; prev != "" && number(t, prev) >= number(t, string(e.Data)) {
			t.Errorf("%s: event %s came after %s", e.BootstrapID, e.Data, prev)
		}
		last[e.BootstrapID] = string(e.Data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delivered events differ from committed ones (-committed +delivered):\n%s", diff)
	}
}

func number(t *testing.T, data string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(data, `{"n":%d}`, &n); err != nil {
		if _, err := fmt.Sscanf(data, `{"n": %d}`, &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func receive(t *testing.T, c <-chan *event.Event) *event.Event {
	t.Helper()
	select {
	case e, ok := <-c:
		if !ok {
			t.Fatal("the subscription was cut off")
		}
		return e
	case <-time.After(3 * time.Minute):
		t.Fatal("no event came")
	}
	return nil
}

func TestReadAndSubscriptionMeetWithoutGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before, err := b.hub.Subscribe(t.Context(), 100, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	for i := range 5 {
		if err := b.write(t.Context(), "boot_1", fmt.Sprint("first-", i)); err != nil {
			t.Fatal(err)
		}
		receive(t, before.C)
	}
	sub, err := b.hub.Subscribe(t.Context(), 100, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	past, err := event.Read(t.Context(), b.db.DB, event.Range{After: before.Start, UpTo: sub.Start, TenantID: "t1", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(past) != 5 {
		t.Fatalf("Read found %d events before the subscription, want 5", len(past))
	}
	latest, err := event.Latest(t.Context(), b.db.DB, "t1", "boot_1")
	if err != nil || latest == nil || latest.Type != "first-4" {
		t.Fatalf("Latest = %+v, %v; want first-4", latest, err)
	}
	if err := b.write(t.Context(), "boot_1", "second"); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, sub.C); e.Type != "second" || !past[4].Position.Before(e.Position) {
		t.Errorf("the first live event is %s at %s", e.Type, e.Position)
	}
	other, err := event.Read(t.Context(), b.db.DB, event.Range{After: before.Start, UpTo: sub.Start, TenantID: "t2", Limit: 100})
	if err != nil || len(other) != 0 {
		t.Errorf("another tenant reads %d events, %v", len(other), err)
	}
}

func TestReaderThatDoesNotKeepUpIsCutOffAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow, err := b.hub.Subscribe(t.Context(), 1, everything)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := b.hub.Subscribe(t.Context(), 100, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Close()
	for i := range 3 {
		if err := b.write(t.Context(), "boot_1", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if e := receive(t, quick.C); e.Type != fmt.Sprint(i) {
			t.Errorf("the quick reader got %s, want %d", e.Type, i)
		}
	}
	<-slow.C
	if _, open := <-slow.C; open {
		t.Error("the slow reader was not cut off")
	}
	slow.Close()
}

func TestHubGoesOnAfterItsConnectionDied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub, err := b.hub.Subscribe(t.Context(), 100, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for i := range 3 {
		_, err := b.db.NewRaw(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%FROM events AS e%' AND pid <> pg_backend_pid()`).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.write(t.Context(), "boot_1", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if e := receive(t, sub.C); e.Type != fmt.Sprint(i) {
			t.Errorf("got %s, want %d", e.Type, i)
		}
	}
}

func TestShareFindsOnce(t *testing.T) {
	t.Parallel()
	e := new(event.Event)
	failure := errors.New("failed")
	if _, err := e.Share("a", func() (any, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("Share gives %v", err)
	}
	found := 0
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			v, err := e.Share("a", func() (any, error) { found++; return found, nil })
			if v != 1 || err != nil {
				t.Errorf("Share gives %v, %v", v, err)
			}
		})
	}
	wg.Wait()
	if v, err := e.Share("b", func() (any, error) { return "other", nil }); v != "other" || err != nil {
		t.Errorf("by another key Share gives %v, %v", v, err)
	}
}

func TestPruneKeepsTheRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, typ := range []string{"old", "young"} {
		if err := b.write(t.Context(), "boot_1", typ); err != nil {
			t.Fatal(err)
		}
	}
	_, err := pgtest.Owner(t, b.db).NewRaw("UPDATE events SET at = now() - interval '8 days' WHERE type = 'old'").Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := event.Prune(t.Context(), b.db.DB); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := b.db.NewRaw("SELECT type FROM events").Scan(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"young"}, left); diff != "" {
		t.Errorf("Prune left (-want +got):\n%s", diff)
	}
}

// TestACounterThatIsBehind is a restore into another cluster, whose transactions count from the start.
func TestACounterThatIsBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.write(t.Context(), "boot_1", "now"); err != nil {
		t.Fatal(err)
	}
	if err := event.CheckCounter(t.Context(), b.db.DB); err != nil {
		t.Errorf("an event of now: %v", err)
	}
	if _, err := pgtest.Owner(t, b.db).ExecContext(t.Context(), "UPDATE events SET xid = '4000000000'"); err != nil {
		t.Fatal(err)
	}
	if err := event.CheckCounter(t.Context(), b.db.DB); !problem.Is(err, problem.Unavailable) {
		t.Errorf("an event of the future: %v", err)
	}
}

// However busy its tenant is, the events of one account are found by an index.
func TestEventsOfAnAccountAreFoundByIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := db.NewRaw(`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
		SELECT 't1', 'x', 'boot_' || n, CASE WHEN n % 1000 = 0 THEN 'quiet' ELSE 'busy' END, '{}' FROM generate_series(1, 20000) AS n; ANALYZE events`).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := func(q *bun.SelectQuery, column string) *bun.SelectQuery {
		return q.Where("? IN (?)", bun.Ident(column), bun.List([]string{"quiet"}))
	}
	everything := event.Position{XID: 1 << 62}
	for _, r := range []event.Range{{TenantID: "t1", AccountID: "quiet"}, {TenantID: "t1", Accounts: of}} {
		r.UpTo, r.Limit = everything, 200
		var plan []string
		if err := db.NewRaw("EXPLAIN ?", event.QueryOf(r, db.DB)).Scan(postgres.WithScope(t.Context(), postgres.AllTenants()), &plan); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, "events_account_idx") {
			t.Errorf("the index is not used:\n%s", text)
		}
		if events, err := event.Read(t.Context(), db.DB, r); err != nil || len(events) != 20 {
			t.Errorf("%d events, %v", len(events), err)
		}
	}
}
