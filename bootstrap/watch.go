package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/event"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// queueSize is how many events a subscriber may be behind. One that falls further back is cut off and can resume.
const queueSize = 256

// backfill is how many events are read at once for a subscriber that resumes.
const backfill = 200

// sharedTime bounds a read that many streams wait for.
const sharedTime = 10 * time.Second

// How long a stream waits for what cannot be read right now, and how long about between two times that it asks.
const outage, askAgain = 30 * time.Second, 100 * time.Millisecond

// Watcher lets callers follow runs.
type Watcher struct {
	Runs *Service
	Hub  *event.Hub
	// Replay is asked before that many events are told to a caller who resumes; its error ends the stream, which can be resumed. Nil: as many as there are.
	Replay func(ctx context.Context, tenantID string, events int) error
}

// WatchInput says what to follow: one run, the runs through one account, or all of the tenant's that the caller may read.
type WatchInput struct {
	TenantID    string
	AccountID   *string
	BootstrapID *string
	// After is the cursor of the last change that was seen.
	After *string
}

// Stream is the changes of runs, in order. Changes is closed when the stream ends; Err then says why, and is nil when the
// one run that was followed is final, or when the context ended.
type Stream struct {
	Changes <-chan *model.BootstrapStatusChange
	changes chan *model.BootstrapStatusChange
	err     error
}

// Err says why the stream ended. It may be called once Changes is closed.
func (s *Stream) Err() error { return s.err }

// Watch follows runs until ctx ends, the caller loses the right, or the one run that is followed is final. With a run and
// no cursor the first change is the run's present state, with From nil. With a cursor it goes on
// there, without a gap or a repeat.
//
// It needs compute:providers:read on the tenant or on the account; changes of accounts that the caller may not read are
// left out, and each change is decided anew. INVALID_INPUT for a malformed cursor or one older than the retention, NOT_FOUND for
// a run that is not the tenant's or not readable. A stream ends with FORBIDDEN when the right is gone, and with RATE_LIMITED when its reader
// did not keep up: it can go on from its last cursor.
func (w *Watcher) Watch(ctx context.Context, in WatchInput) (*Stream, error) {
	v, err := w.admit(ctx, in)
	if err != nil {
		return nil, err
	}
	sub, err := w.Hub.Subscribe(ctx, queueSize, v.wants)
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("subscribing to events: %w", err))
	}
	if !v.resumes {
		v.position = sub.Start
	}
	s := &Stream{changes: make(chan *model.BootstrapStatusChange)}
	s.Changes = s.changes
	go func() {
		defer close(s.changes)
		defer sub.Close()
		err := v.follow(ctx, s.changes, sub)
		if ctx.Err() == nil { // a reader that left is told nothing
			s.err = err
		}
	}()
	return s, nil
}

// view is one caller's stream while it runs.
type view struct {
	*Service
	tenantID    string
	accountID   string
	bootstrapID string
	resumes     bool           // after position, which came with the call
	position    event.Position // of what was dealt with last
	list        cursor.List
	actor       authz.Actor
	replay      func(ctx context.Context, tenantID string, events int) error
}

func (w *Watcher) admit(ctx context.Context, in WatchInput) (*view, error) {
	actor, err := w.Runs.Authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{Service: w.Runs, tenantID: in.TenantID, actor: actor, replay: w.Replay}
	v.list, err = w.Runs.Cursors.List(ctx, "bootstrapStatusChanged", in.TenantID, cursor.Optional(in.AccountID), cursor.Optional(in.BootstrapID))
	if err != nil {
		return nil, err
	}
	var check checklist
	check.tenant(in.TenantID)
	check.optionalID("accountId", "pacct", in.AccountID)
	check.optionalID("bootstrapId", "boot", in.BootstrapID)
	if in.After != nil {
		v.resume(&check.issues, *in.After, time.Now())
	}
	if err := check.err(); err != nil {
		return nil, err
	}
	if in.AccountID != nil {
		v.accountID = *in.AccountID
	}
	if in.BootstrapID == nil {
		if err := v.allowed(ctx); err != nil {
			return nil, err
		}
		return v, v.checkAfter(ctx)
	}
	r, err := w.Runs.find(ctx, model.ProvidersRead, in.TenantID, *in.BootstrapID)
	if err != nil {
		return nil, postgres.Translate(err)
	}
	if v.accountID != "" && v.accountID != r.AccountID {
		return nil, problem.New(problem.NotFound, "There is no such bootstrap.")
	}
	v.bootstrapID, v.accountID = r.ID, r.AccountID
	return v, v.checkAfter(ctx)
}

