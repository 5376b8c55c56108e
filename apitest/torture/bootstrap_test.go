package torture

import (
	"fmt"
	"iter"
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
		cloud.FaultLateListing: {orders}, cloud.FaultLostLabel: {orders}, cloud.FaultLostOrder: {orders}, cloud.FaultNeverReady: {orders},
		cloud.FaultInstallFails: {installs}, cloud.FaultInstallHangs: {installs},
	}
}

// torment is a rig with a number of runs in work, on accounts of every claim mode, and with the person whom servers ask.
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
	modes := func(r *rig) {
		r.providers = []string{"sim", "sim-name", "sim-label", "sim-none"}
		r.timing.KeepFailed, r.timing.Sweep = 3*time.Second, 3*time.Second
	}
	return &torment{
		rig: newRig(t, tenants, 2, append([]func(*rig){modes}, change...)...), random: rand.New(rand.NewPCG(seed, 0)),
		kinds: slices.Sorted(maps.Keys(faults())), leave: func() {},
	}
}

// settle waits until every run has come to its end and no machine is left without an owner, with the help of a person and without more faults.
// It says what became of them, and how long that took.
func (m *torment) settle() (j judgement, slowest time.Duration) {
	m.t.Helper()
	m.disarm()
	m.awaitStarters()
	lastFault := time.Now()
	harness.Await(m.t, "every run is final", func() bool {
		m.raise()
		return m.unfinished() == 0 && len(m.strays()) == 0 || time.Since(lastFault) > settleIn
	})
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

// awaitStarters waits until all runs that were begun are asked for. A server may have come to a point before that was disarmed, and die of it now: it is
// started again, or nobody would answer.
func (m *torment) awaitStarters() {
	done := make(chan struct{})
	go func() {
		m.starters.Wait()
		close(done)
	}()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-done:
			tick.Stop()
			return
		case <-tick.C:
			m.raise()
		}
	}
}

// begun counts the runs that there are, once all that were asked for are.
func (m *torment) begun() int {
	m.awaitStarters()
	return m.begunSoFar()
}

// unfinished counts the runs that still need work.
func (m *torment) unfinished() int {
	return m.count("SELECT count(*) FROM bootstraps WHERE live_account_id IS NOT NULL")
}

