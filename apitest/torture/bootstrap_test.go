package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/provider/sim/cloud"
)

// way is what a run goes through.
type way int

const (
	toTheEnd    way = iota // an order that becomes a host
	givenBack              // an order whose install fails, so that the machine is given back
	left                   // a named machine whose install fails, so that it is left to its owner
	cancelled              // an order that is cancelled at any moment
	ways        = 4
	namedRunsAt = left
)

// target is which requests a fault is for.
type target struct{ method, path string }

var (
	orders   = target{http.MethodPost, "/v1/machines"} // and installs
	installs = target{http.MethodPost, "/v1/machines/"}
	looks    = target{http.MethodGet, "/v1/machines"}
	releases = target{http.MethodDelete, "/v1/machines/"}
	prices   = target{http.MethodGet, "/v1/offers"}
)

// faults are all that the cloud can do wrong, and to what.
func faults() map[string][]target {
	all := []target{orders, installs, looks, releases, prices}
	answered := []target{orders, looks, prices}
	return map[string][]target{
		cloud.FaultHang: all, cloud.FaultHangAfter: all, cloud.FaultReset: all, cloud.FaultResetAfter: all, cloud.Fault500Before: all,
		cloud.Fault500After: all, cloud.Fault503: all, cloud.FaultSlowBody: answered, cloud.FaultDuplicate: all, cloud.FaultHalfJSON: answered,
		cloud.FaultHTML: answered, cloud.FaultWrongID: {orders, looks}, cloud.FaultExtraFields: answered, cloud.FaultClockOff: answered,
		cloud.FaultEmptyLastPage: {looks, prices}, cloud.FaultRepeatedPage: {looks, prices},
		cloud.FaultUnauthorized: all, cloud.FaultForbidden: all, cloud.Fault429: all, cloud.Fault429RetryAfter: all,
		cloud.FaultQuota: {orders}, cloud.FaultPayment: {orders}, cloud.FaultOutOfStock: {orders}, cloud.FaultOfferGone: {orders},
		cloud.FaultLateListing: {orders}, cloud.FaultLostLabel: {orders}, cloud.FaultNeverReady: {orders},
		cloud.FaultInstallFails: {installs}, cloud.FaultInstallHangs: {installs},
	}
}

// torment is a rig with a number of runs in work.
type torment struct {
	*rig
	random         *rand.Rand
	kinds          []string
	started        int
	starters, wait sync.WaitGroup
	leave          func() // takes the person away
}

func newTorment(t testing.TB, seed uint64, tenants int, change ...func(*rig)) *torment {
	t.Helper()
	return &torment{rig: newRig(t, tenants, 2, change...), random: rand.New(rand.NewPCG(seed, 0)), kinds: slices.Sorted(maps.Keys(faults()))}
}

// settle waits until every run has come to its end, with the help of a person and without more faults. It says what became of them, and
// how long that took.
func (m *torment) settle() (j judgement, slowest time.Duration) {
	m.t.Helper()
	m.disarm()
	m.starters.Wait()
	lastFault := time.Now()
	harness.Await(m.t, "every run is final", func() bool { return m.unfinished() == 0 || time.Since(lastFault) > settleIn })
	slowest = time.Since(lastFault).Round(100 * time.Millisecond)
	m.leave()
	m.wait.Wait()
	return m.judge(), slowest
}

// spoil has the cloud do one thing wrong, for the project's next such request.
func (m *torment) spoil(a account, kind string, at target, delay time.Duration) {
	m.cloudCall(http.MethodPost, "/v1/_faults", "", []map[string]any{{
		"kind": kind, "delay": delay.String(), "match": map[string]string{"method": at.method, "path": at.path, "token": a.secret},
	}})
}

