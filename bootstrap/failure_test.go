package bootstrap

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// Each error that ends a run, in each call where it can happen, with the reason that a user sees and what becomes of the machine.
func TestFailureReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method  string
		class   provider.Class
		named   bool
		reason  model.FailureReason
		cleanup model.CleanupStatus
	}{
		{"find", provider.Auth, false, model.CredentialsRejected, model.CleanupNone},
		{"find", provider.SecretUnresolved, false, model.SecretUnresolved, model.CleanupNone},
		{"order", provider.OfferGone, false, model.OfferGone, model.CleanupNone},
		{"order", provider.OutOfStock, false, model.OfferOutOfStock, model.CleanupNone},
		{"order", provider.Quota, false, model.QuotaExceeded, model.CleanupNone},
		{"order", provider.Payment, false, model.PaymentRequired, model.CleanupNone},
		{"order", provider.Auth, false, model.CredentialsRejected, model.CleanupNone},
		{"order", provider.Forbidden, false, model.CredentialsRejected, model.CleanupNone},
		{"order", provider.Fatal, false, model.InternalFailure, model.CleanupNone},
		{"identify", provider.NotFound, false, model.MachineNotFound, model.CleanupReleased},
		{"identify", provider.NotFound, true, model.MachineNotFound, model.CleanupNone},
		{"identify", provider.Auth, true, model.CredentialsRejected, model.CleanupNone},
		{"identify", provider.IdentityChanged, true, model.IdentityMismatch, model.CleanupNone},
		{"identify", provider.SSHHostKey, true, model.HostKeyChanged, model.CleanupNone},
		{"prepare", provider.SSHAuth, true, model.SSHAuthFailed, model.CleanupKept},
		{"prepare", provider.SSHHostKey, false, model.HostKeyChanged, model.CleanupReleased},
		{"install", provider.InstallError, true, model.InstallFailed, model.CleanupKept},
		{"install", provider.SSHAuth, false, model.SSHAuthFailed, model.CleanupReleased},
		{"status", provider.InvalidConfig, true, model.InternalFailure, model.CleanupKept},
		{"prepare", provider.Fatal, true, model.RebootFailed, model.CleanupKept},
	} {
		name := test.method + "/" + string(test.class) + map[bool]string{true: "/named"}[test.named]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			in := b.offer("k")
			if test.named {
				in = b.machine("box", "k")
			}
			runID := b.start(in)
			b.cloud.next(test.method, failsWith(test.class))
			if test.class == provider.Auth {
				b.cloud.next(test.method, failsWith(test.class), failsWith(test.class))
			}
			r := b.driveToEnd(runID)
			equal(t, "reason", r.Failure.Reason, test.reason)
			equal(t, "message", r.Failure.Message, "scripted "+string(test.class))
			equal(t, "cleanup", r.Cleanup, test.cleanup)
			equal(t, "reservations", b.reservations(runID), 0)
			equal(t, "leaked", b.cloud.leaked(nil), 0)
			if r.TokenHash != nil || r.LiveAccountID != nil {
				t.Errorf("a failed run still has a token or needs its account: %+v", r)
			}
			events := b.events(runID)
			equal(t, "last event", events[len(events)-1], "failed failed")
			if err := b.join(runID); err == nil {
				t.Error("a failed run was joined")
			}
		})
	}
}

func TestInstallFailureHasLog(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.status = provider.InstallStatus{State: provider.InstallFailed, ExitCode: 3, Log: strings.Split(strings.Repeat("a\x00b\x1b[1m\n", 50), "\n")}
	r := b.driveToStatus(b.start(b.machine("box", "k")), model.Failed)
	equal(t, "reason", r.Failure.Reason, model.InstallFailed)
	equal(t, "lines", len(r.Failure.LogTail), 40)
	equal(t, "line", r.Failure.LogTail[0], "ab[1m")
	if !strings.Contains(r.Failure.Message, "exit code 3") {
		t.Errorf("message = %q", r.Failure.Message)
	}
}

