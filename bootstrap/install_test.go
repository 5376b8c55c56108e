package bootstrap

import (
	"errors"
	"strings"
	"testing"
	"time"

	"better/compute/host"
	"better/compute/model"
	"better/compute/provider"
)

// What a machine answers goes into the run's failure, and a machine may answer with what it was sent.
func TestTokenIsStruckOutOfFailures(t *testing.T) {
	t.Parallel()
	token, _ := host.MintToken("boot_"+strings.Repeat("0", 52), 3)
	secret := token[strings.LastIndexByte(token, '.')+1:]
	for name, text := range map[string]string{
		"whole":            "token='" + token + "'",
		"the secret alone": secret,
		"cut short":        token[:len(token)-20],
		"with a colour":    token[:len(token)-12] + "\x1b[31m" + token[len(token)-12:],
		"in two halves":    secret[:21] + " " + secret[21:],
	} {
		e := provider.Errorf(provider.InstallError, "it said %s", text)
		e.Log = []string{"fine", text}
		got, ok := errors.AsType[*provider.Error](withoutToken(e, token))
		if !ok || got.Class != provider.InstallError || got.Log[0] != "fine" || !strings.HasPrefix(got.Message, "it said ") {
			t.Fatalf("%s: %+v", name, got)
		}
		for i := range len(secret) - tokenPiece {
			if piece := secret[i : i+tokenPiece]; strings.Contains(got.Message+got.Log[1], piece) {
				t.Errorf("%s: %q still has %q of %q", name, got.Message, piece, secret)
			}
		}
	}
}

func TestInstallThatAnswersWithTheToken(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.cloud.change(func() { b.cloud.echo = true })
	r := b.driveTo(runID, "the failure", func(r *run) bool { return r.Status == model.Failed })
	equal(t, "reason", r.Failure.Reason, model.InstallFailed)
	if len(r.Failure.LogTail) != 3 || !strings.HasSuffix(r.Failure.LogTail[1], "[token]") || !strings.HasSuffix(r.Failure.Message, "[token]") {
		t.Errorf("failure %+v", r.Failure)
	}
}

// An install may take longer than a token lives, and longer than the server is away: the machine is installed once, and can join.
func TestInstallLongerThanTheTokenLives(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.change(func() { b.cloud.status.State = provider.InstallRunning })
	runID := b.start(b.offer("k"))
	b.driveTo(runID, "a delivered agent", func(r *run) bool { return r.DeliveredAt != nil })
	for range 3 {
		b.exec("UPDATE bootstraps SET token_expires_at = now() - interval '1 minute' WHERE id = ?", runID)
		b.step(runID)
	}
	b.cloud.change(func() { b.cloud.status.State = provider.InstallSucceeded })
	b.exec("UPDATE bootstraps SET token_expires_at = now() - interval '1 minute' WHERE id = ?", runID)
	r := b.driveToStatus(runID, model.Installed)
	b.step(runID)
	equal(t, "installs", len(b.cloud.installs), 1)
	if left := r.TokenExpiresAt.Sub(r.Now); left < 14*time.Minute {
		t.Errorf("the token ends %s after the install", left)
	}
	b.mustJoin(runID)
}

// A token that lives as long as the run may wait is not replaced: most drivers would install the machine anew, which its time is too short for.
func TestLastTokenOfARun(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.driveToStatus(runID, model.Installed)
	b.exec(`UPDATE bootstraps SET token_expires_at = token_expires_at - interval '14 minutes 30 s', deadline_at = deadline_at - interval '14 minutes 30 s'
		WHERE id = ?`, runID)
	if next := b.step(runID); next.After < 20*time.Second {
		t.Errorf("looks again after %s", next.After)
	}
	equal(t, "installs", len(b.cloud.installs), 1)
	b.exec("UPDATE bootstraps SET deadline_at = now() + interval '10 minutes' WHERE id = ?", runID)
	b.step(runID)
	equal(t, "installs", len(b.cloud.installs), 2)
}
