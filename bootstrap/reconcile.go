package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/slots"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provideraccount"
)

// The levels of slots.
const (
	perAccount = "account"
	perTenant  = "tenant"
)

// newSteps lets one account have an eighth of a replica's workers at a time, and one tenant a quarter: what hangs holds some of them and not all.
func newSteps(workers int) *slots.Set {
	return slots.New(slots.Level{Name: perAccount, PerKey: max(workers/8, 1)}, slots.Level{Name: perTenant, PerKey: max(workers/4, 1)})
}

// Reconciler takes runs a step further. It is told which run to look at and reads from the row what to do. Any number of them, in any number
// of processes, may step the same run: the lease lets one at a time do it.
type Reconciler struct {
	Deps
	// Holder names this process in leases, for people.
	Holder string

	steps *slots.Set
}

// NewReconciler makes a Reconciler.
func NewReconciler(d Deps) *Reconciler {
	d.Timing, d.Meter = d.Timing.withDefaults(), orNoMeter(d.Meter)
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{Deps: d, Holder: rand.Text(), steps: newSteps(defaultWorkers)}
}

// Next says when to step a run again.
type Next struct {
	// Done: nothing is left to do, or somebody else does it.
	Done bool
	// After is how long to wait; zero: go on at once.
	After time.Duration
}

// outcome is what a step came to: exactly one of advance, wait, fail and cleaned makes it.
type outcome struct {
	kind    outcomeKind
	set     fields // learned by the step, written with the outcome
	to      model.BootstrapStatus
	failure *model.BootstrapFailure
	cleanup model.CleanupStatus
	pause   pause
}

type outcomeKind int

const (
	advances outcomeKind = iota
	waits
	fails
	cleans
)

// pause says how long to wait and why.
type pause struct {
	d      time.Duration
	step   string // what is being done, for people
	reason string // what is waited for, a code; empty when all goes well
	err    string // what the provider said
	failed bool   // counts as an attempt
}

// advance goes on to the next state.
func advance(to model.BootstrapStatus, set fields) outcome {
	return outcome{kind: advances, to: to, set: set}
}

// wait looks again later.
func wait(d time.Duration, step string) outcome {
	return outcome{kind: waits, pause: pause{d: d, step: step}}
}

// fail gives the run up.
func fail(reason model.FailureReason, message string, log []string) outcome {
	return outcome{kind: fails, failure: &model.BootstrapFailure{
		Reason: reason, Message: printable(message, maxMessage), LogTail: logTail(log),
	}}
}

// asBefore looks again later, and has learnt nothing meanwhile.
func (w *work) asBefore(d time.Duration) outcome {
	return outcome{kind: waits, pause: pause{d: d, step: w.Step, reason: deref(w.WaitReason), err: w.LastError}}
}

// cleaned ends, or takes further, the cleanup of a failed run.
func cleaned(to model.CleanupStatus) outcome { return outcome{kind: cleans, cleanup: to} }

// with adds to what is written with the outcome.
func (o outcome) with(set fields) outcome {
	o.set = o.set.with(set)
	return o
}

// work is a run in the hands of the worker that holds its lease.
type work struct {
	*run
	lease    *lease
	account  *model.ProviderAccount
	stamp    string // what the account was at its provider before the client was made
	manifest provider.Manifest
	client   provider.Client
}

// Step takes one run one step further, if it needs work and nobody else has it. An error says that the step could not be
// done or written down, and changed nothing in the row's meaning: stepping again is right.
func (r *Reconciler) Step(ctx context.Context, id string) (Next, error) {
	asked := time.Now()
	row, busy, err := acquire(ctx, r.DB.DB, id, r.Holder, r.Timing.Lease)
	if err != nil {
		return Next{}, err
	}
	if row == nil {
		return Next{Done: !busy, After: r.Timing.Poll}, nil
	}
	r.fault("leased")
	held, l := hold(ctx, r.DB.DB, row, r.Timing.Lease, asked)
	w := &work{run: row, lease: l}
	out, err := r.decide(held, w)
	l.stop()
	switch {
	case errors.Is(err, errLost):
		return Next{Done: true}, nil
	case err != nil:
		r.release(ctx, w)
		return Next{}, err
	}
	r.fault("decided")
	next, err := r.settle(ctx, w, out)
	if errors.Is(err, errLost) {
		return Next{Done: true}, nil
	}
	return next, err
}

// decide finds out what the run has come to. Time is up before any call to the provider is made.
func (r *Reconciler) decide(ctx context.Context, w *work) (out outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.lease.stop() // what a panic leaves in the row is the lease, which ends by itself
			panic(p)
		}
	}()
	w.account, err = r.Accounts.Account(ctx, r.DB.DB, w.TenantID, w.AccountID)
	if err != nil {
		return out, fmt.Errorf("reading the account of a run: %w", err)
	}
	var unknown error // as which project: no call is made then, and what was ordered counts as in another one
	w.stamp, unknown = r.Accounts.Stamp(ctx, r.DB.DB, w.account)
	// What a step concludes from one call may be acted on in the next: none may go to another project than the first.
	ctx = provideraccount.AtStamp(ctx, w.stamp)
	w.manifest, _ = r.Accounts.Manifest(w.account.Provider)
	if w.Status != model.Failed {
		if w.CancelRequestedAt != nil { // a person's word, which the end of its time does not change
			return fail(model.Cancelled, "The bootstrap was cancelled.", nil), nil
		}
		if w.overdue() {
			return w.expired(), nil
		}
	}
	if unknown != nil {
		return r.notOpened(ctx, w, unknown)
	}
	release, err := r.steps.Try(slots.Key{Level: perAccount, Name: w.AccountID}, slots.Key{Level: perTenant, Name: w.TenantID})
	if err != nil { // another step has to end first
		return w.asBefore(jitter(r.Timing.Poll, r.Timing.Poll)), nil
	}
	defer release()
	w.client, err = r.Accounts.Open(ctx, w.account)
	if err != nil {
		return r.notOpened(ctx, w, err)
	}
	return r.step(ctx, w)
}

