package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// bug is what somebody might write one day, and the test that must find it.
type bug struct {
	name     string
	file     string // from the root of the repository
	old, new string // the old text stands in the file once
	pkg      string
	test     string // the tests that may find it, as go test -run takes them
	figure   string // of a torture: what must be more than zero in the line that it prints
	sample   bool   // a plain run plants it too
}

// torturedBy is the bug as the torture has to find it: by the figure that the cloud's ledger gives.
func (b bug) torturedBy(figure string) bug {
	b.name, b.pkg, b.test, b.figure, b.sample = b.name+": "+figure, "./apitest/torture", "TestBootstraps", figure, false
	return b
}

// bugs are planted one at a time into a copy of the sources, so that the code itself knows nothing of them.
func bugs() []bug {
	return slices.Concat(orderBugs(), otherBugs())
}

// orderBugs are those that cost money. Each that orders twice is sought by a test of its own and by the torture.
func orderBugs() (all []bug) {
	for _, b := range doubling() {
		all = append(all, b, b.torturedBy("double"))
	}
	leak := leaking()
	return append(all, losing(), leak, leak.torturedBy("leaked"))
}

func doubling() []bug {
	return []bug{
		{
			name: "order before intent", file: "bootstrap/orders.go", pkg: "./bootstrap", test: "TestOrderIsWrittenDownBeforeItIsSent",
			old: `	set := fields{"order_attempt_at": now, "order_intent": &in}
`,
			new: `	set := fields{"order_attempt_at": now, "order_intent": &in}
	if w.OrderAttemptAt == nil {
		w.OrderAttemptAt, w.OrderIntent = &w.Now, &in
		return 0, nil
	}
`,
		},
		{
			name: "order again on doubt", sample: true, file: "bootstrap/claim.go", pkg: "./bootstrap", test: "TestLabelIsLookedForAsLongAsListsLag|TestOrderAnswers",
			old: `	case model.ClaimLabel, model.ClaimNone:
	}
	return false`,
			new: `	case model.ClaimLabel, model.ClaimNone:
	}
	return true`,
		},
		{
			name: "no is what a lost answer means", file: "bootstrap/claim.go", pkg: "./bootstrap", test: "TestOrderAnswers|TestRefusalAfterUnknownOutcome",
			old: `	case provider.UnknownOutcome, provider.Timeout, provider.InvalidResponse:
		return true`,
			new: `	case provider.UnknownOutcome, provider.Timeout, provider.InvalidResponse:
		return false`,
		},
	}
}

func losing() bug {
	return bug{
		name: "what is not shown was not ordered", file: "bootstrap/cleanup.go", pkg: "./bootstrap", test: "TestAcknowledgedOrderIsNeverGivenUpUnseen|TestCancelWhileUncertain",
		old: `	if w.repeatable() && !acknowledged {
		return cleaned(model.CleanupReleased)
	}`,
		new: `	if w.repeatable() || acknowledged || !acknowledged {
		return cleaned(model.CleanupReleased)
	}`,
	}
}

// leaking gives no machine back whose install failed, and says that it did.
func leaking() bug {
	return bug{
		name: "never given back", file: "bootstrap/cleanup.go", pkg: "./bootstrap", test: "TestCancelGivesUpWhatIsKeptForARetry",
		old: `	case w.Cleanup == model.CleanupPending:
		return cleaned(model.CleanupReleasing), nil // the intent, before the provider hears of it
`,
		new: `	case w.Failure != nil && w.Failure.Reason == "INSTALL_FAILED":
		return cleaned(model.CleanupReleased), nil
	case w.Cleanup == model.CleanupPending:
		return cleaned(model.CleanupReleasing), nil
`,
	}
}