func TestClockSkew(t *testing.T) {
	t.Parallel()
	for offset, skewed := range map[time.Duration]bool{
		-4 * time.Minute: false, 5 * time.Minute: false, 5*time.Minute + time.Second: true, -3 * time.Hour: true,
	} {
		b := setup(t, model.ClaimToken)
		b.cloud.prepared.ClockOffset = &offset
		runID := b.start(b.machine("box", "k"))
		r := b.driveTo(runID, "the end of preparing", func(r *run) bool { return r.Status == model.Failed || r.Status == model.Installing })
		equal(t, offset.String(), r.Failure != nil && r.Failure.Reason == model.ClockSkew, skewed)
	}
}

// Each state's time is a column, and when it is up the run fails before any call.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state  model.BootstrapStatus
		hold   func(*cloud)
		class  provider.Class // of the error heard last
		reason model.FailureReason
	}{
		{model.Claiming, func(c *cloud) { c.delivered = false }, "", model.ClaimTimeout},
		{model.Identifying, func(c *cloud) { c.next("identify", failsWith(provider.Unavailable)) }, provider.Unavailable, model.MachineNotFound},
		{model.Identifying, func(c *cloud) { c.next("identify", failsWith(provider.SSHUnreachable)) }, provider.SSHUnreachable, model.SSHUnreachable},
		{model.Preparing, func(c *cloud) { c.prepared.Ready = false }, "", model.RebootFailed},
		{model.Preparing, func(c *cloud) { c.next("prepare", failsWith(provider.SSHUnreachable)) }, provider.SSHUnreachable, model.SSHUnreachable},
		{model.Installing, func(c *cloud) { c.status.State = provider.InstallRunning }, "", model.InstallTimeout},
		{model.Installing, func(c *cloud) { c.next("install", failsWith(provider.SSHUnreachable)) }, provider.SSHUnreachable, model.SSHUnreachable},
		{model.Installed, func(*cloud) {}, "", model.JoinTimeout},
	} {
		t.Run(string(test.state)+"/"+string(test.reason), func(t *testing.T) {
			t.Parallel()
			b := setup(t, model.ClaimToken)
			test.hold(b.cloud)
			runID := b.start(b.offer("k"))
			r := b.driveToStatus(runID, test.state)
			if left := r.DeadlineAt.Sub(r.Now); left < 9*time.Minute {
				t.Errorf("the state has %s left at its start", left)
			}
			b.step(runID)
			if test.class != "" {
				equal(t, "wait reason", deref(b.row(runID).WaitReason), waitReason(test.class))
				equal(t, "attempt", b.row(runID).Attempt, 1)
			}
			b.exec("UPDATE bootstraps SET deadline_at = now() - interval '1 s' WHERE id = ?", runID)
			before := len(b.cloud.calls)
			b.step(runID)
			equal(t, "calls past the deadline", len(b.cloud.calls), before)
			r = b.row(runID)
			if r.Status != model.Failed || r.Failure.Reason != test.reason {
				t.Fatalf("past its deadline the run is %s, %v", r.Status, r.Failure)
			}
			if test.class != "" && !strings.Contains(r.Failure.Message, "scripted "+string(test.class)) {
				t.Errorf("the message does not say what was heard last: %q", r.Failure.Message)
			}
			b.cloud.change(func() { b.cloud.delivered = true }) // an order that comes late is given back all the same
			equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupReleased)
			equal(t, "leaked", b.cloud.leaked(nil), 0)
		})
	}
}

func TestClaimLimit(t *testing.T) {
	t.Parallel()
	timing := Timing{}.withDefaults()
	m := provider.Manifest{ClaimLimit: map[model.MachineKind]time.Duration{model.VPS: 20 * time.Minute, model.Metal: time.Minute}}
	equal(t, "vps", timing.claim(m, model.VPS), 20*time.Minute)
	equal(t, "metal", timing.claim(m, model.Metal), time.Hour)
	equal(t, "unknown", timing.claim(provider.Manifest{}, ""), time.Hour)
	equal(t, "default", timing.claim(provider.Manifest{}, model.VPS), 10*time.Minute)

	b := setup(t, model.ClaimToken)
	b.cloud.delivered = false
	runID := b.start(b.offer("k"))
	b.step(runID)
	r := b.row(runID)
	if d := r.DeadlineAt.Sub(r.StateSince); d < 9*time.Minute || d > 10*time.Minute+time.Second {
		t.Errorf("a virtual machine may take %s", d)
	}
}

func TestRateLimitsCostNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	told := &provider.Error{Class: provider.RateLimited, Message: "slow down", RetryAfter: 90 * time.Second}
	b.cloud.next("prepare", fault{err: told}, failsWith(provider.RateLimited))
	runID := b.start(b.machine("box", "k"))
	b.driveToStatus(runID, model.Preparing)
	if wait := b.step(runID).After; wait < 90*time.Second {
		t.Errorf("comes back after %s", wait)
	}
	r := b.row(runID)
	if wait := r.NextAt.Sub(r.Now); wait < time.Minute || r.Attempt != 0 || deref(r.WaitReason) != "RATE_LIMITED" {
		t.Errorf("next in %s, attempt %d, waits for %s", wait, r.Attempt, deref(r.WaitReason))
	}
	b.step(runID)
	equal(t, "attempt", b.row(runID).Attempt, 0)
	b.step(runID)
	r = b.row(runID)
	if r.Status != model.Installing || r.WaitReason != nil {
		t.Errorf("after the limit the run is %s, waits for %s", r.Status, deref(r.WaitReason))
	}
}

// What was ordered is not given up because a token was changed: the run waits for the account.
func TestRefusedCredentialsAfterOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Preparing)
	b.cloud.next("prepare", failsWith(provider.Auth))
	b.step(runID)
	calls := len(b.cloud.calls)
	b.step(runID)
	r := b.row(runID)
	if r.Status != model.Preparing || deref(r.WaitReason) != "CREDENTIALS_REJECTED" || len(b.cloud.calls) != calls {
		t.Fatalf("the run is %s, waits for %s, made %d calls meanwhile", r.Status, deref(r.WaitReason), len(b.cloud.calls)-calls)
	}
	b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
	b.driveToStatus(runID, model.Installed)

	b = setup(t, model.ClaimToken)
	runID = b.start(b.offer("k"))
	b.driveToStatus(runID, model.Preparing)
	b.cloud.next("prepare", failsWith(provider.Auth))
	b.step(runID)
	b.exec("UPDATE bootstraps SET deadline_at = now() - interval '1 s' WHERE id = ?", runID)
	b.step(runID)
	equal(t, "reason", b.row(runID).Failure.Reason, model.CredentialsRejected)
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempt := range 100 {
		most := 30 * time.Second
		if attempt < 5 {
			most = time.Second << attempt
		}
		var longest time.Duration
		for range 200 {
			d := backoff(time.Second, 30*time.Second, attempt)
			if d < 0 || d >= most {
				t.Fatalf("backoff at attempt %d = %s", attempt, d)
			}
			longest = max(longest, d)
		}
		if longest < most/2 {
			t.Errorf("backoff at attempt %d never came near %s", attempt, most)
		}
	}
}

// A run that names the machine which another one has just ordered may come first. Then the machine is its own, and stays.
func TestMachineTakenBeforeItsOrdererReservedIt(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	orderer := b.start(b.offer("k"))
	ordered := b.driveToStatus(orderer, model.Identifying)
	taker := b.start(b.machine(*ordered.MachineID, "k2"))
	b.driveToStatus(taker, model.Installed)
	b.mustJoin(taker)

	r := b.driveToEnd(orderer)
	equal(t, "reason", r.Failure.Reason, model.MachineInUse)
	equal(t, "cleanup", r.Cleanup, model.CleanupKept)
	equal(t, "releases", b.cloud.count("release"), 0)
	equal(t, "reservations of the host", b.reservations(taker), 1)
}

