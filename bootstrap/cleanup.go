package bootstrap

import (
	"context"
	"fmt"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// uninstallAttempts is how often to try to stop the agent on a machine that is left to its owner.
const uninstallAttempts = 5

// cleaning takes the cleanup of a failed run a step further: what the run ordered is given back, a machine that was named is left.
func (r *Reconciler) cleaning(ctx context.Context, w *work) (outcome, error) {
	switch {
	case w.OfferID == nil:
		return r.uninstall(ctx, w)
	case !w.ordered() && w.MachineID == nil:
		return r.nothingOrdered(ctx, w)
	case r.keptFor(w) > 0:
		return wait(r.keptFor(w), "keeping the machine for a retry"), nil
	case w.Cleanup == model.CleanupPending:
		return cleaned(model.CleanupReleasing), nil // the intent, before the provider hears of it
	default:
		return r.giveBack(ctx, w)
	}
}

func (w *work) orderer() (provider.Orderer, error) {
	o, ok := w.client.(provider.Orderer)
	if !ok {
		return nil, fmt.Errorf("the client of %s is no Orderer although its manifest says so", w.account.Provider)
	}
	return o, nil
}

// keptFor is how long the machine that a run ordered is still left for somebody to try again. Who cancels wants to try no more.
func (r *Reconciler) keptFor(w *work) time.Duration {
	if w.Cleanup != model.CleanupPending || w.MachineID == nil || w.CancelRequestedAt != nil {
		return 0
	}
	return r.Timing.KeepFailed - w.Now.Sub(w.StateSince)
}

// uninstall stops the agent as well as can be.
func (r *Reconciler) uninstall(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	if same, err := r.same(ctx, w); !same || err != nil {
		return cleaned(model.CleanupKept), err
	}
	_, err = call(ctx, r.Timing.Call, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.Uninstall(ctx, *w.MachineID)
	})
	r.fault("cleaning.uninstalled")
	if err == nil {
		return cleaned(model.CleanupKept), nil
	}
	return r.notUninstalled(ctx, w, err)
}

// notUninstalled tries a few times more, while the error may pass.
func (r *Reconciler) notUninstalled(ctx context.Context, w *work, err error) (outcome, error) {
	if ours := notTheirs(ctx, err); ours != nil {
		return outcome{}, ours
	}
	if !curable(classed(err).Class) || w.Attempt+1 >= uninstallAttempts {
		return cleaned(model.CleanupKept), nil
	}
	return r.cleanupRetry(w, err), nil
}

// curable reports whether an error may pass: by itself, or because somebody writes the secret anew.
func curable(c provider.Class) bool {
	return c.Retryable() || c == provider.SecretUnresolved || c == provider.Auth || c == provider.Forbidden
}

// nothingOrdered ends the cleanup on a person's word that there is nothing to give back, unless the provider shows that there is.
func (r *Reconciler) nothingOrdered(ctx context.Context, w *work) (outcome, error) {
	if !w.sent() {
		return cleaned(model.CleanupReleased), nil
	}
	orderer, err := w.orderer()
	if err != nil {
		return outcome{}, err
	}
	claim, err := r.look(ctx, w, orderer)
	switch {
	case err != nil && context.Cause(ctx) == nil && !classed(err).Class.Retryable():
		return cleaned(model.CleanupReleased), nil // an account that cannot be asked any more must not hold the word up
	case err != nil:
		return r.cleanupFailure(ctx, w, err)
	case claim == nil, claim.State == provider.ClaimFailed:
		return cleaned(model.CleanupReleased), nil
	case claim.MachineID == "":
		return r.cleanupRetry(w, provider.Errorf(provider.Conflict, "The machine is not delivered yet.")), nil
	}
	return r.releaseMachine(ctx, w, orderer, claim)
}

