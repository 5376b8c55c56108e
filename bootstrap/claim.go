package bootstrap

import (
	"context"
	"slices"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// intent is what a run means to order, committed before the provider hears of it.
type intent struct {
	OperationID string            `json:"operationId"`
	OfferID     string            `json:"offerId"`
	Kind        model.MachineKind `json:"kind,omitempty"`
	Price       *model.Price      `json:"price,omitempty"`
	// AccountStamp is that of the account when the order was last sent through it.
	AccountStamp string `json:"accountStamp,omitempty"`
}

// kind is the kind of machine that the run orders; empty when it is not known.
func (r *run) kind() model.MachineKind {
	if r.OrderIntent == nil {
		return ""
	}
	return r.OrderIntent.Kind
}

// ordered reports whether the order may have been sent.
func (r *run) ordered() bool { return r.OrderAttemptAt != nil }

// unanswered reports whether the order may have been sent and was never heard of again.
func (r *run) unanswered() bool { return r.ordered() && r.OrderRef == nil && r.MachineID == nil }

// sent reports whether an order of the run may ever have been sent, also where its record was taken back by the provider's clear no or a
// person's word.
func (r *run) sent() bool {
	return r.ordered() || r.OrderIntent != nil && r.OrderIntent.AccountStamp != ""
}

// inDoubt reports whether the run may have ordered a machine that its provider has no sure way to find again.
func (w *work) inDoubt() bool {
	return w.Status == model.Claiming && w.unanswered() && !w.repeatable()
}

// moved reports whether the account, or a secret of it, was changed since the order was sent. It may be another project of the provider
// now, where nobody knows the operation id, so that not finding the order there proves nothing.
func (w *work) moved() bool {
	return w.manifest.Capabilities.ClaimMode != model.ClaimLocal && w.ordered() && w.OrderIntent != nil &&
		w.OrderIntent.AccountStamp != "" && w.OrderIntent.AccountStamp != w.stamp
}

// repeatable reports whether ordering again with the same operation id can bring no second machine.
func (w *work) repeatable() bool {
	switch w.manifest.Capabilities.ClaimMode {
	case model.ClaimToken, model.ClaimUniqueName, model.ClaimLocal:
		return !w.moved()
	case model.ClaimLabel, model.ClaimNone:
	}
	return false
}

// claiming looks for a machine that carries the operation id, and orders one only if there is none and surely none is on its way.
// Every entry, after a restart too, is at the look.
func (r *Reconciler) claiming(ctx context.Context, w *work) (outcome, error) {
	if w.MachineID != nil { // a person said which
		return advance(model.Identifying, nil), nil
	}
	orderer, err := w.orderer()
	if err != nil {
		return outcome{}, err
	}
	if !w.ordered() { // nothing is to be looked for, so nobody needs to be asked while it waits
		if wait, err := untilOrder(ctx, r.DB.DB, w.TenantID, r.OrdersPerHour); err != nil || wait > 0 {
			return r.overOrderLimit(w, wait), err
		}
	}
	if w.OrderIntentAt == nil {
		if err := r.intend(ctx, w); err != nil {
			return outcome{}, err
		}
	}
	r.fault("claiming.intended")
	claim, err := r.look(ctx, w, orderer)
	r.fault("claiming.looked")
	switch {
	case err != nil:
		return r.failedCall(ctx, w, err)
	case claim != nil && !w.sent():
		return r.notOurs(), nil
	case claim != nil:
		return r.claimed(w, claim), nil
	case !w.ordered(), w.unanswered() && w.repeatable():
		return r.order(ctx, w, orderer)
	default:
		return r.unseen(w), nil
	}
}

// intend commits what is about to be ordered. The price is for people: where it cannot be learnt now, the intent has none.
func (r *Reconciler) intend(ctx context.Context, w *work) error {
	in := &intent{OperationID: w.OperationID, OfferID: *w.OfferID}
	offers, err := call(ctx, r.Timing.Call, w.client.Offers)
	if err == nil {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == in.OfferID })
		if i >= 0 {
			in.Kind, in.Price = offers[i].Kind, offers[i].Price
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.fault("claiming.priced")
	err = r.write(ctx, w, fields{
		"order_intent": in, "order_intent_at": now, "step": "ordering", "updated_at": now,
		"deadline_at": fromNow(r.claimDeadline(w, in.Kind)),
	})
	if err == nil {
		r.Meter.Intended()
	}
	return err
}

func (r *Reconciler) look(ctx context.Context, w *work, o provider.Orderer) (*provider.Claim, error) {
	claim, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.Claim, error) {
		return o.FindClaim(ctx, w.OperationID)
	})
	if err != nil && classed(err).Class == provider.NotFound {
		return nil, nil
	}
	return claim, err
}