// checkAfter refuses a cursor of events that this database does not know, as after a restore: events would be taken for seen that were
// not.
func (v *view) checkAfter(ctx context.Context) error {
	if !v.resumes {
		return nil
	}
	begun, err := event.Begun(ctx, v.DB.DB, v.position)
	if err != nil || begun {
		return err
	}
	var issues problem.Issues
	issues.Add("after", "is not the cursor of an event of this database: read the bootstraps again and follow anew")
	return issues.Err()
}

// allowed decides whether the caller may have the stream at all.
func (v *view) allowed(ctx context.Context) error {
	_, err := v.readable(ctx, v.accountID)
	return err
}

// readable decides about one account. An error ends the stream; an account that is only left out of it is no denial, and has no audit
// row.
func (v *view) readable(ctx context.Context, accountID string) (bool, error) {
	if v.accountID != "" {
		err := v.Authz.Check(ctx, authz.ProvidersRead, authz.ProviderAccount(v.tenantID, v.accountID))
		return err == nil, err
	}
	f, err := v.Authz.Filter(ctx, authz.ProvidersRead, v.tenantID, authz.ProviderAccounts)
	return err == nil && f.Allows(accountID), err
}

// wants is called by the hub for every event and must not block.
func (v *view) wants(e *event.Event) bool {
	return e.TenantID == v.tenantID &&
		(v.accountID == "" || e.AccountID == v.accountID) &&
		(v.bootstrapID == "" || e.BootstrapID == v.bootstrapID)
}

// follow sends what came before the subscription, then what comes through it.
func (v *view) follow(ctx context.Context, out chan<- *model.BootstrapStatusChange, sub *event.Subscription) error {
	done, err := v.catchUp(ctx, out, sub.Start)
	if done || err != nil {
		return err
	}
	changed := v.Authz.Changes(ctx, v.actor, v.tenantID)
	if err := v.allowed(ctx); err != nil { // it may have changed before we listened
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if _, err := persist(ctx, func() (struct{}, error) { return struct{}{}, v.allowed(ctx) }); err != nil {
				return err
			}
		case e, open := <-sub.C:
			if !open {
				return problem.New(problem.RateLimited, "The stream was closed because its reader did not keep up. Go on from the last cursor.").
					With("reason", "slow_reader").With("retryAfterSeconds", 1)
			}
			if !v.position.Before(e.Position) {
				continue // seen already: the cursor came from a replica that was ahead of this one
			}
			done, err := v.send(ctx, out, e, v.shared)
			if done || err != nil {
				return err
			}
		}
	}
}

// catchUp sends the present state of the one run, or everything after the cursor, up to the start of the subscription.
func (v *view) catchUp(ctx context.Context, out chan<- *model.BootstrapStatusChange, start event.Position) (done bool, err error) {
	if !v.resumes {
		if v.bootstrapID == "" {
			return false, nil
		}
		return v.sendPresent(ctx, out, start)
	}
	for {
		events, err := v.missed(ctx, start)
		if err != nil {
			return false, err
		}
		if v.replay != nil && len(events) > 0 {
			if err := v.replay(ctx, v.tenantID, len(events)); err != nil {
				return false, err
			}
		}
		runs, err := v.runsOf(ctx, events)
		if err != nil {
			return false, err
		}
		for _, e := range events {
			if done, err := v.send(ctx, out, e, runs.of); done || err != nil {
				return done, err
			}
		}
		if len(events) < backfill {
			return v.final(ctx)
		}
	}
}

