package bootstrap

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// watching is a bench whose events are read.
type watching struct {
	*bench
	watcher *Watcher
}

func setupWatch(t *testing.T) *watching {
	t.Helper()
	b := setup(t, model.ClaimToken)
	w := &watching{bench: b, watcher: &Watcher{Runs: b.service, Hub: event.NewHub(b.db, slog.New(slog.DiscardHandler))}}
	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan struct{}, 2)
	go func() { _ = w.watcher.Hub.Run(ctx); running <- struct{}{} }()
	go func() { _ = b.deps.Authz.Run(ctx); running <- struct{}{} }()
	t.Cleanup(func() {
		cancel()
		<-running
		<-running
	})
	return w
}

func (w *watching) watch(ctx context.Context, in WatchInput) *Stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	w.t.Cleanup(cancel)
	s, err := w.watcher.Watch(ctx, in)
	if err != nil {
		w.t.Fatalf("Watch: %v", err)
	}
	return s
}

func (w *watching) next(s *Stream) *model.BootstrapStatusChange {
	w.t.Helper()
	select {
	case c, open := <-s.Changes:
		if !open {
			w.t.Fatalf("the stream ended: %v", s.Err())
		}
		return c
	case <-time.After(patience):
		w.t.Fatal("no change came")
	}
	return nil
}

// rest reads changes until the stream ends well, and gives what they say.
func (w *watching) rest(s *Stream) (states []string, cursors []string) {
	w.t.Helper()
	for c := range s.Changes {
		from := ""
		if c.From != nil {
			from = string(*c.From)
		}
		states = append(states, from+">"+string(c.To))
		cursors = append(cursors, c.Cursor)
	}
	if err := s.Err(); err != nil {
		w.t.Fatalf("the stream ended with %v", err)
	}
	return states, cursors
}

func (w *watching) through(runID string) {
	w.driveToStatus(runID, model.Installed)
	w.mustJoin(runID)
}

var joinedStates = []string{ //nolint:gochecknoglobals // a table
	">claiming", "claiming>identifying", "identifying>preparing", "preparing>installing", "installing>installed", "installed>joined",
}

func TestWatchTellsEveryTransitionOnceAndEnds(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	opening := w.next(s) // of the time when it is read, so nothing must happen before
	go w.through(runID)
	states, cursors := w.rest(s)
	states, cursors = append([]string{">" + string(opening.To)}, states...), append([]string{opening.Cursor}, cursors...)
	equal(t, "changes", states, joinedStates)

	// From every cursor, what follows comes and nothing else; the stream ends after the final state, also when that was seen.
	for i, cursor := range cursors {
		again, _ := w.rest(w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, After: &cursor}))
		if len(again) == 0 && i == len(cursors)-1 {
			continue
		}
		equal(t, "changes after "+states[i], again, joinedStates[i+1:])
	}
	present, _ := w.rest(w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID}))
	equal(t, "changes of a final run", present, []string{">joined"})
}

// A run that has joined fails once its token turns out to be in two hands: who was away hears of that too, and nobody waits for more.
func TestWatchTellsOfARunThatFailsAfterItJoined(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	opening := w.next(s)
	go w.through(runID)
	_, cursors := w.rest(s) // ends with the join
	for range 2 {
		err := w.db.RunInTx(w.ctx, func(ctx context.Context, tx bun.Tx) error { return MarkContested(ctx, tx, runID) })
		if err != nil {
			t.Fatal(err)
		}
	}
	for cursor, want := range map[string][]string{
		opening.Cursor:          append(joinedStates[1:len(joinedStates):len(joinedStates)], "joined>failed"),
		cursors[len(cursors)-1]: {"joined>failed"},
	} {
		again, _ := w.rest(w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, After: &cursor}))
		equal(t, "changes", again, want)
	}
	present, _ := w.rest(w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID}))
	equal(t, "the present state", present, []string{">failed"})
	r := w.row(runID)
	if r.Failure == nil || r.Failure.Reason != model.IdentityMismatch || r.Cleanup != model.CleanupKept || r.LiveAccountID != nil {
		t.Errorf("the run is %s, %+v, %s", r.Status, r.Failure, r.Cleanup)
	}
}

