package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"better/compute/host"
	"better/compute/model"
	"better/compute/provider"
)

// machine is who the run's machine is.
type machine = provider.Identity

func (w *work) bootstrapper() (provider.Bootstrapper, error) {
	b, ok := w.client.(provider.Bootstrapper)
	if !ok {
		return nil, fmt.Errorf("the client of %s is no Bootstrapper although its manifest says so", w.account.Provider)
	}
	return b, nil
}

// identifying reserves the machine, whichever account it is reached through, and then reads who it is.
func (r *Reconciler) identifying(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	key, err := b.MachineKey(*w.MachineID)
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	got, err := r.reserve(ctx, w, key)
	if err != nil {
		return outcome{}, err
	}
	if !got {
		return fail(model.MachineInUse, "The machine is in another bootstrap, or is a host already.", nil), nil
	}
	r.fault("identifying.reserved")
	seen, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.Identity, error) {
		return b.Identify(ctx, *w.MachineID)
	})
	r.fault("identifying.identified")
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	clean := cleanIdentity(*seen)
	if w.Machine != nil && differs(*w.Machine, clean) {
		return fail(model.IdentityMismatch, "The machine is not the one that was identified before.", nil), nil
	}
	return advance(model.Preparing, fields{"machine": clean}), nil
}

func (r *Reconciler) reserve(ctx context.Context, w *work, key string) (got bool, err error) {
	err = r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		// A worker that lost its lease must not reserve for a run that may be over.
		if _, err := update(ctx, guarded(tx, w.run).Set("step = ?", "identifying the machine")); err != nil {
			return err
		}
		got, err = reserve(ctx, tx, key, w.ID)
		return err
	})
	return got, err
}

// differs reports whether two identities contradict each other. What one of them does not know proves nothing.
func differs(a, b machine) bool {
	contradict := func(x, y string) bool { return x != "" && y != "" && x != y }
	return contradict(a.Serial, b.Serial) || contradict(a.OSMachineID, b.OSMachineID) || contradict(a.SSHHostKey, b.SSHHostKey)
}

const maxFact = 256

// cleanIdentity makes safe to store what a machine says of itself.
func cleanIdentity(m machine) machine {
	for _, text := range []*string{&m.Serial, &m.OSMachineID, &m.SSHHostKey, &m.Arch} {
		*text = printable(*text, maxFact)
	}
	m.Addresses = slices.Clone(m.Addresses[:min(len(m.Addresses), maxFact)])
	for i, a := range m.Addresses {
		m.Addresses[i] = printable(a, maxFact)
	}
	m.Disks = slices.Clone(m.Disks[:min(len(m.Disks), maxFact)])
	for i, d := range m.Disks {
		c := *d
		c.Media = printable(c.Media, maxFact)
		m.Disks[i] = &c
	}
	m.GPUs = slices.Clone(m.GPUs[:min(len(m.GPUs), maxFact)])
	for i, g := range m.GPUs {
		c := *g
		c.Model, c.Vendor = printable(c.Model, maxFact), printable(c.Vendor, maxFact)
		m.GPUs[i] = &c
	}
	return m
}

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

// installing delivers the agent with a token and watches the install.
func (r *Reconciler) installing(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	if w.needsToken(r.tokenMargin()) {
		out, err := r.deliver(ctx, w, b)
		if out != nil || err != nil {
			return deliverOutcome(out), err
		}
	}
	status, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.InstallStatus, error) {
		return b.InstallStatus(ctx, *w.MachineID, *w.InstallRef)
	})
	r.fault("installing.polled")
	if err != nil && classed(err).Class == provider.NotFound {
		// The install is forgotten, by a reboot perhaps: deliver again.
		return r.retry(w, classed(err)).with(fields{"delivered_at": nil}), nil
	}
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	switch status.State {
	case provider.InstallSucceeded:
		return advance(model.Installed, nil), nil
	case provider.InstallFailed:
		message := fmt.Sprintf("Installing the agent ended with exit code %d.", status.ExitCode)
		return fail(model.InstallFailed, message, status.Log), nil
	case provider.InstallRunning:
	}
	return wait(r.poll(w), "installing the agent"), nil
}

// installed waits for the agent, and gives it a new token when the one that it has runs out.
func (r *Reconciler) installed(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	if w.needsToken(r.tokenMargin()) {
		out, err := r.deliver(ctx, w, b)
		if out != nil || err != nil {
			return deliverOutcome(out), err
		}
	}
	// Nothing is to be done until then: the join itself ends the run.
	return wait(max(w.TokenExpiresAt.Sub(w.Now)-r.tokenMargin(), r.Timing.Poll), "waiting for the agent to join"), nil
}

const defaultTokenTTL = 15 * time.Minute

func (r *Reconciler) tokenTTL() time.Duration {
	if r.Options == nil || r.Options.TokenTTL <= 0 {
		return defaultTokenTTL
	}
	return r.Options.TokenTTL
}

// tokenMargin is how long before its end a token is replaced.
func (r *Reconciler) tokenMargin() time.Duration { return min(r.tokenTTL()/10, time.Minute) }

// needsToken reports whether the machine has no agent with a token that lives for a while. A delivery that was begun and not
// finished counts for nothing: the token was never kept, so it cannot be delivered again.
func (w *work) needsToken(margin time.Duration) bool {
	return w.DeliveredAt == nil || w.InstallRef == nil || w.TokenExpiresAt == nil || w.TokenExpiresAt.Sub(w.Now) < margin
}

// deliver mints a token and installs the agent with it. It returns nil when that is done, else what came of it.
func (r *Reconciler) deliver(ctx context.Context, w *work, b provider.Bootstrapper) (*outcome, error) {
	if r.Options == nil {
		out := wait(r.Timing.RetryMax, "waiting for this server to be set up to install agents")
		return &out, nil
	}
	generation := w.Generation + 1
	token, hash := host.MintToken(w.ID, generation)
	err := r.write(ctx, w, fields{
		"token_hash": hash, "token_expires_at": fromNow(r.tokenTTL()), "token_used_at": nil, "token_key_hash": nil,
		"generation": generation, "delivered_at": nil, "install_ref": nil,
		"step": "delivering the agent", "updated_at": now,
	})
	if err != nil {
		return nil, err
	}
	r.fault("delivering.minted")
	if !w.lease.valid() {
		return nil, errLost
	}
	ref, err := call(ctx, r.Timing.Deliver, func(ctx context.Context) (string, error) {
		return b.Install(ctx, *w.MachineID, provider.Payload{
			Generation: generation, AgentBinary: r.Options.AgentBinary, AgentURL: r.Options.AgentURL, JoinURL: r.Options.JoinURL,
			CAPin: r.Options.CAPin, Token: token,
		})
	})
	r.fault("delivering.delivered")
	if err != nil {
		out, err := r.failedCall(ctx, w, err)
		return &out, err
	}
	return nil, r.write(ctx, w, fields{"delivered_at": now, "install_ref": strings.ToValidUTF8(ref, "")})
}

func deliverOutcome(out *outcome) outcome {
	if out == nil {
		return outcome{}
	}
	return *out
}