// missed reads the next events after the cursor that the caller may see: one who may see few of a busy tenant's is not held up by the others, and
// does not pay for them. It knows every change of rights from before it.
func (v *view) missed(ctx context.Context, start event.Position) ([]*event.Event, error) {
	r := event.Range{
		After: v.position, UpTo: start, TenantID: v.tenantID, AccountID: v.accountID, BootstrapID: v.bootstrapID, Limit: backfill,
	}
	if v.accountID == "" {
		var policy int64
		if err := v.DB.NewRaw("SELECT "+authz.PolicyVersion).Scan(ctx, &policy); err != nil {
			return nil, failed("reading the version of the rights", err)
		}
		v.Authz.Reached(policy)
		readable, err := v.Authz.Filter(ctx, authz.ProvidersRead, v.tenantID, authz.ProviderAccounts)
		if err != nil {
			return nil, err
		}
		r.Accounts = readable.Where
	}
	return event.Read(ctx, v.DB.DB, r)
}

// final ends a stream that resumes after the last event of its run, for which none would come any more.
func (v *view) final(ctx context.Context) (bool, error) {
	if v.bootstrapID == "" {
		return false, nil
	}
	e, err := event.Latest(ctx, v.DB.DB, v.tenantID, v.bootstrapID)
	if err != nil || e == nil || v.position.Before(e.Position) {
		return false, err
	}
	_, to, err := states(e)
	return to.Final(), err
}

// sendPresent sends the state that the run has. It is taken from the events and not from the row, which may be further on already: a
// transition would then come twice. It does not wait for the commit horizon, which somebody else's long transaction may hold back.
func (v *view) sendPresent(ctx context.Context, out chan<- *model.BootstrapStatusChange, start event.Position) (done bool, err error) {
	e, err := event.Latest(ctx, v.DB.DB, v.tenantID, v.bootstrapID)
	if err != nil {
		return false, err
	}
	if e != nil {
		return v.deliver(ctx, out, e, v.shared, true)
	}
	r, err := load(ctx, v.DB.DB, v.tenantID, v.bootstrapID)
	if err != nil || r == nil {
		return true, postgres.Translate(err)
	}
	// Without an event the run is either so new that its first one is still to come, or older than the retention.
	if r.Now.Sub(r.StateSince) < event.Retention {
		return false, nil
	}
	b, err := v.judge(ctx, &event.Event{Record: event.Record{BootstrapID: r.ID, AccountID: r.AccountID}}, v.shared)
	if err != nil || b == nil {
		return true, err
	}
	since := model.NewTime(r.StateSince)
	change := &model.BootstrapStatusChange{Cursor: v.cursor(start, r.Now), Bootstrap: b, To: r.Status, At: since}
	if !put(ctx, out, change) {
		return true, nil
	}
	return r.Status.Final(), nil
}

// finder finds the run of an event, as it is now or was at some time after the event; nil when it is not there.
type finder func(context.Context, *event.Event) (*model.Bootstrap, error)

// send passes one event on, unless the caller may not read its account.
func (v *view) send(ctx context.Context, out chan<- *model.BootstrapStatusChange, e *event.Event, find finder) (done bool, err error) {
	return v.deliver(ctx, out, e, find, false)
}

func (v *view) deliver(ctx context.Context, out chan<- *model.BootstrapStatusChange, e *event.Event, find finder, present bool) (done bool, err error) {
	v.position = e.Position
	from, to, err := states(e)
	if err != nil {
		return false, err
	}
	b, err := persist(ctx, func() (*model.Bootstrap, error) { return v.judge(ctx, e, find) })
	if err != nil || b == nil {
		return false, err
	}
	change := &model.BootstrapStatusChange{Cursor: v.cursor(e.Position, e.At), Bootstrap: b, From: from, To: to, At: model.NewTime(e.At)}
	if present {
		change.From = nil
	}
	if !put(ctx, out, change) {
		return true, nil
	}
	return v.bootstrapID != "" && to.Final() && b.Status == to, nil // one that has joined may have failed since: that comes next
}

// judge gives the run of an event that the caller may see now; nil when there is none. It decides last, so that nothing that takes its time
// lies between the decision and the delivery, and knows then every change of rights that the reading of the run knew.
func (v *view) judge(ctx context.Context, e *event.Event, find finder) (*model.Bootstrap, error) {
	b, err := find(ctx, e)
	if err != nil || b == nil {
		return nil, err
	}
	if ok, err := v.readable(ctx, e.AccountID); !ok {
		return nil, err
	}
	return b, nil
}