func TestWatchStartsWithThePresentState(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	w.driveToStatus(runID, model.Preparing)
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	// The outbox may lag behind the row, so the first message may be an earlier state: then the transitions follow.
	var states []model.BootstrapStatus
	for len(states) == 0 || states[len(states)-1] != model.Preparing {
		c := w.next(s)
		if (c.From == nil) != (len(states) == 0) {
			t.Errorf("change %d goes from %v", len(states), c.From)
		}
		if len(states) > 0 && *c.From != states[len(states)-1] {
			t.Errorf("after %s comes a change from %s", states[len(states)-1], *c.From)
		}
		states = append(states, c.To)
	}
	w.through(runID)
	rest, _ := w.rest(s)
	equal(t, "changes", rest, []string{"preparing>installing", "installing>installed", "installed>joined"})
}

// A run whose events are gone is told from its row.
func TestWatchOfARunOlderThanTheRetention(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.machine("box", "k"))
	w.exec("DELETE FROM events")
	w.exec("UPDATE bootstraps SET state_since = now() - interval '8 days' WHERE id = ?", runID)
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	if c := w.next(s); c.To != model.Identifying || c.From != nil {
		t.Errorf("the first change is %+v", c)
	}
	w.driveToStatus(runID, model.Preparing)
	if c := w.next(s); c.To != model.Preparing {
		t.Errorf("the second change is %+v", c)
	}
}

func TestWatchOfATenantShowsOnlyWhatTheCallerMayRead(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	other := id.New("pacct")
	w.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) SELECT ?, tenant_id, provider, 'other', config, 'test' FROM provider_accounts", other)
	w.grant("user:one", "provider-viewer", "compute-provider-account/"+w.account)
	w.exec("INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:most', 'provider-viewer', ?, 'deny')", "compute-provider-account/"+other)
	w.grant("user:most", "provider-viewer", "compute-tenant/"+tenant)
	one := w.watch(as(t.Context(), "user:one"), WatchInput{TenantID: tenant})
	most := w.watch(as(t.Context(), "user:most"), WatchInput{TenantID: tenant})
	all := w.watch(w.ctx, WatchInput{TenantID: tenant})

	hidden := w.offer("hidden")
	hidden.AccountID = other
	hiddenRun, shownRun := w.start(hidden), w.start(w.offer("shown"))
	for name, s := range map[string]*Stream{"item grant": one, "item denial": most} {
		if c := w.next(s); c.Bootstrap.ID != shownRun {
			t.Errorf("%s: got a change of %s", name, c.Bootstrap.ID)
		}
	}
	equal(t, "the owner's first change", w.next(all).Bootstrap.ID, hiddenRun)
	equal(t, "the owner's second change", w.next(all).Bootstrap.ID, shownRun)
}