// giveBack releases what carries the operation id. It goes on until the provider has said that there is nothing any more.
func (r *Reconciler) giveBack(ctx context.Context, w *work) (outcome, error) {
	orderer, err := w.orderer()
	if err != nil {
		return outcome{}, err
	}
	claim, err := r.look(ctx, w, orderer)
	r.fault("cleaning.looked")
	if err != nil {
		return r.cleanupFailure(ctx, w, err)
	}
	switch {
	case claim != nil && claim.State == provider.ClaimFailed:
		return cleaned(model.CleanupReleased), nil
	case claim == nil && w.moved():
		return r.nothingFound(w), nil // a machine of that id is not there either, and may be in the account's former project
	case w.brought(claim) != "":
		return r.releaseMachine(ctx, w, orderer, claim)
	case claim != nil:
		out := r.cleanupRetry(w, provider.Errorf(provider.Conflict, "The machine is not delivered yet."))
		out.pause.reason = "" // it is certain now that there is one
		return out, nil
	default:
		return r.nothingFound(w), nil
	}
}

// brought is the machine that the order brought: the provider's word counts more than the row's, which may be a person's.
func (w *work) brought(claim *provider.Claim) string {
	if claim != nil && claim.MachineID != "" {
		return claim.MachineID
	}
	return deref(w.MachineID)
}

func (r *Reconciler) releaseMachine(ctx context.Context, w *work, o provider.Orderer, claim *provider.Claim) (outcome, error) {
	machineID := w.brought(claim)
	holder, err := r.takeBack(ctx, w, machineID)
	switch {
	case err != nil:
		return outcome{}, err
	case holder != heldByUs && claim == nil && w.named():
		return r.misnamed(provider.Errorf(provider.Conflict, "Another bootstrap or host has the machine that was named.")), nil
	case holder == heldByHost:
		return cleaned(model.CleanupKept), nil
	case holder == heldByRun:
		return r.cleanupRetry(w, provider.Errorf(provider.Conflict, "Another bootstrap has the machine.")), nil
	}
	if w.MachineID == nil {
		// Once it is given back it cannot be found any more: whoever goes on after a crash must know what was.
		if err := r.write(ctx, w, fields{"machine_id": machineID}); err != nil {
			return outcome{}, err
		}
		r.fault("cleaning.named")
	}
	if err := w.lease.confirm(ctx, r.DB.DB, w.run); err != nil {
		return outcome{}, err
	}
	_, err = call(ctx, r.Timing.Call, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, o.Release(ctx, w.OperationID, machineID)
	})
	r.fault("cleaning.released")
	return r.released(ctx, w, o, claim, err)
}

// released says what came of a release. A machine that a person named, and that nobody has seen by its operation or met, proves nothing by not being
// there.
func (r *Reconciler) released(ctx context.Context, w *work, o provider.Orderer, claim *provider.Claim, err error) (outcome, error) {
	switch {
	case err != nil && classed(err).Class == provider.IdentityChanged && w.named():
		return r.misnamed(classed(err)), nil
	case err != nil && classed(err).Class != provider.NotFound:
		return r.cleanupFailure(ctx, w, err)
	case claim == nil && w.Machine == nil && w.named():
		return r.misnamed(provider.Errorf(provider.NotFound, "The machine that was named is not there.")), nil
	default:
		return r.gone(ctx, w, o)
	}
}

// named reports whether what the order brought is a person's word.
func (r *run) named() bool { return deref(r.ClaimResolution) == resolvedMachine }

// misnamed asks again: a person named a machine that the order did not bring, and what it did bring is as unknown as before.
func (r *Reconciler) misnamed(e *provider.Error) outcome {
	out := r.blocked(e)
	out.pause.reason = model.ClaimUncertain
	return out
}

// gone believes a release only when the provider does not show the machine any more: that there is none of an id is no news where the
// provider gave a wrong id. Until the machine was met by that id, its lists have the time that they may lag, too.
func (r *Reconciler) gone(ctx context.Context, w *work, o provider.Orderer) (outcome, error) {
	claim, err := r.look(ctx, w, o)
	switch {
	case err != nil:
		return r.cleanupFailure(ctx, w, err)
	case claim != nil && claim.State == provider.ClaimFailed:
		return cleaned(model.CleanupReleased), nil
	case claim == nil && w.ordered() && w.Machine == nil && r.lag(w) > w.sinceAttempt():
		return outcome{kind: waits, pause: pause{d: r.lag(w) - w.sinceAttempt(), step: "looking for what was ordered", reason: deref(w.WaitReason)}}, nil
	case claim == nil:
		return cleaned(model.CleanupReleased), nil
	}
	out := r.cleanupRetry(w, provider.Errorf(provider.Conflict, "The provider still shows the machine."))
	out.pause.reason = ""
	return out, nil
}

