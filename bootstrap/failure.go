package bootstrap

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

const (
	maxMessage  = 500
	maxLogLines = 40
	maxRef      = 1000
	// maxRetryAfter bounds what a provider can ask for.
	maxRetryAfter = 8 * time.Hour
)

// The codes of what a run may wait for, beside model.ClaimUncertain.
const (
	waitsForCredentials = string(model.CredentialsRejected)
	waitsForSSH         = string(model.SSHUnreachable)
	waitsForClock       = string(model.ClockSkew)
)

// reasons are the classes of error that end a run, and as what.
var reasons = map[provider.Class]model.FailureReason{
	provider.OfferGone:        model.OfferGone,
	provider.OutOfStock:       model.OfferOutOfStock,
	provider.Quota:            model.QuotaExceeded,
	provider.Payment:          model.PaymentRequired,
	provider.SecretUnresolved: model.SecretUnresolved,
	provider.NotFound:         model.MachineNotFound,
	provider.IdentityChanged:  model.IdentityMismatch,
	provider.SSHAuth:          model.SSHAuthFailed,
	provider.SSHHostKey:       model.HostKeyChanged,
	provider.InstallError:     model.InstallFailed,
	provider.InvalidConfig:    model.InternalFailure,
	provider.Unsupported:      model.InternalFailure,
	provider.Fatal:            model.InternalFailure,
}

// notTheirs is the error of a call that means nothing for the run, as it was not the provider's: the worker is stopped or has lost the lease, or the
// database is away.
func notTheirs(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if problem.Is(err, problem.Unavailable) {
		return err
	}
	return nil
}

// failedCall says what a failed provider call means for the run.
func (r *Reconciler) failedCall(ctx context.Context, w *work, err error) (outcome, error) {
	if ours := notTheirs(ctx, err); ours != nil {
		return outcome{}, ours
	}
	e := classed(err)
	switch e.Class {
	case provider.Auth, provider.Forbidden:
		if !w.ordered() {
			return fail(model.CredentialsRejected, e.Message, nil), nil
		}
		return r.refused(e.Message), nil
	case provider.RateLimited:
		return r.rateLimited(w, e), nil
	default:
	}
	if reason, ends := reasons[e.Class]; ends {
		return fail(reason, e.Message, e.Log), nil
	}
	return r.retry(w, e), nil
}

// classed is the driver's error; what no driver has classed says nothing of its text.
func classed(err error) *provider.Error {
	if e, ok := asProviderError(err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return provider.Errorf(provider.Timeout, "The provider did not answer in time.").Because(err)
	}
	return provider.Errorf(provider.Unavailable, "The provider cannot be reached right now.").Because(err)
}

// refused waits until the account takes calls again, because it was updated, or the state's time is up:
// until then its client answers without asking the provider. Failing at once would lose what was ordered.
func (r *Reconciler) refused(message string) outcome {
	return outcome{kind: waits, pause: pause{
		d: r.Timing.PollMax, step: "waiting for the account to be updated", reason: waitsForCredentials, err: printable(message, maxMessage),
	}}
}

func (r *Reconciler) rateLimited(w *work, e *provider.Error) outcome {
	d := r.asked(e)
	if d <= 0 {
		d = jitter(r.Timing.Retry, r.Timing.RetryMax)
	}
	return outcome{kind: waits, pause: pause{d: d, step: w.Step, reason: waitReason(e.Class), err: printable(e.Message, maxMessage)}}
}

// retry waits longer from attempt to attempt, by a random time, so that runs that failed together do not come back together.
func (r *Reconciler) retry(w *work, e *provider.Error) outcome {
	d := max(r.asked(e), backoff(r.Timing.Retry, r.Timing.RetryMax, w.Attempt))
	return outcome{kind: waits, pause: pause{
		d: d, step: w.Step, reason: waitReason(e.Class), err: printable(e.Message, maxMessage), failed: true,
	}}
}