func TestWatchEndsWhenTheRightIsGone(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	w.grant("user:guest", "provider-viewer", "compute-tenant/"+tenant)
	ctx := as(t.Context(), "user:guest")
	runID := w.start(w.offer("k"))
	streams := []*Stream{w.watch(ctx, WatchInput{TenantID: tenant}), w.watch(ctx, WatchInput{TenantID: tenant, AccountID: &w.account})}
	one := w.watch(ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	w.next(one)
	w.exec("DELETE FROM role_bindings WHERE subject = 'user:guest'")
	for _, s := range append(streams, one) {
		for range s.Changes { // what was on its way when the right went
		}
		wantCode(t, s.Err(), problem.Forbidden)
	}
}

func TestWatchRefusals(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	fresh := w.next(s).Cursor
	at := w.placeOf(fresh, "", runID)
	old := w.cursorAt(event.Position{XID: at.XID, ID: at.ID}, time.Now().Add(-event.Retention-time.Minute), "", "")
	future := w.cursorAt(event.Position{XID: 1 << 62}, time.Now(), "", "")
	bare := base64.RawURLEncoding.EncodeToString([]byte(`{"x":1,"i":1,"t":9999999999999}`))
	foreign := "must be the cursor of a message of this subscription, with the same arguments"
	none, strange, garbage, wrongID := id.New("boot"), id.New("pacct"), "garbage!", "boot_1"
	w.grant("user:stranger", "tenant-admin", "compute-tenant/other")
	for _, c := range []struct {
		name string
		ctx  context.Context
		in   WatchInput
		code problem.Code
		says string // in the issue of INVALID_INPUT, if that matters
	}{
		{"nobody", t.Context(), WatchInput{TenantID: tenant}, problem.Unauthenticated, ""},
		{"no rights", as(t.Context(), "user:nobody"), WatchInput{TenantID: tenant}, problem.Forbidden, ""},
		{"no rights on the account", as(t.Context(), "user:nobody"), WatchInput{TenantID: tenant, AccountID: &w.account}, problem.Forbidden, ""},
		{"no rights on the run", as(t.Context(), "user:nobody"), WatchInput{TenantID: tenant, BootstrapID: &runID}, problem.Forbidden, ""},
		{"another tenant", as(t.Context(), "user:stranger"), WatchInput{TenantID: tenant, BootstrapID: &runID}, problem.Forbidden, ""},
		{"another tenant's run", as(t.Context(), "user:stranger"), WatchInput{TenantID: "other", BootstrapID: &runID}, problem.NotFound, ""},
		{"no such run", w.ctx, WatchInput{TenantID: tenant, BootstrapID: &none}, problem.NotFound, ""},
		{"run of another account", w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, AccountID: &strange}, problem.NotFound, ""},
		{"bad tenant", w.ctx, WatchInput{TenantID: "a b"}, problem.InvalidInput, ""},
		{"bad run", w.ctx, WatchInput{TenantID: tenant, BootstrapID: &wrongID}, problem.InvalidInput, ""},
		{"bad account", w.ctx, WatchInput{TenantID: tenant, AccountID: &wrongID}, problem.InvalidInput, ""},
		{"bad cursor", w.ctx, WatchInput{TenantID: tenant, After: &garbage}, problem.InvalidInput, foreign},
		{"cursor that nobody sealed", w.ctx, WatchInput{TenantID: tenant, After: &bare}, problem.InvalidInput, foreign},
		{"cursor of one run for all", w.ctx, WatchInput{TenantID: tenant, After: &fresh}, problem.InvalidInput, foreign},
		{"cursor of one run for its account", w.ctx, WatchInput{TenantID: tenant, AccountID: &w.account, After: &fresh}, problem.InvalidInput, foreign},
		{"cursor of all for one run", w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, After: &old}, problem.InvalidInput, foreign},
		{"cursor of another tenant", as(t.Context(), "user:stranger"), WatchInput{TenantID: "other", After: &old}, problem.InvalidInput, foreign},
		{"cursor of the future", w.ctx, WatchInput{TenantID: tenant, After: &future}, problem.InvalidInput, "is not the cursor of an event of this database"},
		{"old cursor", w.ctx, WatchInput{TenantID: tenant, After: &old}, problem.InvalidInput, "is older than seven days"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(c.ctx)
			defer cancel()
			_, err := w.watcher.Watch(ctx, c.in)
			refused := wantCode(t, err, c.code)
			if c.says == "" {
				return
			}
			issues := refused.Details["issues"].([]problem.Issue)
			if len(issues) != 1 || issues[0].Path != "after" || !strings.HasPrefix(issues[0].Message, c.says) {
				t.Errorf("the issues are %v", issues)
			}
		})
	}
}

// list is that of a stream's cursors.
func (w *watching) list(accountID, runID string) cursor.List {
	w.t.Helper()
	optional := func(v string) string {
		if v == "" {
			return ""
		}
		return cursor.Optional(&v)
	}
	l, err := w.deps.Cursors.List(w.ctx, "bootstrapStatusChanged", tenant, optional(accountID), optional(runID))
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *watching) placeOf(text, accountID, runID string) streamPlace {
	w.t.Helper()
	place, ok := cursor.Decode[streamPlace](w.list(accountID, runID))(text)
	if !ok {
		w.t.Fatalf("%q is no cursor of the stream", text)
	}
	return place
}

func (w *watching) cursorAt(p event.Position, at time.Time, accountID, runID string) string {
	w.t.Helper()
	return (&view{list: w.list(accountID, runID)}).cursor(p, at)
}

func TestWatchCutsOffAReaderThatDoesNotKeepUp(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	slow := w.watch(w.ctx, WatchInput{TenantID: tenant})
	runID := w.start(w.offer("k"))
	first := w.next(slow)
	for range queueSize + 2 {
		w.exec(`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
			SELECT tenant_id, type, bootstrap_id, account_id, data FROM events WHERE bootstrap_id = ? LIMIT 1`, runID)
	}
	for deadline := time.Now().Add(patience); w.watcher.Hub.Subscribers() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the slow reader is not cut off")
		}
		runtime.Gosched()
	}
	n := 0
	for range slow.Changes {
		n++
	}
	wantCode(t, slow.Err(), problem.RateLimited)
	// It goes on from its last cursor without a loss.
	again := w.watch(w.ctx, WatchInput{TenantID: tenant, After: &first.Cursor})
	for range queueSize + 2 {
		w.next(again)
	}
	if n > queueSize+2 {
		t.Errorf("the slow reader got %d changes", n)
	}
}