// begin starts a run, and has something go wrong in every second one. It does not wait for the run.
func (m *torment) begin(w way) {
	number := m.started
	m.started++
	a := m.accounts[m.random.IntN(len(m.accounts))]
	if m.random.IntN(2) == 0 {
		kind := m.kinds[number/2%len(m.kinds)] // every kind comes, whatever the seed
		at := faults()[kind]
		m.spoil(a, kind, at[m.random.IntN(len(at))], m.delayOf(kind))
	}
	machineID := ""
	switch w {
	case namedRunsAt:
		machineID = a.machine
		m.spoil(a, cloud.FaultInstallFails, installs, 0)
	case givenBack:
		m.spoil(a, cloud.FaultInstallFails, installs, 0)
	case toTheEnd, cancelled:
	}
	patience := time.Duration(m.random.IntN(1500)) * time.Millisecond
	m.starters.Go(func() {
		runID, err := m.start(m.t.Context(), a, machineID, fmt.Sprint("run-", number))
		if e, refused := errors.AsType[*refusal](err); refused && e.Code == "CONFLICT" && machineID != "" {
			return
		}
		if err != nil {
			m.t.Errorf("starting run %d: %v", number, err)
			return
		}
		m.runs.Store(runID, a)
		if w != cancelled {
			return
		}
		select {
		case <-time.After(patience):
		case <-m.t.Context().Done():
		}
		if err := m.cancel(m.t.Context(), a, runID); err != nil {
			m.t.Errorf("cancelling run %d: %v", number, err)
		}
	})
}

func (m *torment) delayOf(kind string) time.Duration {
	switch kind {
	case cloud.FaultClockOff:
		return 3 * time.Hour
	case cloud.FaultLateListing:
		return time.Second
	case cloud.Fault429RetryAfter:
		return time.Second
	}
	return time.Duration(200+m.random.IntN(2500)) * time.Millisecond // a call is given up after 1.5 s
}

// begun counts the runs that there are, once all that were asked for are.
func (m *torment) begun() int {
	m.starters.Wait()
	return m.count("SELECT count(*) FROM bootstraps")
}

// unfinished counts the runs that still need work.
func (m *torment) unfinished() int {
	return m.count("SELECT count(*) FROM bootstraps WHERE live_account_id IS NOT NULL")
}

// bringPerson has a person there until the runs have settled.
func (m *torment) bringPerson() {
	ctx, leave := context.WithCancel(m.t.Context())
	m.leave = leave
	m.t.Cleanup(leave)
	m.wait.Go(func() { m.person(ctx) })
}

// person does what only a person can: it has the credentials of an account checked once they work again.
func (m *torment) person(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
		var waiting []string
		err := m.db.NewRaw(`SELECT DISTINCT account_id FROM bootstraps WHERE live_account_id IS NOT NULL AND wait_reason = 'CREDENTIALS_REJECTED'
			AND (status = 'failed' OR next_at > now() + interval '1 second')`).Scan(ctx, &waiting)
		if err != nil {
			continue
		}
		for _, id := range waiting {
			i := slices.IndexFunc(m.accounts, func(a account) bool { return a.id == id })
			asked, stop := context.WithTimeout(ctx, 5*time.Second)
			_, _ = ask[struct{ ProviderAccount struct{ ID string } }](asked, m.rig, "checkProviderAccount", "CheckProviderAccountInput",
				"{ providerAccount { id } }", map[string]any{"tenantId": m.accounts[i].tenant, "accountId": id})
			stop()
		}
	}
}