// asked is how long the provider asked to wait, and a random time longer, since it asked all runs of the account; zero where it did not.
func (r *Reconciler) asked(e *provider.Error) time.Duration {
	d := min(e.RetryAfter, maxRetryAfter)
	if d <= 0 {
		return 0
	}
	return jitter(d, min(d, r.Timing.RetryMax))
}

func waitReason(c provider.Class) string { return strings.ToUpper(string(c)) }

// backoff is a random time up to base x 2^attempt, and up to limit.
func backoff(base, limit time.Duration, attempt int) time.Duration {
	d := limit
	if attempt < 32 && base < limit>>attempt {
		d = base << attempt
	}
	return jitter(0, d)
}

// jitter is a random time of at least d, and less than d and spread.
func jitter(d, spread time.Duration) time.Duration {
	return d + rand.N(max(spread, 1)) //nolint:gosec // nothing hangs on it being hard to guess
}

// overdue reports whether the time of the run's state is up. An order whose outcome is unknown is waited for as long as it
// takes: failing would lose it.
func (w *work) overdue() bool {
	return w.DeadlineAt != nil && !w.DeadlineAt.After(w.Now) && !w.inDoubt()
}

// expired is the failure of a run whose time in its state is up.
func (w *work) expired() outcome {
	reason, message := w.expiry()
	if w.LastError != "" {
		message += " The last that was heard: " + w.LastError
	}
	return fail(reason, message, nil)
}

func (w *work) expiry() (model.FailureReason, string) {
	switch deref(w.WaitReason) {
	case waitsForCredentials:
		return model.CredentialsRejected, "The account's credentials were refused, and it was not updated in time."
	case waitsForSSH:
		return model.SSHUnreachable, "The machine could not be reached over SSH in time."
	case waitsForClock:
		return model.ClockSkew, "The machine's clock was off when its agent asked to join, and was not set right in time."
	case waitsForOrderLimit:
		return model.ClaimTimeout, "The limit of the tenant's orders left no room for the order in time."
	}
	switch w.Status {
	case model.Claiming:
		return model.ClaimTimeout, "The provider did not deliver the machine in time."
	case model.Identifying:
		return model.MachineNotFound, "The machine could not be identified in time."
	case model.Preparing:
		return model.RebootFailed, "The machine did not become ready to be installed in time."
	case model.Installing:
		return model.InstallTimeout, "Installing the agent took too long."
	case model.Installed:
		return model.JoinTimeout, "The agent was installed and did not join in time."
	case model.Joined, model.Failed:
	}
	return model.InternalFailure, "The run took too long."
}

// failing is what a failure writes beside the status: the token is revoked, and the machine is due to be cleaned up where this
// run has touched it.
func (w *work) failing(out outcome) fields {
	attempted := w.OrderAttemptAt != nil
	if v, written := out.set["order_attempt_at"]; written {
		attempted = v != nil
	}
	cleanup := model.CleanupNone
	switch {
	case attempted, w.Generation > 0:
		cleanup = model.CleanupPending
	case w.OfferID == nil && w.Machine != nil:
		cleanup = model.CleanupKept
	}
	return out.set.with(fields{
		"failure": out.failure, "token_hash": nil, "token_expires_at": nil, "cleanup": cleanup,
	})
}

// printable makes a text from outside safe to store and to show: valid, without control characters, and not longer than limit.
func printable(s string, limit int) string {
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(s, "") {
		if b.Len()+len(string(c)) > limit {
			break
		}
		switch {
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case unicode.IsSpace(c):
			b.WriteByte(' ')
		}
	}
	return strings.TrimSpace(b.String())
}

// logTail is the last lines of an install's output.
func logTail(lines []string) []string {
	lines = lines[max(0, len(lines)-maxLogLines):]
	tail := make([]string, len(lines))
	for i, line := range lines {
		tail[i] = printable(line, maxMessage)
	}
	return tail
}

func asProviderError(err error) (*provider.Error, bool) { return errors.AsType[*provider.Error](err) }