func otherBugs() []bug {
	return []bug{
		{
			name: "skip the epoch", file: "bootstrap/store.go", pkg: "./bootstrap", test: "TestStoppedWorkerInTheSameState",
			old: `.Where("lease_epoch = ?", r.LeaseEpoch).Where("status = ?", r.Status)`,
			new: `.Where("status = ?", r.Status)`,
		},
		{
			name: "order without asking whether the lease is held", file: "bootstrap/claim.go", pkg: "./bootstrap",
			test: "TestNoOrderAfterTheLease|TestNothingIsDoneUnderALeaseThatTheDatabaseHasEnded",
			old: `	r.fault("claiming.attempted")
	if err := w.lease.confirm(ctx, r.DB.DB, w.run); err != nil {`,
			new: `	r.fault("claiming.attempted")
	if err := error(nil); err != nil {`,
		},
		{
			name: "believe a list that lags", file: "bootstrap/cleanup.go", pkg: "./bootstrap", test: "TestReleaseIsSoughtAsLongAsListsLag",
			old: `if wait := r.lag(w) - w.sinceAttempt(); wait > 0 {`,
			new: `if wait := -w.sinceAttempt(); wait > 0 {`,
		},
		{
			name: "machine for two", file: "bootstrap/store.go", pkg: "./bootstrap", test: "TestMachineRace",
			old: `	return owner == runID, nil`,
			new: `	return true, nil`,
		},
		{
			name: "lost job", file: "bootstrap/worker.go", pkg: "./bootstrap", test: "TestSweepFindsRunsWithoutJob",
			old: `			if err := w.queue.wake(ctx, tx, id); err != nil {
				return err
			}
			w.reconciler.fault("waking.woken")`,
			new: `			_ = id`,
		},
		{
			name: "wait by one's own clock", file: "bootstrap/clock.go", pkg: "./bootstrap", test: "TestWorkerWithAWrongClock",
			old: `	c.ahead.Store(int64(at.Sub(asked.Round(0)) - took/2))`,
			new: `	c.ahead.Store(int64(min(0, took)))`,
		},
		{
			name: "a cancelled run may order", file: "bootstrap/reconcile.go", pkg: "./bootstrap", test: "TestCancelInEveryState",
			old: `if w.CancelRequestedAt != nil {`,
			new: `if w.CancelRequestedAt != nil && w.ordered() {`,
		},
		{
			name: "give an orphan back after another has", file: "bootstrap/orphanstore.go", pkg: "./bootstrap", test: "TestAWorkerThatStoodStill.*",
			old: `.Where("id = ?", o.ID).Where("release_attempt = ?", o.ReleaseAttempt).
		Where("release_asked_at = ?", o.ReleaseAskedAt).Where("release_at IS NOT NULL").Where("resolved_at IS NULL")`,
			new: `.Where("id = ?", o.ID)`,
		},
		{
			name: "time that is never up", file: "bootstrap/failure.go", pkg: "./bootstrap", test: "TestEveryStateEndsInItsReason",
			old: `	return w.DeadlineAt != nil && !w.DeadlineAt.After(w.Now) && !w.inDoubt()`,
			new: `	return w.DeadlineAt != nil && w.DeadlineAt.IsZero() && !w.inDoubt()`,
		},
		{
			name: "certificate request of anybody's key", file: "internal/pki/csr.go", pkg: "./internal/pki", test: "TestParseCSRRefuses",
			old: `	if err := request.CheckSignature(); err != nil {`,
			new: `	if err := error(nil); err != nil {`,
		},
		{
			name: "release by name", file: "provider/sim/claim.go", pkg: "./provider/sim", test: "TestConformance",
			old: `	if !m.belongsTo(operationID) {`,
			new: `	if m.Name == "" {`,
		},
		{
			name: "a broken answer is a refusal", file: "provider/vendor/exchange.go", pkg: "./provider/sim", test: "TestEveryFaultOfAnOrder",
			old: `	case e.changes && (e.status >= 500 || e.status == http.StatusRequestTimeout):
		return provider.UnknownOutcome
`,
			new: ``,
		},
		{
			name: "fetch-then-delete token", file: "host/store.go", pkg: "./host", test: "TestOneTokenMakesOneHostHoweverManyAsk",
			old: `		UPDATE bootstraps SET token_used_at = now(), token_key_hash = ?4
		WHERE token_hash = ?0 AND token_used_at IS NULL AND token_expires_at > now()
			AND status IN ('installing', 'installed') AND cancel_requested_at IS NULL AND machine_id IS NOT NULL
			AND ` + "`+sameMachine+`" + `
			AND abs(extract(epoch FROM ?3::timestamptz - now())) <= ?5
		RETURNING id,`,
			new: `		WITH found AS MATERIALIZED (SELECT id AS free FROM bootstraps
			WHERE token_hash = ?0 AND token_used_at IS NULL AND token_expires_at > now()
			AND status IN ('installing', 'installed') AND cancel_requested_at IS NULL AND machine_id IS NOT NULL
			AND ` + "`+sameMachine+`" + `
			AND abs(extract(epoch FROM ?3::timestamptz - now())) <= ?5)
		UPDATE bootstraps SET token_used_at = now(), token_key_hash = ?4 FROM found WHERE id = found.free
		RETURNING id,`,
		},
		{
			name: "token of a cancelled run", file: "host/store.go", pkg: "./host", test: "TestJoinIsRefused",
			old: `AND status IN ('installing', 'installed') AND cancel_requested_at IS NULL AND machine_id IS NOT NULL
			AND ` + "`+sameMachine+`",
			new: `AND status IN ('installing', 'installed') AND machine_id IS NOT NULL
			AND ` + "`+sameMachine+`",
		},
		{
			name: "one key for two hosts", file: "host/store.go", pkg: "./host", test: "TestAKeyBelongsToOneHost|TestJoinsWithOneKeyWaitForEachOther",
			old: `SELECT pg_advisory_xact_lock(?)`,
			new: `SELECT ?`,
		},
		{
			name: "removed host is heard", file: "host/store.go", pkg: "./host", test: "TestRemovalCountsOnAnOpenConnection|TestOnlyTheTrustedAreHeard",
			old: `		WHERE h.id = ? AND h.tenant_id = ? AND h.removed_at IS NULL AND c.host_id = h.id AND c.serial = ?`,
			new: `		WHERE h.id = ? AND h.tenant_id = ? AND c.host_id = h.id AND c.serial = ?`,
		},
		{
			name: "naive cursor", sample: true, file: "internal/event/hub.go", pkg: "./internal/event", test: "TestSubscriptionSeesEveryCommittedEventOnceAndInOrder",
			old: ` AND e.xid < pg_snapshot_xmin(pg_current_snapshot())`,
			new: ``,
		},
		{
			name: "cursor of anybody's making", file: "internal/cursor/cursor.go", pkg: "./internal/cursor", test: "TestMutatedCursorsAreRefused",
			old: `if !hmac.Equal(tag, l.tag(place)) {`,
			new: `if !hmac.Equal(tag, tag) {`,
		},
		{
			name: "ids of parts that run together", sample: true, file: "internal/id/id.go", pkg: "./internal/id", test: "TestDeriveKeepsPartsApart",
			old: `		h.Write(n[:])
`,
			new: ``,
		},
		{
			name: "deny ignored", file: "authz/cache.go", pkg: "./authz", test: "TestGoldenRoles|TestDecisionsAreThoseOfTheModel",
			old: `		if g.effect != model.Allow {
			return denied
		}`,
			new: `		if g.effect != model.Allow {
			continue
		}`,
		},
		{
			name: "cache not dropped", file: "authz/cache.go", pkg: "./authz", test: "TestReplicaFollowsAChange",
			old: `	c.generation++
	c.subjects.Remove(key)
`,
			new: `	c.generation++
`,
		},
		{
			name: "row security off", file: "internal/postgres/scope.go", pkg: "./authz", test: "TestScopeOfADatabaseThatAsksForIt",
			old: `	scope, ok := explicitScope(ctx)
	if !ok && s.resolve.Load() == nil {
		scope = AllTenants()
	}`,
			new: `	scope := AllTenants()`,
		},
	}
}