// Who resumes is told again only what it is let have; the rest comes when it goes on from there.
func TestWatchAsksBeforeItTellsAgain(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	live := w.watch(w.ctx, WatchInput{TenantID: tenant})
	runID := w.start(w.offer("k"))
	first := w.next(live)
	const more = backfill + 10
	for range more {
		w.exec(`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
			SELECT tenant_id, type, bootstrap_id, account_id, data FROM events WHERE bootstrap_id = ? LIMIT 1`, runID)
	}
	for range more {
		w.next(live) // all are behind the horizon now
	}
	var asked []int
	w.watcher.Replay = func(_ context.Context, tenantID string, events int) error {
		asked = append(asked, events)
		if tenantID != tenant || len(asked) == 2 {
			return problem.New(problem.RateLimited, "Later.")
		}
		return nil
	}
	after := first.Cursor
	told := 0
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, After: &after})
	for c := range s.Changes {
		told, after = told+1, c.Cursor
	}
	wantCode(t, s.Err(), problem.RateLimited)
	equal(t, "told at first", told, backfill)
	s = w.watch(w.ctx, WatchInput{TenantID: tenant, After: &after})
	for range more - told {
		w.next(s)
	}
	equal(t, "asked", asked, []int{backfill, more - backfill, more - backfill})
}

// Who may see one quiet account of a busy tenant resumes whatever became of the others, and is asked for what is told alone.
func TestWatchTellsAgainOnlyWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	const busy = "pacct_00000000000000000000000000"
	w.grant("user:one", "provider-viewer", "compute-provider-account/"+w.account)
	w.grant("user:most", "provider-viewer", "compute-tenant/"+tenant)
	w.exec("INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:most', 'provider-viewer', ?, 'deny')", "compute-provider-account/"+busy)
	all := w.watch(w.ctx, WatchInput{TenantID: tenant})
	runID := w.start(w.offer("k"))
	after := w.next(all).Cursor
	const others = backfill + 10
	again := func(account string, times int) {
		w.exec(`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
			SELECT tenant_id, type, bootstrap_id, ?, data FROM (SELECT * FROM events WHERE bootstrap_id = ? LIMIT 1) AS e, generate_series(1, ?)`, account, runID, times)
		for range times {
			w.next(all)
		}
	}
	again(busy, others)
	again(w.account, 1)
	again(busy, others)
	for _, caller := range []string{"user:one", "user:most"} {
		var asked []int
		w.watcher.Replay = func(_ context.Context, _ string, events int) error {
			asked = append(asked, events)
			return nil
		}
		ctx, leave := context.WithCancel(as(t.Context(), caller))
		s := w.watch(ctx, WatchInput{TenantID: tenant, After: &after})
		w.next(s)
		equal(t, "asked", asked, []int{1})
		leave()
		for range s.Changes { // until it has ended
		}
	}
}

func TestWatchersLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	ctx, cancel := context.WithCancel(w.ctx)
	var streams []*Stream
	for range 20 {
		s, err := w.watcher.Watch(ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	cancel()
	for _, s := range streams {
		for range s.Changes {
		}
		if err := s.Err(); err != nil {
			t.Errorf("a stream that its reader left ended with %v", err)
		}
	}
	equal(t, "open subscriptions", w.watcher.Hub.Subscribers(), 0)
}

// The cursor may come from a replica whose reader is ahead of this one's.
func TestWatchResumesOnAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	w.next(s)
	w.driveToStatus(runID, model.Identifying)
	ahead := w.next(s)

	behind := &Watcher{Runs: w.service, Hub: event.NewHub(w.db, slog.New(slog.DiscardHandler))}
	behind.Hub.StartAt(event.Position{XID: w.placeOf(ahead.Cursor, "", runID).XID - 1})
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	resumed, err := func() (*Stream, error) {
		defer func() { go func() { defer close(done); _ = behind.Hub.Run(ctx) }() }()
		return behind.Watch(ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, After: &ahead.Cursor})
	}()
	t.Cleanup(func() { cancel(); <-done })
	if err != nil {
		t.Fatal(err)
	}
	w.driveToStatus(runID, model.Preparing)
	if c := w.next(resumed); c.To != model.Preparing {
		t.Errorf("the first change after identifying is %s", c.To)
	}
}