// notOpened says what it means for the run that its account has no client.
func (r *Reconciler) notOpened(ctx context.Context, w *work, err error) (outcome, error) {
	switch {
	case w.Status != model.Failed:
		return r.failedCall(ctx, w, err)
	case w.OfferID == nil:
		return r.notUninstalled(ctx, w, err)
	default:
		return r.cleanupFailure(ctx, w, err)
	}
}

// step is the table of states.
func (r *Reconciler) step(ctx context.Context, w *work) (outcome, error) {
	switch w.Status {
	case model.Preparing, model.Installing, model.Installed:
		if same, err := r.same(ctx, w); !same || err != nil {
			return fail(model.IdentityMismatch, "The account's config names another machine by this id than it did.", nil), err
		}
	default:
	}
	switch w.Status {
	case model.Claiming:
		return r.claiming(ctx, w)
	case model.Identifying:
		return r.identifying(ctx, w)
	case model.Preparing:
		return r.preparing(ctx, w)
	case model.Installing:
		return r.installing(ctx, w)
	case model.Installed:
		return r.installed(ctx, w)
	case model.Failed:
		return r.cleaning(ctx, w)
	case model.Joined: // needs no work, so no lease on it can be had
	}
	return outcome{}, fmt.Errorf("a run in state %s needs no step", w.Status)
}

// settle writes the outcome, under the epoch, and gives the lease back with it.
func (r *Reconciler) settle(ctx context.Context, w *work, out outcome) (next Next, err error) {
	switch out.kind {
	case waits:
		return r.settleWait(ctx, w, out)
	case cleans:
		return r.settleCleanup(ctx, w, out)
	case fails:
		out.to = model.Failed
		out.set = w.failing(out)
	case advances:
	}
	c := change{from: &w.Status, to: out.to, limit: r.Timing.limit(out.to), set: out.set}
	if out.failure != nil {
		reason := string(out.failure.Reason)
		c.reason = &reason
	}
	var stayed time.Duration
	err = r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		after, err := transition(ctx, tx, guarded(tx, w.run), c)
		if err != nil {
			return err
		}
		stayed = after.StateSince.Sub(w.StateSince)
		r.fault("transition")
		if after.LiveAccountID == nil {
			return unreserve(ctx, tx, after.ID)
		}
		return nil
	})
	r.fault("settled")
	if err == nil {
		r.Meter.Left(w.Status, c.to, deref(c.reason), stayed)
	}
	return Next{}, err
}

func (r *Reconciler) settleWait(ctx context.Context, w *work, out outcome) (Next, error) {
	p := out.pause
	d := p.d
	if w.DeadlineAt != nil && w.DeadlineAt.After(w.Now) {
		d = min(d, w.DeadlineAt.Sub(w.Now))
	}
	attempt := w.Attempt
	if p.failed {
		attempt++
	}
	if w.uncertain() && p.reason != "" {
		p.reason = model.ClaimUncertain // a failed look leaves the question open
	}
	set := fields{
		"next_at": fromNow(d), "lease_until": nil, "step": p.step, "wait_reason": nullable(p.reason), "last_error": p.err,
		"attempt": attempt,
	}
	if p.step != w.Step || p.reason != deref(w.WaitReason) || attempt != w.Attempt {
		set["updated_at"] = now
	}
	_, err := update(ctx, set.with(out.set).apply(guarded(r.DB.DB, w.run)))
	r.fault("waiting")
	return Next{After: max(d, time.Millisecond)}, err
}

func (r *Reconciler) settleCleanup(ctx context.Context, w *work, out outcome) (Next, error) {
	set := fields{
		"cleanup": out.cleanup, "step": "", "wait_reason": nil, "last_error": "", "attempt": 0, "updated_at": now,
		"next_at": now, "lease_until": nil,
	}
	err := r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		after, err := update(ctx, set.with(out.set).apply(guarded(tx, w.run)))
		if err != nil || after.LiveAccountID != nil {
			return err
		}
		return unreserve(ctx, tx, after.ID)
	})
	r.fault("cleaned")
	return Next{}, err
}

// write commits something within a step, before the step goes on.
func (r *Reconciler) write(ctx context.Context, w *work, set fields) error {
	after, err := update(ctx, set.apply(guarded(r.DB.DB, w.run)))
	if err != nil {
		return err
	}
	w.run = after
	return nil
}

// release gives the lease back after a step that failed, so that the next need not wait for it to end.
func (r *Reconciler) release(ctx context.Context, w *work) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = update(ctx, fields{"lease_until": nil}.apply(guarded(r.DB.DB, w.run))) // it ends by itself otherwise
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