// persist asks again for a while what cannot be answered right now: a stream outlives a short outage, and tells nothing meanwhile.
func persist[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for deadline := time.Now().Add(outage); ; {
		answer, err := ask()
		if err == nil || problem.From(err).Code != problem.Unavailable || time.Now().After(deadline) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-time.After(askAgain + rand.N(askAgain)): //nolint:gosec // nothing to be guessed
		}
	}
}

// shared finds the run of an event once for all streams whose callers see the same rows: a thousand streams of a tenant cost one
// read an event. Whoever comes first reads for the others too, so it goes on when its own reader leaves.
func (v *view) shared(ctx context.Context, e *event.Event) (*model.Bootstrap, error) {
	scope, err := v.DB.ScopeOf(ctx)
	if err != nil {
		return nil, err
	}
	found, err := e.Share(scope, func() (any, error) {
		ctx, cancel := context.WithTimeout(postgres.WithScope(context.WithoutCancel(ctx), scope), sharedTime)
		defer cancel()
		runs, err := v.runsOf(ctx, []*event.Event{e})
		return runs[e.BootstrapID], err
	})
	b, _ := found.(*model.Bootstrap)
	return b, err
}

// runsOf reads the runs of events in one statement, by id, and makes decisions know of every change of rights from before it. The events
// were written before it as well, so that none, and no state of a run, is shown to anybody whose right ended before it was written.
func (v *view) runsOf(ctx context.Context, events []*event.Event) (runsByID, error) {
	if len(events) == 0 {
		return nil, nil
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.BootstrapID
	}
	var items []*seenRun
	err := v.DB.NewSelect().Model(&items).ModelTableExpr("bootstraps AS b").ColumnExpr(columns).ColumnExpr("? AS policy", bun.Safe(authz.PolicyVersion)).
		Where("b.tenant_id = ?", v.tenantID).Where("b.id IN (?)", bun.List(ids)).Scan(ctx)
	if err != nil {
		return nil, failed("reading the runs of events", err)
	}
	byID := make(runsByID, len(items))
	for _, r := range items {
		v.Authz.Reached(r.Policy)
		byID[r.ID] = &r.Bootstrap
	}
	return byID, nil
}

// seenRun is a run with the version that the rights had when it was read.
type seenRun struct {
	model.Bootstrap
	Policy int64 `bun:"policy,scanonly"`
}

type runsByID map[string]*model.Bootstrap

func (r runsByID) of(_ context.Context, e *event.Event) (*model.Bootstrap, error) {
	return r[e.BootstrapID], nil
}

// put hands over one change, and reports whether it was taken before ctx ended.
func put(ctx context.Context, out chan<- *model.BootstrapStatusChange, c *model.BootstrapStatusChange) bool {
	select {
	case out <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

func states(e *event.Event) (from *model.BootstrapStatus, to model.BootstrapStatus, err error) {
	var envelope struct {
		Data struct {
			From *model.BootstrapStatus `json:"from"`
			To   model.BootstrapStatus  `json:"to"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e.Data, &envelope); err != nil {
		return nil, "", fmt.Errorf("reading event %s: %w", e.Position, err)
	}
	return envelope.Data.From, envelope.Data.To, nil
}

// streamPlace is a position with its time, so that its age can be told without the event.
type streamPlace struct {
	XID       uint64 `json:"x"`
	ID        int64  `json:"i"`
	UnixMilli int64  `json:"t"`
}

func (v *view) cursor(p event.Position, at time.Time) string {
	text, _ := json.Marshal(streamPlace{p.XID, p.ID, at.UnixMilli()}) // of numbers
	return v.list.Seal(text)
}

// resume takes the position to go on from, or says why it cannot.
func (v *view) resume(issues *problem.Issues, after string, now time.Time) {
	place, ok := cursor.Decode[streamPlace](v.list)(after)
	switch {
	case !ok:
		issues.Add("after", "must be the cursor of a message of this subscription, with the same arguments")
	case now.Sub(time.UnixMilli(place.UnixMilli)) > event.Retention:
		issues.Add("after", "is older than seven days: read the bootstraps again and follow anew")
	default:
		v.resumes, v.position = true, event.Position{XID: place.XID, ID: place.ID}
	}
}