// takeBack reserves the machine for its release, and tells who has it otherwise: a run that named the machine before the one that ordered it
// came to reserve it has made it its own, and so has one that knows it by another name. When that run ends without a host the machine is still to be given back.
func (r *Reconciler) takeBack(ctx context.Context, w *work, machineID string) (holder, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return 0, err
	}
	key, err := b.MachineKey(machineID)
	if err != nil {
		return heldByUs, nil //nolint:nilerr // nobody can have reserved what has no key
	}
	keys := []string{key}
	if w.Machine != nil {
		keys = append(keys, identityKeys(*w.Machine)...)
	}
	for _, key := range keys {
		mine, err := r.reserve(ctx, w, key, "giving the machine back")
		if err != nil {
			return heldByUs, err
		}
		if !mine {
			return holderOf(ctx, r.DB.DB, key)
		}
	}
	if w.Machine == nil {
		return heldByUs, nil
	}
	isHost, err := hostSays(ctx, r.DB.DB, w.TenantID, w.Machine.Serial)
	if isHost {
		return heldByHost, err
	}
	return heldByUs, err
}

// nothingFound believes the provider's lists once they cannot lag any more, where they are all that is known. An order that was never
// answered and carries only a label, or nothing, may be there all the same, and one that the provider has acknowledged is: a
// person has to look. The run goes on looking too.
func (r *Reconciler) nothingFound(w *work) outcome {
	if wait := r.lag(w) - w.sinceAttempt(); wait > 0 {
		return outcome{kind: waits, pause: pause{d: wait, step: "looking for what was ordered", reason: deref(w.WaitReason)}}
	}
	acknowledged := w.OrderRef != nil && w.manifest.Capabilities.ClaimMode != model.ClaimLocal
	if w.repeatable() && !acknowledged {
		return cleaned(model.CleanupReleased)
	}
	doubt := "Whether the provider took the order is not known, and it cannot be looked up."
	if acknowledged {
		doubt = "The provider took the order and does not show the machine."
	}
	out := r.cleanupRetry(w, provider.Errorf(provider.NotFound, "%s", doubt))
	out.pause.reason, out.pause.step = model.ClaimUncertain, "waiting for somebody to say what became of the order"
	return out.with(fields{"cleanup": model.CleanupBlocked})
}

// cleanupFailure tries again later, without end; what cannot pass by itself is blocked until a person acts.
func (r *Reconciler) cleanupFailure(ctx context.Context, w *work, err error) (outcome, error) {
	if ours := notTheirs(ctx, err); ours != nil {
		return outcome{}, ours
	}
	e := classed(err)
	switch {
	case e.Class == provider.Auth || e.Class == provider.Forbidden:
		return r.refused(e.Message), nil
	case e.Class == provider.RateLimited:
		return r.rateLimited(w, e), nil
	case e.Class.Retryable(), e.Class == provider.SecretUnresolved:
		return r.cleanupRetry(w, err), nil
	default:
		return r.blocked(e), nil
	}
}

// cleanupRetry waits up to Cleanup, up to CleanupMax, longer from attempt to attempt, by a random time of at least half of it.
func (r *Reconciler) cleanupRetry(w *work, err error) outcome {
	e := classed(err)
	d := r.Timing.CleanupMax
	if w.Attempt < 32 && r.Timing.Cleanup < d>>w.Attempt {
		d = r.Timing.Cleanup << w.Attempt
	}
	return outcome{kind: waits, pause: pause{
		d: jitter(d/2, d/2), step: "giving the machine back", reason: waitReason(e.Class), err: printable(e.Message, maxMessage), failed: true,
	}}
}

// blocked needs a person, and looks again now and then whether one has acted.
func (r *Reconciler) blocked(e *provider.Error) outcome {
	return outcome{kind: waits, pause: pause{
		d: r.Timing.CleanupMax, step: "waiting for somebody to give the machine back", reason: waitReason(e.Class),
		err: printable(e.Message, maxMessage),
	}}.with(fields{"cleanup": model.CleanupBlocked})
}
