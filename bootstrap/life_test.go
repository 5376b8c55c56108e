package bootstrap

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// Whatever happens to a run in whatever order, its history is a path of the state machine that its events repeat, it has one
// machine at most, and when it is over nothing is held that should not be.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	modes := []model.ClaimMode{model.ClaimToken, model.ClaimLabel}
	benches := map[model.ClaimMode]*bench{}
	for _, mode := range modes {
		benches[mode] = setup(t, mode)
	}
	lives := 0
	rapid.Check(t, func(rt *rapid.T) {
		lives++
		b := benches[rapid.SampledFrom(modes).Draw(rt, "mode")]
		b.cloud.change(func() { clear(b.cloud.script) })
		in := b.offer(fmt.Sprint("life", lives))
		if rapid.Bool().Draw(rt, "named") {
			in = b.machine(fmt.Sprint("box", lives), fmt.Sprint("life", lives))
		}
		l := &life{bench: b, runID: b.start(in)}
		rt.Repeat(map[string]func(*rapid.T){
			"step":    l.step,
			"die":     l.die,
			"fault":   l.fault,
			"cancel":  l.cancel,
			"join":    l.join,
			"resolve": l.resolve,
			"expire":  l.expire,
			"":        l.check,
		})
		l.finish(rt)
	})
}

type life struct {
	*bench
	runID string
}

func (l *life) step(*rapid.T) { l.bench.step(l.runID) }

func (l *life) die(rt *rapid.T) {
	points := []string{
		"leased", "claiming.intended", "claiming.looked", "claiming.attempted", "claiming.ordered", "identifying.reserved",
		"identifying.identified", "identifying.proved", "preparing.prepared", "delivering.minted", "delivering.delivered", "installing.polled", "decided",
		"transition", "settled", "waiting", "cleaning.looked", "cleaning.released", "cleaning.uninstalled", "cleaned",
	}
	if l.stepOrDie(l.dieAt(rapid.SampledFrom(points).Draw(rt, "point"), 1), l.runID) {
		l.endLease(l.runID)
	}
}

func (l *life) fault(rt *rapid.T) {
	method := rapid.SampledFrom([]string{"find", "order", "order", "identify", "prepare", "install", "status", "release", "uninstall"}).Draw(rt, "method")
	class := rapid.SampledFrom([]provider.Class{
		provider.Unavailable, provider.Timeout, provider.UnknownOutcome, provider.InvalidResponse, provider.RateLimited, provider.Conflict,
		provider.SSHUnreachable, provider.Quota,
	}).Draw(rt, "class")
	// Only these leave it open whether a call had its effect.
	open := slices.Contains([]provider.Class{provider.Timeout, provider.UnknownOutcome, provider.InvalidResponse}, class)
	l.cloud.next(method, fault{err: provider.Errorf(class, "scripted"), after: open && rapid.Bool().Draw(rt, "after")})
}

func (l *life) cancel(rt *rapid.T) {
	if rapid.IntRange(0, 5).Draw(rt, "really") > 0 {
		return
	}
	_, err := l.service.Cancel(l.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: l.runID})
	if err != nil && !problem.Is(err, problem.InvalidState) {
		rt.Fatalf("Cancel: %v", err)
	}
}

func (l *life) join(rt *rapid.T) {
	before := l.row(l.runID)
	err := l.bench.join(l.runID)
	may := before.CancelRequestedAt == nil && (before.Status == model.Installing || before.Status == model.Installed)
	if (err == nil) != may {
		rt.Fatalf("joining a run in %s gives %v", before.Status, err)
	}
}

// resolve is a person who looks into the cloud's books first.
func (l *life) resolve(rt *rapid.T) {
	r := l.row(l.runID)
	in := model.ResolveClaimInput{TenantID: tenant, BootstrapID: l.runID}
	l.cloud.change(func() {
		yes := true
		if m := l.cloud.machines[r.OperationID]; m != nil {
			in.MachineID = &m.id
		} else {
			in.NothingOrdered = &yes
		}
	})
	_, err := l.service.ResolveClaim(l.ctx, in)
	if (err == nil) != r.uncertain() {
		rt.Fatalf("resolving a run that waits for %q gives %v", deref(r.WaitReason), err)
	}
}

func (l *life) expire(rt *rapid.T) {
	if rapid.IntRange(0, 9).Draw(rt, "really") == 0 {
		l.exec("UPDATE bootstraps SET deadline_at = now() - interval '1 s' WHERE id = ? AND deadline_at IS NOT NULL", l.runID)
	}
}

func (l *life) check(rt *rapid.T) {
	history, events := l.history(l.runID), l.bench.events(l.runID)
	if len(history) != len(events) {
		rt.Fatalf("history %v, events %v", history, events)
	}
	for i := 1; i < len(history); i++ {
		if !slices.Contains(Transitions()[history[i-1]], history[i]) {
			rt.Fatalf("history %v", history)
		}
	}
	r := l.row(l.runID)
	if r.Status != history[len(history)-1] {
		rt.Fatalf("status %s, history %v", r.Status, history)
	}
	if r.Status == model.Failed && r.TokenHash != nil {
		rt.Fatal("a failed run has a token")
	}
}

// finish lets the run come to its end without any more trouble, and closes the books.
func (l *life) finish(rt *rapid.T) {
	l.cloud.change(func() { clear(l.cloud.script) })
	for i := 0; ; i++ {
		r := l.row(l.runID)
		if r.LiveAccountID == nil {
			break
		}
		if i > 2000 {
			rt.Fatalf("the run is stuck: %s, step %q, wait %q, cleanup %s", r.Status, r.Step, deref(r.WaitReason), r.Cleanup)
		}
		if r.uncertain() {
			l.resolve(rt)
		}
		if r.Status == model.Installed && r.CancelRequestedAt == nil {
			l.mustJoin(l.runID)
		}
		l.bench.step(l.runID)
	}
	l.check(rt)
	r := l.row(l.runID)
	want := 0
	if r.Status == model.Joined {
		want = 1
	}
	if got := l.reservations(l.runID); got != want {
		rt.Fatalf("a %s run holds %d machines", r.Status, got)
	}
	l.cloud.change(func() {
		if m := l.cloud.machines[r.OperationID]; m != nil && r.Status == model.Failed && !m.released {
			rt.Fatalf("the machine of a failed run is left over; cleanup %s", r.Cleanup)
		}
		if extra := l.cloud.orders - len(l.cloud.machines); extra != 0 {
			rt.Fatalf("%d machines were ordered twice", extra)
		}
	})
}
