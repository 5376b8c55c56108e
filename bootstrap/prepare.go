package bootstrap

import (
	"context"
	"fmt"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

const (
	defaultPrepareWait = 2 * time.Second
	maxPrepareWait     = time.Minute
)

// preparing takes the machine towards being installable, a step each time.
func (r *Reconciler) preparing(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	p, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.Preparation, error) {
		return b.Prepare(ctx, *w.MachineID)
	})
	r.fault("preparing.prepared")
	if e, ok := asProviderError(err); ok && e.Class == provider.Fatal && notTheirs(ctx, err) == nil {
		return fail(model.RebootFailed, e.Message, e.Log), nil // locked, protected, in maintenance: its owner has to see to it
	}
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	if p.ClockOffset != nil && p.ClockOffset.Abs() > r.Timing.ClockSkew {
		return fail(model.ClockSkew, fmt.Sprintf("The machine's clock is off by %s.", p.ClockOffset.Round(time.Second)), nil), nil
	}
	set := fields{"boot_id": nullable(printable(p.BootID, maxFact))}
	if p.Ready {
		return advance(model.Installing, set), nil
	}
	d := p.Wait
	if d <= 0 {
		d = min(defaultPrepareWait, r.Timing.PollMax)
	}
	return wait(min(d, maxPrepareWait), printable(p.Step, maxMessage)).with(set), nil
}