// record finds out which points each way passes, and how often.
func (m *torment) record() map[way]map[string]int {
	passed := map[way]map[string]int{}
	m.arm("record", "-", 0)
	for w := range way(ways) {
		path := filepath.Join(m.dir, "faults", "points")
		_ = os.Remove(path)
		a := m.accounts[int(w)%len(m.accounts)]
		machineID := ""
		if w == left {
			machineID = a.machine
		}
		if w != toTheEnd && w != cancelled {
			m.spoil(a, cloud.FaultInstallFails, installs, 0)
		}
		runID, err := m.start(m.t.Context(), a, machineID, fmt.Sprint("record-", w))
		if err != nil {
			m.t.Fatal(err)
		}
		m.runs.Store(runID, a)
		if w == cancelled {
			harness.Await(m.t, "an order", func() bool {
				return m.count("SELECT count(*) FROM bootstraps WHERE id = ? AND order_attempt_at IS NOT NULL", runID) == 1
			})
			if err := m.cancel(m.t.Context(), a, runID); err != nil {
				m.t.Fatal(err)
			}
		}
		harness.Await(m.t, "a run without a fault ends", func() bool { return m.unfinished() == 0 })
		text, err := os.ReadFile(path)
		if err != nil {
			m.t.Fatal(err)
		}
		passed[w] = map[string]int{}
		for point := range strings.Lines(string(text)) {
			passed[w][strings.TrimSpace(point)]++
		}
	}
	m.disarm()
	return passed
}

// strike is one kill: at which hit of which point, and in which way that is passed.
type strike struct {
	point string
	hit   int
	way   way
}

// strikes are all of them: every point, and every hit of it within a run.
func strikes(passed map[way]map[string]int) (all []strike) {
	for w := range way(ways) {
		for _, point := range slices.Sorted(maps.Keys(passed[w])) {
			for hit := range min(passed[w][point], 12) {
				all = append(all, strike{point, hit + 1, w})
			}
		}
	}
	return all
}

func pointsOf(all []strike) int {
	points := map[string]bool{}
	for _, s := range all {
		points[s.point] = true
	}
	return len(points)
}

// Servers die between any two writes, at every hit, while the cloud does all wrong that it can. In the end each run has come to its end, and
// the cloud has one machine for each that joined and none for any other.
func TestBootstraps(t *testing.T) {
	kills, bootstraps, seed := number(t, "KILLS", 24), number(t, "BOOTSTRAPS", 48), seedOf(t)
	m := newTorment(t, seed, max(3, bootstraps/1500))
	all := strikes(m.record())
	m.bringPerson()
	points, done, missed := map[string]bool{}, 0, map[strike]int{}
	var order []int
	for i := 0; done < kills && !t.Failed(); i++ {
		if i%len(all) == 0 {
			order = m.random.Perm(len(all))
		}
		s := all[order[i%len(all)]]
		m.arm("kill", s.point, s.hit)
		m.begin(s.way)
		for range (bootstraps-m.started)/(kills-done) - 1 {
			m.begin(toTheEnd)
		}
		if !m.awaitDeath(s.way) {
			missed[s]++
			if missed[s] > 3 {
				t.Errorf("%s is never reached for the %dth time", s.point, s.hit)
			}
			continue
		}
		points[s.point] = true
		done += m.revive()
	}
	for m.begun() < bootstraps && !t.Failed() {
		m.begin(way(m.random.IntN(ways)))
	}
	m.cloudCall(http.MethodDelete, "/v1/_faults", "", nil)
	j, slowest := m.settle()
	harness.Report(t, t.Name(), seed, "points=%d/%d strikes=%d kills=%d bootstraps=%d joined=%d failed=%d faults=%d/%d double=%d orphans=%d lost=%d stuck=%d retold=%d slowest=%s",
		len(points), pointsOf(all), len(all), done, j.runs, j.joined, j.failed, len(j.faults), len(m.kinds), j.double, j.orphans, j.lost, j.stuck, j.retold, slowest)
}

// awaitDeath waits until a replica is dead; it starts more runs when those that are there do not pass the point.
func (m *torment) awaitDeath(w way) bool {
	again := time.Now().Add(2 * time.Second)
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if slices.ContainsFunc(m.replicas, func(p *replica) bool { return p.Dead() }) {
			return true
		}
		if time.Now().After(again) {
			again = time.Now().Add(2 * time.Second)
			m.begin(w)
		}
	}
	return false
}