// The run that came first may end without a host. What was ordered is then given back after all.
func TestMachineTakenByARunThatEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	orderer := b.start(b.offer("k"))
	ordered := b.driveToStatus(orderer, model.Identifying)
	taker := b.start(b.machine(*ordered.MachineID, "k2"))
	b.driveTo(orderer, "a refusal", func(r *run) bool { return r.Status == model.Failed && r.Attempt > 2 })
	equal(t, "releases while the other run goes on", b.cloud.count("release"), 0)
	b.cancel(taker)
	b.driveToEnd(taker)

	r := b.driveToEnd(orderer)
	equal(t, "reason", r.Failure.Reason, model.MachineInUse)
	equal(t, "cleanup", r.Cleanup, model.CleanupReleased)
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// shut is a cloud whose account stops being one that it opens.
type shut struct {
	*cloud
	refuses bool
}

func (s *shut) Open(ctx context.Context, a provider.Account) (provider.Client, error) {
	if s.refuses {
		return nil, provider.Errorf(provider.InvalidConfig, "scripted")
	}
	return s.cloud.Open(ctx, a)
}

// A machine is to be given back through an account that cannot be opened: that waits for a person, and goes on when one has acted.
func TestCleanupOfAnAccountThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	driver := &shut{cloud: newCloud(model.ClaimToken)}
	b := setupWith(t, driver, "{}")
	b.cloud = driver.cloud
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Preparing)
	b.cancel(runID)
	b.driveToStatus(runID, model.Failed)
	driver.refuses = true
	b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
	equal(t, "cleanup", b.driveToEnd(runID).Cleanup, model.CleanupBlocked)
	driver.refuses = false
	b.exec("UPDATE provider_accounts SET version = version + 1 WHERE id = ?", b.account)
	b.driveTo(runID, "the release", func(r *run) bool { return r.Cleanup == model.CleanupReleased })
	equal(t, "leaked", b.cloud.leaked(nil), 0)
}

// Runs that were told together when to come back do not come back together, nor before.
func TestRateLimitedTogether(t *testing.T) {
	t.Parallel()
	rec := &Reconciler{Deps: Deps{Timing: Timing{}.withDefaults()}}
	told := &provider.Error{Class: provider.RateLimited, RetryAfter: time.Minute}
	seen := map[time.Duration]bool{}
	for range 20 {
		for _, out := range []outcome{rec.rateLimited(&work{run: new(run)}, told), rec.retry(&work{run: new(run)}, told)} {
			if out.pause.d < time.Minute || out.pause.d >= 90*time.Second {
				t.Errorf("comes back after %s", out.pause.d)
			}
			seen[out.pause.d] = true
		}
	}
	if len(seen) < 30 {
		t.Errorf("40 waits have %d lengths", len(seen))
	}
}

// An agent that is refused for the machine's clock may come again with a right one. Until then the run says what it waits for, and in the end why
// it failed.
func TestClockThatIsOffAtTheJoin(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for _, right := range []bool{true, false} {
		runID := b.start(b.offer(fmt.Sprint("k", right)))
		b.driveToStatus(runID, model.Installed)
		for range 2 {
			if err := MarkClockOff(t.Context(), b.db.DB, runID, 3*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "waits for", deref(b.row(runID).WaitReason), "CLOCK_SKEW")
		if right {
			b.mustJoin(runID)
			equal(t, "waits for", b.row(runID).WaitReason, (*string)(nil))
			continue
		}
		b.exec("UPDATE bootstraps SET deadline_at = now() WHERE id = ?", runID)
		r := b.driveToEnd(runID)
		equal(t, "reason", r.Failure.Reason, model.ClockSkew)
		if !strings.Contains(r.Failure.Message, "3h0m0s") {
			t.Errorf("the message is %q", r.Failure.Message)
		}
		if err := MarkClockOff(t.Context(), b.db.DB, runID, time.Hour); err != nil || b.row(runID).WaitReason != nil {
			t.Errorf("a run that is over waits for %v, %v", b.row(runID).WaitReason, err)
		}
	}
}
