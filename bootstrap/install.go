package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"better/compute/host"
	"better/compute/model"
	"better/compute/provider"
)

// installing delivers the agent with a token and watches the install. The token lives for its time after the install was last seen under way:
// most drivers bake it into what they install, so that a new one would mean to begin again what may take longer than a token lives. For the same
// reason it lives, once the agent is installed, for as long as the run waits for it.
func (r *Reconciler) installing(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	if !w.delivered() {
		if out, done, err := r.deliver(ctx, w, b); !done {
			return out, err
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
		return advance(model.Installed, fields{"token_expires_at": fromNow(max(r.tokenTTL(), r.Timing.Installed))}), nil
	case provider.InstallFailed:
		message := fmt.Sprintf("Installing the agent ended with exit code %d.", status.ExitCode)
		return fail(model.InstallFailed, message, status.Log), nil
	case provider.InstallRunning:
	}
	return wait(r.poll(w), "installing the agent").with(r.tokenLives()), nil
}

// installed waits for the agent, and gives it a new token when the one that it has was not delivered to the end, or runs out before the run's time.
func (r *Reconciler) installed(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	if w.needsToken(r.tokenMargin()) {
		if out, done, err := r.deliver(ctx, w, b); !done {
			return out, err
		}
	}
	// Nothing is to be done until the token is to be replaced: the join itself ends the run.
	until := w.TokenExpiresAt.Add(-r.tokenMargin())
	if w.tokenOutlives() {
		until = w.DeadlineAt.Time
	}
	return wait(max(until.Sub(w.Now), r.Timing.Poll), "waiting for the agent to join"), nil
}

const defaultTokenTTL = 15 * time.Minute

func (r *Reconciler) tokenTTL() time.Duration {
	if r.Options == nil || r.Options.TokenTTL <= 0 {
		return defaultTokenTTL
	}
	return r.Options.TokenTTL
}

// tokenLives lets the token that was delivered live for its time from now on.
func (r *Reconciler) tokenLives() fields { return fields{"token_expires_at": fromNow(r.tokenTTL())} }

// tokenMargin is how long before its end a token is replaced.
func (r *Reconciler) tokenMargin() time.Duration { return min(r.tokenTTL()/10, time.Minute) }

// delivered reports whether the machine was given an agent with a token. A delivery that was begun and not finished counts for nothing:
// the token was never kept, so it cannot be delivered again.
func (w *work) delivered() bool {
	return w.DeliveredAt != nil && w.InstallRef != nil && w.TokenExpiresAt != nil
}

// needsToken reports whether the machine has no agent with a token that lives for a while, or for as long as the run waits for it.
func (w *work) needsToken(margin time.Duration) bool {
	return !w.delivered() || w.TokenExpiresAt.Sub(w.Now) < margin && !w.tokenOutlives()
}

// tokenOutlives reports whether the token lives until the time of the run's state is up.
func (w *work) tokenOutlives() bool { return !w.TokenExpiresAt.Before(w.DeadlineAt.Time) }

// deliver mints a token and installs the agent with it. When that is not done, the outcome says what came of it.
func (r *Reconciler) deliver(ctx context.Context, w *work, b provider.Bootstrapper) (out outcome, done bool, err error) {
	if r.Options == nil {
		return wait(r.Timing.RetryMax, "waiting for this server to be set up to install agents"), false, nil
	}
	generation := w.Generation + 1
	token, hash := host.MintToken(w.ID, generation)
	err = r.write(ctx, w, fields{
		"token_hash": hash, "token_expires_at": fromNow(r.tokenTTL()), "token_used_at": nil, "token_key_hash": nil,
		"generation": generation, "delivered_at": nil, "install_ref": nil,
		"step": "delivering the agent", "updated_at": now,
	})
	if err != nil {
		return out, false, err
	}
	r.fault("delivering.minted")
	if err := w.lease.confirm(ctx, r.DB.DB, w.run); err != nil {
		return out, false, err
	}
	ref, err := call(ctx, r.Timing.Deliver, func(ctx context.Context) (string, error) {
		return b.Install(ctx, *w.MachineID, provider.Payload{
			Generation: generation, AgentBinary: r.Options.AgentBinary, JoinURL: r.Options.JoinURL,
			CAPin: r.Options.CAPin(), Token: token,
		})
	})
	r.fault("delivering.delivered")
	switch {
	case err != nil:
		out, err = r.failedCall(ctx, w, withoutToken(err, token))
	case printable(ref, maxRef) != ref:
		out = r.retry(w, provider.Errorf(provider.InvalidResponse, "The provider named the install in no form that is known."))
	default:
		err = r.write(ctx, w, fields{"delivered_at": now, "install_ref": ref})
		return out, err == nil, err
	}
	return out, false, err
}

// tokenPiece is how many characters of a token's secret in a row are struck out. Fewer come together by chance.
const tokenPiece = 8

// withoutToken strikes the token out of what an install that failed has to say: a machine, or its shell, may have answered with what it
// was sent.
func withoutToken(err error, token string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	clean := *e
	clean.Message = strikeOut(e.Message, token)
	clean.Log = make([]string, len(e.Log))
	for i, line := range e.Log {
		clean.Log[i] = strikeOut(line, token)
	}
	return &clean
}

// strikeOut takes every piece of the token's secret, its last part, out of a text, whatever stands between the pieces.
func strikeOut(text, token string) string {
	secret := token[strings.LastIndexByte(token, '.')+1:]
	text = printable(text, len(text))
	for from := 0; from+tokenPiece <= len(secret); from++ {
		for size := len(secret) - from; size >= tokenPiece; size-- {
			text = strings.ReplaceAll(text, secret[from:from+size], "[token]")
		}
	}
	return text
}