// The suite finds what is planted: all of it, the bugs whose names PLANTED has a part of, or a share of them like 2/5, every fifth from the second on.
// Without it a few are sought, and of the others only that each still has its place is looked at.
func TestPlanted(t *testing.T) {
	wanted := os.Getenv("PLANTED")
	planted, caught, all := 0, 0, bugs()
	for i, b := range all {
		if !b.wanted(i, wanted) {
			if _, err := b.plant(t.TempDir()); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
			continue
		}
		planted++
		began := time.Now()
		found, err := b.sought(t)
		switch {
		case err != nil:
			t.Errorf("%s: %v", b.name, err)
		case found == "":
			t.Errorf("%s: none of %s in %s finds it", b.name, b.test, b.pkg)
		default:
			caught++
		}
		fmt.Printf("  %-44s %-50s %s\n", b.name, found, time.Since(began).Round(time.Second))
	}
	harness.Report(t, t.Name(), 0, "planted=%d/%d caught=%d", planted, len(all), caught)
}

func (b bug) wanted(i int, part string) bool {
	if part == "" {
		return b.sample
	}
	var share, shares int
	if n, _ := fmt.Sscanf(part, "%d/%d", &share, &shares); n == 2 && shares > 0 {
		return i%shares == share-1
	}
	return part == "all" || strings.Contains(b.name, part)
}

// plant writes the source with the bug and an overlay that puts it in the place of the real one.
func (b bug) plant(dir string) (overlay string, err error) {
	path, err := filepath.Abs(filepath.Join("../..", b.file))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return "", fmt.Errorf("%s has the old text %d times, not once", b.file, n)
	}
	planted := filepath.Join(dir, filepath.Base(b.file))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: planted}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(planted, []byte(strings.Replace(string(text), b.old, b.new, 1)), 0o600),
		os.WriteFile(overlay, replace, 0o600),
	)
}

// sought runs the tests against the bug, and names one that failed.
func (b bug) sought(t *testing.T) (found string, err error) {
	overlay, err := b.plant(t.TempDir())
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^("+b.test+")$", b.pkg)
	cmd.Dir = "../.."
	// By the environment, so that it counts for the servers that the tests build too.
	cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay, "KILLS=2", "BOOTSTRAPS=60", "SEED=1", "PLANTED=")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if found := b.foundIn(string(out)); found != "" {
		return found, nil
	}
	if err != nil {
		return "", fmt.Errorf("the tests did not run: %w\n%s", err, out)
	}
	if strings.Contains(string(out), "no tests to run") {
		return "", fmt.Errorf("there is no test %s", b.test)
	}
	return "", nil
}

// foundIn names a test that failed, or gives the figure of a torture that is not zero; empty when there is none.
func (b bug) foundIn(out string) string {
	if b.figure != "" {
		return regexp.MustCompile(`\b` + b.figure + `=[1-9]\d*`).FindString(out)
	}
	for line := range strings.Lines(out) {
		if name, failed := strings.CutPrefix(line, "--- FAIL: "); failed {
			return strings.Fields(name)[0]
		}
	}
	return ""
}
