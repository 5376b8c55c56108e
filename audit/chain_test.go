package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func newSealer(db *postgres.DB) *Sealer {
	s := NewSealer(db, slog.New(slog.DiscardHandler))
	s.Poll = 5 * time.Millisecond
	return s
}

// write adds n rows for each tenant, each with other values.
func write(t *testing.T, db *postgres.DB, n int, tenants ...string) {
	t.Helper()
	for i := range n {
		for _, tenant := range tenants {
			ctx := authz.WithRequestID(authz.WithActor(t.Context(), authz.Actor{Subject: fmt.Sprint("user:u", i)}), fmt.Sprint("req-", i))
			e := Entry{
				TenantID: tenant, Action: "createPool", Object: fmt.Sprint("compute-pool/", i), Outcome: Allowed,
				Details: map[string]any{"name": fmt.Sprint("é", i), "n": i},
			}
			if err := Record(ctx, db.DB, e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sealAll chains until no row is left. Transactions elsewhere in the server may hold the horizon back for a while.
func sealAll(t *testing.T, db *postgres.DB) {
	t.Helper()
	s := newSealer(db)
	waitUntil(t, "every row is chained", func() bool {
		if _, err := s.sealBatch(t.Context()); err != nil {
			t.Fatal(err)
		}
		return unsealed(t, db) == 0
	})
}

func unsealed(t *testing.T, db *postgres.DB) (n int) {
	t.Helper()
	err := db.NewRaw("SELECT (SELECT count(*) FROM audit_log) - (SELECT count(*) FROM audit_chain)").Scan(t.Context(), &n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func waitUntil(t *testing.T, what string, true func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !true() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func findings(t *testing.T, db *postgres.DB, in VerifyInput) (found []string, sum Summary) {
	t.Helper()
	sum, err := Verify(t.Context(), db, in, func(f Finding) error {
		found = append(found, f.String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Findings != len(found) {
		t.Errorf("%d findings counted, %d given", sum.Findings, len(found))
	}
	return found, sum
}

func keptHeads(t *testing.T, db *postgres.DB) Heads {
	t.Helper()
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	if err := EachHead(t.Context(), db, func(h Head) error { return out.Encode(h) }); err != nil {
		t.Fatal(err)
	}
	heads, err := ReadHeads(&lines)
	if err != nil {
		t.Fatal(err)
	}
	return heads
}

// The hash is part of what stays for good: heads that were kept must be found again by every later version.
func TestTheFormOfTheHashStays(t *testing.T) {
	t.Parallel()
	r := logRow{"7", "42", "1700000000123456", "t", "user:a", "createPool", "compute-pool/x", "allowed", "req", `{"n": 1}`}
	got := hex.EncodeToString(r.hash(start(), "t", 1))
	const want = "9f21d6eb02f43f552051a2eb9c8866c81708622382ae0614b2bbf9cdec129059"
	if got != want {
		t.Errorf("the hash is %s, want %s", got, want)
	}
	moved := r
	moved.Actor, moved.Action = "user:acreate", "Pool"
	if bytes.Equal(moved.hash(start(), "t", 1), r.hash(start(), "t", 1)) {
		t.Error("a part passes for one of its neighbour")
	}
}

// A transaction that read, or waited, before it wrote is chained after others that began after it, and nothing is wrong with that.
func TestTimesRunBackALittle(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct {
		minutesAgo int
		found      bool
	}{{8, false}, {0, false}, {4, false}, {3, false}, {4, false}, {6, true}, {5, false}, {0, false}} {
		_, err := db.NewRaw(`INSERT INTO audit_log (at, tenant_id, actor, action, object, outcome)
			VALUES (now() - ? * interval '1 minute', 'a', 'user:a', 'x', 'o', 'allowed')`, c.minutesAgo).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sealAll(t, db)
		found, sum := findings(t, db, VerifyInput{})
		if misdated := len(found) > 0 && strings.Contains(found[len(found)-1], fmt.Sprintf("seq=%d ", sum.Rows)); misdated != c.found {
			t.Errorf("a row of %d minutes ago at %d: %v", c.minutesAgo, sum.Rows, found)
		}
	}
}

func TestEachTenantHasAChainOfItsOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	write(t, db, 3, "", "a", "b")
	_, sum := findings(t, db, VerifyInput{})
	if sum != (Summary{Unsealed: 9}) {
		t.Errorf("before anything is chained: %+v", sum)
	}
	sealAll(t, db)
	write(t, db, 2, "b", "c")
	sealAll(t, db)
	heads := keptHeads(t, db)
	for tenant, seq := range map[string]int64{"": 3, "a": 3, "b": 5, "c": 2} {
		if heads[tenant][seq] == "" {
			t.Errorf("the head of %q is %v, want it at %d", tenant, heads[tenant], seq)
		}
	}
	if found, sum := findings(t, db, VerifyInput{Heads: heads}); len(found) > 0 || sum != (Summary{Tenants: 4, Rows: 13, Heads: 4}) {
		t.Errorf("%+v: %v", sum, found)
	}
	for tenant, rows := range map[string]int{"": 3, "b": 5} {
		if found, sum := findings(t, db, VerifyInput{TenantID: &tenant, Heads: heads}); len(found) > 0 || sum != (Summary{Tenants: 1, Rows: rows, Heads: 1}) {
			t.Errorf("%q alone: %+v: %v", tenant, sum, found)
		}
	}
}

// A transaction that began first and commits last is neither skipped nor put before rows that are chained already.
func TestASlowTransactionIsNeitherSkippedNorPassed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	slow, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Record(t.Context(), slow, Entry{TenantID: "t", Action: "slow", Object: "o", Outcome: Allowed}); err != nil {
		t.Fatal(err)
	}
	write(t, db, 5, "t", "other")
	if n, err := newSealer(db).sealBatch(t.Context()); n != 0 || err != nil {
		t.Errorf("%d rows were chained before one that may still come, %v", n, err)
	}
	if found, sum := findings(t, db, VerifyInput{}); len(found) > 0 || sum.Unsealed != 10 {
		t.Errorf("meanwhile: %+v %v", sum, found)
	}
	if err := slow.Commit(); err != nil {
		t.Fatal(err)
	}
	sealAll(t, db)
	var seq int
	if err := db.NewRaw("SELECT c.seq FROM audit_chain c JOIN audit_log l ON l.id = c.audit_id WHERE l.action = 'slow'").Scan(t.Context(), &seq); err != nil || seq != 1 {
		t.Errorf("the slow row is at %d, %v", seq, err)
	}
	if found, _ := findings(t, db, VerifyInput{}); len(found) > 0 {
		t.Error(found)
	}
}

func TestOnlyOneSealerWorksAtATime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	write(t, db, 3, "t")
	holder, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := lockSealing(t.Context(), holder); !locked || err != nil {
		t.Fatal(locked, err)
	}
	if n, err := newSealer(db).sealBatch(t.Context()); n != 0 || err != nil {
		t.Errorf("%d rows were chained beside the holder, %v", n, err)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	sealAll(t, db)
}

// TestAnHonestLogGivesNoAlarm chains with several sealers, some of which are killed, while writers commit in any order, late or not at all.
func TestAnHonestLogGivesNoAlarm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const application = "sealer-under-test"
	sealing, err := postgres.Open(t.Context(), postgres.Options{
		URL: db.Pool.Config().ConnString() + "&application_name=" + application, MaxConns: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sealing.Close)
	ctx, stop := context.WithCancel(t.Context())
	var background, writers sync.WaitGroup
	for range 3 {
		background.Go(func() {
			for ctx.Err() == nil {
				brief, end := context.WithTimeout(ctx, rand.N(100*time.Millisecond))
				_ = newSealer(sealing).Run(brief)
				end()
			}
		})
	}
	alarms, kills, looks := 0, 0, 0
	background.Go(func() {
		for ctx.Err() == nil {
			n, err := killOne(ctx, db, application)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			kills += n
			sum, err := Verify(ctx, db, VerifyInput{}, func(f Finding) error { t.Error(f); return nil })
			alarms += sum.Findings
			if err == nil {
				looks++
			}
		}
	})
	for w := range 6 {
		writers.Go(func() { writeHonestly(t, db, rand.New(rand.NewPCG(uint64(w), 7)), 150) })
	}
	writers.Wait()
	stop()
	background.Wait()
	sealAll(t, db) // what they left
	found, sum := findings(t, db, VerifyInput{Heads: keptHeads(t, db)})
	var rows int
	if err := db.NewRaw("SELECT count(*) FROM audit_log").Scan(t.Context(), &rows); err != nil {
		t.Fatal(err)
	}
	if alarms += len(found); alarms > 0 || sum.Rows != rows || sum.Unsealed != 0 {
		t.Errorf("%+v of %d rows: %v", sum, rows, found)
	}
	t.Logf("audit-honest alarms=%d rows=%d verified=%d killed=%d PASS", alarms, sum.Rows, looks+1, kills)
}

// killOne ends a connection of the application that is in the middle of something, as somebody who may.
func killOne(ctx context.Context, db *postgres.DB, application string) (n int, err error) {
	err = db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return err
		}
		return tx.NewRaw(`SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = ? AND state <> 'idle' ORDER BY random() LIMIT 1) AS one`,
			application).Scan(ctx, &n)
	})
	return n, err
}

func writeHonestly(t *testing.T, db *postgres.DB, rnd *rand.Rand, n int) {
	t.Helper()
	undo := errors.New("undo")
	for i := range n {
		err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			for range 1 + rnd.IntN(3) {
				e := Entry{TenantID: []string{"", "a", "b", "c"}[rnd.IntN(4)], Action: "x", Object: fmt.Sprint(i), Outcome: Allowed}
				if err := Record(ctx, tx, e); err != nil {
					return err
				}
			}
			if rnd.IntN(5) == 0 {
				if _, err := tx.NewRaw("SELECT pg_sleep(?)", rnd.Float64()/20).Exec(ctx); err != nil {
					return err
				}
			}
			if rnd.IntN(10) == 0 {
				return undo
			}
			return nil
		})
		if err != nil && !errors.Is(err, undo) {
			t.Error(err)
		}
	}
}

func TestHeadsAreLoggedWhenTheyMoved(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	write(t, db, 2, "a", "")
	var lines bytes.Buffer
	s := NewSealer(db, slog.New(slog.NewJSONHandler(&lines, nil)))
	waitUntil(t, "every row is chained", func() bool {
		_, err := s.sealBatch(t.Context())
		return err == nil && unsealed(t, db) == 0
	})
	for range 2 {
		if err := s.logHeads(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(lines.String(), headMessage); n != 2 {
		t.Errorf("%d heads were logged, want each once: %s", n, &lines)
	}
	lines.WriteString(`{"msg":"ready"}` + "\n\npanic: oh no\n\ngoroutine 1 [running]:\n")
	heads, err := ReadHeads(&lines)
	if err != nil || len(heads) != 2 {
		t.Fatalf("%v, %v", heads, err)
	}
	if found, _ := findings(t, db, VerifyInput{Heads: heads}); len(found) > 0 {
		t.Error(found)
	}
	for tenant, hash := range map[string]string{"a": heads[""][2], "gone": heads["a"][2]} {
		if found, _ := findings(t, db, VerifyInput{Heads: Heads{tenant: {2: hash}}}); len(found) != 1 {
			t.Errorf("a head of %s that is not in the chain: %v", tenant, found)
		}
	}
}

// A sealer that is killed logs no heads any more. Whoever comes next does, or goes on beside it, however much later.
func TestHeadsOfASealerThatDiedAreLogged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := pgtest.Owner(t, db)
	beside := newSealer(db)
	if err := beside.logHeads(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, db, 1, "old")
	sealAll(t, db)
	write(t, db, 1, "anchor")
	sealAll(t, db)
	for tenant, ago := range map[string]string{"old": "3 hours 11 minutes", "anchor": "3 hours"} {
		if _, err := owner.NewRaw("UPDATE audit_log SET at = now() - ?::interval WHERE tenant_id = ?", ago, tenant).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*Sealer{"the next": newSealer(db), "one beside": beside} {
		var lines bytes.Buffer
		s.log = slog.New(slog.NewJSONHandler(&lines, nil))
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil { // its farewell alone
			t.Fatal(err)
		}
		heads, err := ReadHeads(&lines)
		if err != nil || heads["anchor"][1] == "" || name == "the next" && len(heads) != 1 {
			t.Errorf("%s logged %v, %v", name, heads, err)
		}
	}
}

func TestRowsThatAreNotChainedAreFound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := pgtest.Owner(t, db)
	age := func(ago string) {
		t.Helper()
		if _, err := owner.NewRaw("UPDATE audit_log SET at = now() - ?::interval WHERE tenant_id = 'a'", ago).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	warned := func() bool {
		t.Helper()
		var lines bytes.Buffer
		s := newSealer(db)
		s.log = slog.New(slog.NewJSONHandler(&lines, nil))
		s.tell(t.Context())
		return strings.Contains(lines.String(), `"level":"WARN"`)
	}
	if d, err := Unsealed(t.Context(), db); d != 0 || err != nil {
		t.Errorf("an empty log has waited %v, %v", d, err)
	}
	write(t, db, 2, "a", "b")
	age("30 seconds")
	if found, sum := findings(t, db, VerifyInput{}); len(found) > 0 || sum.Unsealed != 4 || warned() {
		t.Errorf("what is younger than a minute: %v, %+v", found, sum)
	}
	age("5 minutes")
	found, sum := findings(t, db, VerifyInput{})
	if len(found) != 1 || !strings.Contains(found[0], "300 s, the longest of 2") || sum.Unsealed != 4 || !warned() {
		t.Errorf("%v, %+v", found, sum)
	}
	if d, err := Unsealed(t.Context(), db); d < 5*time.Minute || d > time.Hour || err != nil {
		t.Errorf("the oldest row has waited %v, %v", d, err)
	}
	sealAll(t, db)
	if found, _ := findings(t, db, VerifyInput{}); len(found) > 0 || warned() {
		t.Errorf("once they are chained: %v", found)
	}
}

func TestReadHeadsRefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for name, text := range map[string]string{
		"nothing":         "",
		"a log without":   `{"msg":"ready"}` + "\npanic",
		"no JSON":         "tenant 1",
		"JSON and not":    `{"tenant":"a","seq":1,"hash":"` + a + `"}` + "\ntenant 1",
		"no hash":         `{"tenant":"a","seq":1}`,
		"a short hash":    `{"tenant":"a","seq":1,"hash":"ab"}`,
		"no place":        `{"tenant":"a","hash":"` + a + `"}`,
		"a contradiction": `{"tenant":"a","seq":1,"hash":"` + a + `"}` + "\n" + `{"tenant":"a","seq":1,"hash":"` + b + `"}`,
	} {
		if _, err := ReadHeads(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read as heads", name)
		}
	}
}