// order makes the call that costs money. That it is being made is committed first: whoever finds the row like that must look.
func (r *Reconciler) order(ctx context.Context, w *work, o provider.Orderer) (outcome, error) {
	first := !w.ordered()
	if wait, err := r.attempt(ctx, w); err != nil || wait > 0 {
		return r.overOrderLimit(w, wait), err
	}
	r.fault("claiming.attempted")
	if err := w.lease.confirm(ctx, r.DB.DB, w.run); err != nil {
		return outcome{}, err
	}
	claim, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.Claim, error) {
		return o.Order(ctx, provider.Order{OperationID: w.OperationID, OfferID: *w.OfferID})
	})
	r.fault("claiming.ordered")
	if err == nil || mayHaveOrdered(err) {
		r.Meter.Ordered()
	}
	if err == nil && claim != nil {
		return r.claimed(w, claim), nil
	}
	if err == nil || mayHaveOrdered(err) {
		if cause := context.Cause(ctx); cause != nil {
			return outcome{}, cause
		}
		e := provider.Errorf(provider.UnknownOutcome, "The provider did not say whether it took the order.")
		return r.retry(w, e), nil
	}
	if !first {
		return r.failedCall(ctx, w, err) // an earlier attempt may still have had its effect
	}
	w.OrderAttemptAt = nil
	out, err := r.failedCall(ctx, w, err)
	return out.with(fields{"order_attempt_at": nil}), err
}

// mayHaveOrdered reports whether an order that failed like that may have had its effect. Only a driver's clear word says no.
func mayHaveOrdered(err error) bool {
	e, ok := asProviderError(err)
	if !ok {
		return true
	}
	switch e.Class {
	case provider.UnknownOutcome, provider.Timeout, provider.InvalidResponse:
		return true
	default:
		return false
	}
}

// claimed says what a claim means.
func (r *Reconciler) claimed(w *work, claim *provider.Claim) outcome {
	answered := fields{"order_ref": printable(claim.OrderRef, maxRef)}
	switch {
	case claim.State == provider.ClaimFailed:
		return refusedOrder(claim.Err).with(answered).with(fields{"order_attempt_at": nil})
	case claim.State == provider.ClaimReady && namePattern.MatchString(claim.MachineID):
		return advance(model.Identifying, answered.with(fields{"machine_id": claim.MachineID, "order_attempt_at": w.attempted()}))
	case claim.State == provider.ClaimReady:
		return r.retry(w, provider.Errorf(provider.InvalidResponse, "The provider named the machine in no form that is known.")).with(answered)
	default:
		return wait(r.poll(w), "waiting for the machine").with(answered).with(fields{"order_attempt_at": w.attempted()})
	}
}

// attempted keeps the time of the attempt. A claim is proof of one, also where its record was taken back by a person's word.
func (w *work) attempted() any {
	if w.OrderAttemptAt == nil {
		return now
	}
	return *w.OrderAttemptAt
}

// refusedOrder is the failure of a run whose order the provider took and gave up.
func refusedOrder(e *provider.Error) outcome {
	if e == nil {
		return fail(model.OfferOutOfStock, "The provider gave the order up.", nil)
	}
	reason, ok := reasons[e.Class]
	if !ok {
		reason = model.InternalFailure
	}
	return fail(reason, e.Message, nil)
}

// unseen says what it means that an order which was sent cannot be seen.
func (r *Reconciler) unseen(w *work) outcome {
	if !w.unanswered() {
		return wait(r.poll(w), "waiting for the order to show up")
	}
	mode := w.manifest.Capabilities.ClaimMode
	if mode != model.ClaimNone && w.sinceAttempt() < r.lag(w) {
		return wait(r.poll(w), "looking for the order")
	}
	return outcome{kind: waits, pause: pause{
		d: r.Timing.Uncertain, step: "waiting for somebody to say what became of the order", reason: model.ClaimUncertain,
		err: "Whether the provider took the order is not known, and it cannot be looked up.",
	}}
}

// notOurs waits for a person: whoever ordered what carries the operation id, this run did not, and its machine may be in use. A database that was
// restored to before an order is the one good way to get here.
func (r *Reconciler) notOurs() outcome {
	return outcome{kind: waits, pause: pause{
		d: r.Timing.Uncertain, step: "waiting for somebody to say whose the machine is", reason: model.ClaimUncertain,
		err: "The provider has a machine with this operation id, which this bootstrap did not order.",
	}}
}

// lag is how long after an order the provider's lists may not show it.
func (r *Reconciler) lag(w *work) time.Duration { return w.manifest.ListLag + r.Timing.ListMargin }

func (w *work) sinceAttempt() time.Duration { return w.Now.Sub(*w.OrderAttemptAt) }

// poll is how long to wait before looking again at what takes its time: longer the longer it has taken.
func (r *Reconciler) poll(w *work) time.Duration {
	return min(max(w.Now.Sub(w.StateSince)/10, r.Timing.Poll), r.Timing.PollMax)
}

// call bounds a provider call.
func call[T any](ctx context.Context, limit time.Duration, fn func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}