// The cursor of the last change, at a replica that has not come so far.
func TestWatchOfAFinalRunEndsOnAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	runID := w.start(w.offer("k"))
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	go w.through(runID)
	_, cursors := w.rest(s)
	last := cursors[len(cursors)-1]
	behind := &Watcher{Runs: w.service, Hub: event.NewHub(w.db, slog.New(slog.DiscardHandler))}
	behind.Hub.StartAt(event.Position{XID: w.placeOf(cursors[0], "", runID).XID})
	again, err := behind.Watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID, After: &last})
	if err != nil {
		t.Fatal(err)
	}
	rest, _ := w.rest(again)
	equal(t, "changes after the last one", rest, []string(nil))
}

func TestWatchReadsTheRunOfAnEventOnce(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	count := pgtest.CountQueries(w.db) // before anybody reads
	runID := w.start(w.offer("k"))
	var streams []*Stream
	for range 50 {
		streams = append(streams, w.watch(w.ctx, WatchInput{TenantID: tenant}))
	}
	everyone := func() {
		t.Helper()
		w.exec(`INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data)
			SELECT tenant_id, type, bootstrap_id, account_id, data FROM events WHERE bootstrap_id = ? LIMIT 1`, runID)
		for _, s := range streams {
			w.next(s)
		}
	}
	everyone() // whatever is read once and kept
	before := count()
	everyone()
	if n := count() - before; n > 2 {
		t.Errorf("an event and its 50 readers take %d statements", n)
	}
}

// The rows that a caller's scope does not show stay hidden also when another caller's stream has read them.
func TestWatchSharesRowsWithinAScope(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	w.grant("user:walled", "tenant-admin", "compute-tenant/"+tenant)
	var asked atomic.Int64
	w.db.ScopeBy(func(ctx context.Context) (postgres.Scope, error) {
		if actor, _ := authz.ActorFrom(ctx); actor.Subject == "user:walled" {
			asked.Add(1)
			return postgres.Tenants("other"), nil
		}
		return postgres.AllTenants(), nil
	})
	open := w.watch(w.ctx, WatchInput{TenantID: tenant})
	walled := w.watch(as(w.ctx, "user:walled"), WatchInput{TenantID: tenant})
	before := asked.Load()
	runID := w.start(w.offer("k"))
	w.next(open)
	for deadline := time.Now().Add(patience); asked.Load() == before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the scope of the stream is not asked for")
		}
	}
	w.db.ScopeBy(func(context.Context) (postgres.Scope, error) { return postgres.AllTenants(), nil })
	w.driveToStatus(runID, model.Preparing)
	for _, s := range []*Stream{open, walled} {
		if c := w.next(s); c.From == nil || *c.From != model.Claiming {
			t.Errorf("a stream goes on with %+v", c)
		}
	}
}

func TestStreamsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	away := problem.New(problem.Unavailable, "away")
	asked := 0
	got, err := persist(t.Context(), func() (string, error) {
		if asked++; asked < 3 {
			return "", away
		}
		return "back", nil
	})
	if got != "back" || err != nil || asked != 3 {
		t.Errorf("persist gave %q, %v after %d times", got, err, asked)
	}
	denied := problem.New(problem.Forbidden, "no")
	if _, err := persist(t.Context(), func() (string, error) { return "", denied }); !problem.Is(err, problem.Forbidden) {
		t.Errorf("a denial became %v", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	if _, err := persist(ctx, func() (string, error) { leave(); return "", away }); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that left was told %v", err)
	}
}

// TestThePresentStateWaitsForNobody opens a stream of a run that came while somebody else's transaction holds the commit horizon back: its
// state is told at once, and what comes after the hold comes once.
func TestThePresentStateWaitsForNobody(t *testing.T) {
	t.Parallel()
	w := setupWatch(t)
	held, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := held.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	runID := w.start(w.offer("k"))
	w.driveToStatus(runID, model.Preparing)
	s := w.watch(w.ctx, WatchInput{TenantID: tenant, BootstrapID: &runID})
	if c := w.next(s); c.From != nil || c.To != model.Preparing {
		t.Fatalf("the first change is %v to %s", c.From, c.To)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	go w.through(runID)
	states, _ := w.rest(s)
	equal(t, "changes", states, joinedStates[3:])
}