// record finds out which points each of the ways passes, and how often; without any named, those that need no person.
func (m *torment) record(which ...way) map[way]map[string]int {
	if len(which) == 0 {
		which = []way{toTheEnd, givenBack, left, cancelled}
	}
	passed := map[way]map[string]int{}
	m.arm("record", "-", 0)
	for _, w := range which {
		path := filepath.Join(m.dir, "faults", "points")
		_ = os.Remove(path)
		m.undisturbed(w)
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

// undisturbed takes one run through all of the way.
func (m *torment) undisturbed(w way) {
	m.t.Helper()
	before := m.begun()
	m.beginOn(w, m.accountFor(w, 0))
	m.awaitStarters()
	harness.Await(m.t, fmt.Sprintf("a run that goes the way %d ends", w), func() bool {
		return m.unfinished() == 0 && len(m.strays()) == 0 && m.count("SELECT count(*) FROM orphans WHERE release_at IS NOT NULL") == 0
	})
	if m.begun() == before {
		m.t.Fatalf("no run went the way %d", w)
	}
}

// beginEachWay starts a run of each way on each claim mode that has it, without chance.
func (m *torment) beginEachWay() {
	for _, w := range allWays() {
		begun := map[string]bool{}
		for n := range m.accounts {
			if a := m.accountFor(w, n); !begun[a.provider] {
				begun[a.provider] = true
				m.beginOn(w, a)
			}
		}
	}
}

// strike is one kill: at which hit of which point, and in which way that is passed.
type strike struct {
	point string
	hit   int
	way   way
}

// mostHits is how many hits of one point are told apart. What waits longer passes its points more often.
const mostHits = 12

// strikes are all of them: every point, and every hit of it within a run.
func strikes(passed map[way]map[string]int) (all []strike) {
	for _, w := range slices.Sorted(maps.Keys(passed)) {
		for _, point := range slices.Sorted(maps.Keys(passed[w])) {
			for hit := range min(passed[w][point], mostHits) {
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

// reachIn is how long a point is armed, on a machine that is busy, before it counts as one that is not passed.
const reachIn = 90 * time.Second

// awaitDeath waits until a replica is dead; it starts more runs when those that are there do not pass the point.
func (m *torment) awaitDeath(w way) bool {
	again := time.Now().Add(patienceFor(w))
	for deadline := time.Now().Add(reachIn); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if slices.ContainsFunc(m.replicas, func(p *replica) bool { return p.Dead() }) {
			return true
		}
		again = m.beginAgain(w, again)
	}
	return false
}

// beginAgain starts one more run of the way when that is due, unless runs pile up, and says when it is due next.
func (m *torment) beginAgain(w way, due time.Time) time.Time {
	if time.Now().Before(due) {
		return due
	}
	if m.unfinished() < crowd {
		m.begin(w)
	}
	return time.Now().Add(patienceFor(w))
}

// aim is a strike that is armed.
type aim struct {
	strike
	number  int
	until   time.Time
	another time.Time // when one more run is started, since those that are there do not pass the point
}

// siege arms some strikes at a time, and starts again what they kill.
type siege struct {
	*torment
	ways    map[hit][]way
	order   []hit // what is struck next
	met     map[hit]bool
	armed   []*aim
	missed  map[hit]int
	aims    int
	kills   int
	perKill float64 // runs

	forgot   time.Time // when the faults were forgotten last
	forgotAt int       // how many runs had been started then
}

// large is how many kills are enough for every hit, so that none may be left out.
const large = 300

// hit is the nth time that a point is passed.
type hit struct {
	point string
	nth   int
}

func (m *torment) siege(all []strike, perKill float64) *siege {
	s := &siege{torment: m, ways: map[hit][]way{}, met: map[hit]bool{}, missed: map[hit]int{}, perKill: perKill, forgot: time.Now()}
	for _, one := range all {
		h := hit{one.point, one.hit}
		s.ways[h] = append(s.ways[h], one.way)
	}
	return s
}

// points counts the points that were struck, and those that there are.
func (s *siege) points() (struck, all int) {
	return countPoints(maps.Keys(s.met)), countPoints(maps.Keys(s.ways))
}

func countPoints(hits iter.Seq[hit]) int {
	points := map[string]bool{}
	for h := range hits {
		points[h.point] = true
	}
	return len(points)
}

func (s *siege) struck(h hit) int {
	if s.met[h] {
		return 1
	}
	return 0
}

// enough reports whether so many kills were made, and in a large run each hit struck, unless that takes more than twice as many.
func (s *siege) enough(kills int) bool {
	return s.kills >= kills && (kills < large || len(s.met) == len(s.ways) || s.kills >= 2*kills)
}

func (s *siege) unmet() (unmet []hit) {
	for h := range s.ways {
		if !s.met[h] {
			unmet = append(unmet, h)
		}
	}
	return unmet
}

// forgetFaults has the cloud do well again now and then: what spoils requests that never come would in the end spoil every run. And it does what the
// databases of tests have nobody for.
func (s *siege) forgetFaults() {
	if s.started-s.forgotAt < crowd/2 && time.Since(s.forgot) < reachIn {
		return
	}
	s.forgotAt, s.forgot = s.started, time.Now()
	s.cloudCall(http.MethodDelete, "/v1/_faults", "", nil)
	s.exec("VACUUM bootstraps, provider_accounts, orphans, machine_reservations, river_job")
}

// next is a hit that was not struck yet, as long as one is left in this round.
func (s *siege) next() strike {
	if len(s.order) == 0 {
		s.order = slices.SortedFunc(maps.Keys(s.ways), func(a, b hit) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		s.random.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
		slices.SortStableFunc(s.order, func(a, b hit) int { return s.struck(a) - s.struck(b) })
	}
	h := s.order[0]
	s.order = s.order[1:]
	return strike{h.point, h.nth, s.ways[h][s.random.IntN(len(s.ways[h]))]}
}

// crowd is how many unfinished runs are enough. With more of them servers would die sooner than any run gets on, and all would end by their time.
const crowd = 24

// aimAt arms strikes until there are so many, and starts a run for each. It waits where runs pile up.
func (s *siege) aimAt(n int) {
	for len(s.armed) < n && s.unfinished() < crowd {
		one := s.next()
		s.aims++
		s.armed = append(s.armed, &aim{
			strike: one, number: s.aims, until: time.Now().Add(reachIn), another: time.Now().Add(patienceFor(one.way)),
		})
		s.arms()
		s.begin(one.way)
		for float64(s.started) < s.perKill*float64(s.kills) {
			s.begin(s.anyWay())
		}
	}
}

// arms tells the servers of what is armed.
func (s *siege) arms() {
	var text strings.Builder
	for _, a := range s.armed {
		fmt.Fprintf(&text, "%d kill %d %s\n", a.number, a.hit, a.point)
	}
	s.write("faults/arm", []byte(text.String()))
}

// reap takes note of the strikes that were made, and of those that were not in time.
func (s *siege) reap() {
	was := len(s.armed)
	s.armed = slices.DeleteFunc(s.armed, func(a *aim) bool {
		h := hit{a.point, a.hit}
		if _, err := os.Stat(filepath.Join(s.dir, "faults", fmt.Sprint("killed-", a.number))); err == nil {
			s.kills++
			s.met[h] = true
			return true
		}
		if time.Now().After(a.until) {
			s.miss(h)
			return true
		}
		a.another = s.beginAgain(a.way, a.another)
		return false
	})
	if len(s.armed) != was {
		s.arms()
	}
}

// miss tries a hit again that no server came to, unless it was struck before.
func (s *siege) miss(h hit) {
	if s.met[h] {
		return
	}
	s.order = append(s.order, h)
	if s.missed[h]++; s.missed[h] > 4 {
		s.t.Errorf("%s is never reached for the %dth time", h.point, h.nth)
	}
}

// waysFor are those whose points are struck: in a small run not the ones that wait for a person, although it goes them too.
func waysFor(kills int) []way {
	if kills < 100 {
		return []way{toTheEnd, givenBack, left, cancelled, retried}
	}
	return allWays()[:unseen] // whose every point another way passes sooner
}

// Servers die between any two writes, at every hit, while the cloud does all wrong that it can, in every way of ordering that there is. In the
// end each run has come to its end, and the cloud has one machine for each that joined and none for any other.
func TestBootstraps(t *testing.T) {
	kills, bootstraps, seed := number(t, "KILLS", 24), number(t, "BOOTSTRAPS", 60), seedOf(t)
	m := newTorment(t, seed, max(3, bootstraps/1500))
	m.bringPerson()
	s := m.siege(append(strikes(m.record(waysFor(kills)...)), strike{"waking.woken", 1, toTheEnd}), float64(bootstraps)/float64(kills))
	m.beginEachWay()
	for !s.enough(kills) && !t.Failed() {
		s.aimAt(4)
		s.reap()
		s.raise()
		s.forgetFaults()
		time.Sleep(5 * time.Millisecond)
	}
	s.disarm()
	s.revive()
	for m.begun() < bootstraps && !t.Failed() {
		m.begin(m.anyWay())
	}
	m.awaitStarters()
	m.cloudCall(http.MethodDelete, "/v1/_faults", "", nil)
	j, slowest := m.settle()
	points, allPoints := s.points()
	if kills >= large && (len(s.met) < len(s.ways) || len(j.faults) < len(m.kinds)) {
		t.Errorf("%d of %d hits were struck, and %d of %d faults were met; missing are %v", len(s.met), len(s.ways), len(j.faults), len(m.kinds), s.unmet())
	}
	t.Logf("why runs failed: %s", m.reasons())
	harness.Report(t, t.Name(), seed, "points=%d/%d hits=%d/%d kills=%d bootstraps=%d joined=%d failed=%d modes=%d faults=%d/%d said=%d released=%d retried=%d double=%d orphans=%d leaked=%d lost=%d stuck=%d retold=%d slowest=%s",
		points, allPoints, len(s.met), len(s.ways), s.kills, j.runs, j.joined, j.failed, j.modes, len(j.faults), len(m.kinds), j.said, j.released, j.retried,
		j.double, j.orphans, j.leaked, j.lost, j.stuck, j.retold, slowest)
}

// Two servers that die while they order send no more orders of a tenant than it may within an hour, and none of another tenant's is held back.
func TestOrderLimit(t *testing.T) {
	const limit, asked = 5, 20
	seed := seedOf(t)
	m := newTorment(t, seed, 2, func(r *rig) { r.unhurried(); r.ordersPerHour, r.timing.ClaimVPS = limit, time.Hour })
	m.bringPerson()
	strikes := m.armAll("claiming.intended", "claiming.attempted", "claiming.ordered", "leased", "decided", "waiting")
	for i := range asked {
		m.starters.Go(func() {
			if _, err := m.start(t.Context(), m.accounts[i%4], "", fmt.Sprint("one-of-many-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Await(t, "all that may be ordered is, and all others wait", func() bool {
		m.raise()
		return m.begunSoFar() == asked && m.unfinished() == asked-limit &&
			m.count("SELECT count(*) FROM bootstraps WHERE wait_reason = 'ORDER_LIMIT'") == asked-limit
	})
	killed := m.killed(strikes)
	m.disarm()
	m.revive()
	if _, err := m.start(t.Context(), m.accounts[4], "", "of-another"); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "another tenant's order is not held back", func() bool {
		return m.count("SELECT count(*) FROM bootstraps WHERE status = 'joined' AND tenant_id = ?", m.accounts[4].tenant) == 1
	})
	waiting := m.cancelWaiting()
	j, slowest := m.settle()
	sold := len(m.sold())
	if sold != limit+1 || waiting != asked-limit || killed < 2 {
		t.Errorf("%d orders were sent, and %d runs waited, over %d kills", sold, waiting, killed)
	}
	harness.Report(t, t.Name(), seed, "limit=%d asked=%d kills=%d/%d ordered=%d waited=%d double=%d orphans=%d lost=%d stuck=%d slowest=%s",
		limit, asked, killed, strikes, sold-1, waiting, j.double, j.orphans, j.lost, j.stuck, slowest)
}

// armAll has a server die at some hits of each of the points, and gives how many deaths that are at most.
func (m *torment) armAll(points ...string) (strikes int) {
	var text strings.Builder
	for _, point := range points {
		for range 2 {
			strikes++
			fmt.Fprintf(&text, "%d kill %d %s\n", strikes, 1+m.random.IntN(4), point)
		}
	}
	m.write("faults/arm", []byte(text.String()))
	return strikes
}

func (m *torment) killed(strikes int) (killed int) {
	for n := range strikes {
		if _, err := os.Stat(filepath.Join(m.dir, "faults", fmt.Sprint("killed-", n+1))); err == nil {
			killed++
		}
	}
	return killed
}

func (m *torment) begunSoFar() int { return m.count("SELECT count(*) FROM bootstraps") }

// cancelWaiting cancels the runs that wait for their tenant's limit, and counts them.
func (m *torment) cancelWaiting() (waiting int) {
	var runs []string
	if err := m.db.NewRaw("SELECT id FROM bootstraps WHERE wait_reason = 'ORDER_LIMIT'").Scan(m.t.Context(), &runs); err != nil {
		m.t.Fatal(err)
	}
	for _, runID := range runs {
		if err := m.cancel(m.t.Context(), m.accounts[0], runID); err != nil {
			m.t.Error(err)
		}
	}
	return len(runs)
}

// reasons counts why runs failed, for who reads that many did.
func (m *torment) reasons() string {
	var told string
	err := m.db.NewRaw(`SELECT coalesce(string_agg(reason || ' ' || n, ', ' ORDER BY n DESC), '') FROM (SELECT failure->>'reason' AS reason, count(*) AS n
		FROM bootstraps WHERE status = 'failed' GROUP BY 1) x`).Scan(m.t.Context(), &told)
	if err != nil {
		return err.Error()
	}
	return told
}

// raise starts what is dead, and waits for nothing.
func (r *rig) raise() {
	for _, p := range r.replicas {
		if p.Dead() {
			p.start()
		}
	}
}
