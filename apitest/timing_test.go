package apitest

import (
	"flag"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

var (
	timingSamples = flag.Int("timing-samples", 50, "how often TestTimingOfIDs asks for each id")
	timingSeed    = flag.Uint64("timing-seed", 0, "what TestTimingOfIDs asks in the order of; 0 takes a new one")
)

const (
	timingFull = 2000  // samples from which on chance is no excuse
	timingP    = 0.001 // what chance alone falls below once in so many
)

// idClasses are ids that a caller must not tell apart, neither by what is answered nor by how long that takes.
var idClasses = []string{"absent", "foreign", "deleted"}

// TestTimingOfIDs asks every operation that takes an id for one that never was, one of another tenant and one that was deleted, in turn: as somebody
// without any right, and as the tenant's owner, who has none to what is another's. What is answered is the same, byte for byte; how long it takes is
// compared by ranks. On a machine that is shared a difference may be chance, so a pair that differs is measured anew, and at full size must not again.
func TestTimingOfIDs(t *testing.T) {
	t.Parallel()
	seed := *timingSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	w := newRightsWorld(t)
	m := &timing{rightsWorld: w, random: rand.New(rand.NewPCG(seed, 0)), least: 1}
	cases := rightsCases()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		if w.present[c.kind] == "" {
			continue
		}
		for _, caller := range []string{"stranger", "owner"} {
			t.Run(name+" as "+caller, func(t *testing.T) { m.judge(t, c, w.tokens[caller]) })
		}
	}
	harness.Report(t, "timing", seed, "cases=%d samples=%d pairs=%d suspected=%d told_apart=%d least_p=%.4f answers_differ=%d",
		m.cases, *timingSamples, m.pairs, m.suspected, m.apart, m.least, m.differ)
}

// timing measures, and counts what comes of it.
type timing struct {
	*rightsWorld
	random                                 *rand.Rand
	cases, pairs, suspected, apart, differ int
	least                                  float64 // of the p that stand
}

// judge compares each pair of classes.
func (m *timing) judge(t *testing.T, c rightsCase, token string) {
	t.Helper()
	m.cases++
	took := m.sample(t, c, token)
	for i, one := range idClasses {
		for _, other := range idClasses[:i] {
			m.pairs++
			p, again := rankTest(took[one], took[other]), ""
			if p <= timingP && *timingSamples >= timingFull {
				m.suspected++
				anew := m.sample(t, c, token)
				p = rankTest(anew[one], anew[other])
				again = ", measured anew"
			}
			m.least = min(m.least, p)
			t.Logf("%s and %s: p=%.4f, medians %s and %s%s", one, other, p, median(took[one]), median(took[other]), again)
			if p <= timingP && *timingSamples >= timingFull {
				m.apart++
				t.Errorf("%s and %s ids are told apart by the time it takes, p=%g", one, other, p)
			}
		}
	}
}

// sample asks for each id, in another order each time, and looks that the answers are the same.
func (m *timing) sample(t *testing.T, c rightsCase, token string) map[string][]time.Duration {
	t.Helper()
	ids := map[string]string{"absent": m.absent[c.kind], "foreign": m.foreign[c.kind], "deleted": m.deleted[c.kind]}
	took := map[string][]time.Duration{}
	order := slices.Clone(idClasses)
	first := ""
	for range *timingSamples {
		m.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, class := range order {
			began := time.Now()
			a := m.send(t, c, token, m.tenant, ids[class])
			took[class] = append(took[class], time.Since(began))
			said := strings.ReplaceAll(shape(a), ids[class], "<id>")
			if first == "" {
				first = said
			}
			if said != first {
				m.differ++
				t.Fatalf("%s ids are answered differently: %s\nfrom %s", class, said, first)
			}
		}
	}
	return took
}

func median(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2].Round(time.Microsecond)
}

// rankTest is how probable it is that two samples of one distribution differ at least as much as these: the rank test of Mann and Whitney, on both
// sides, by the normal distribution, with a correction for ties.
func rankTest(a, b []time.Duration) float64 {
	type sample struct {
		took time.Duration
		isA  bool
	}
	var all []sample
	for _, d := range a {
		all = append(all, sample{d, true})
	}
	for _, d := range b {
		all = append(all, sample{d, false})
	}
	slices.SortFunc(all, func(x, y sample) int { return int(x.took - y.took) })
	ranks, ties := 0.0, 0.0
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].took == all[from].took {
			to++
		}
		rank, tied := float64(from+to+1)/2, float64(to-from)
		for _, s := range all[from:to] {
			if s.isA {
				ranks += rank
			}
		}
		ties += tied*tied*tied - tied
		from = to
	}
	n, m := float64(len(a)), float64(len(b))
	u := ranks - n*(n+1)/2
	deviation := math.Sqrt(n * m / 12 * (n + m + 1 - ties/((n+m)*(n+m-1))))
	if deviation == 0 {
		return 1
	}
	return math.Erfc(math.Abs(u-n*m/2) / deviation / math.Sqrt2)
}

// TestRankTest holds it to figures that were worked out by hand, and to a difference that it has to find.
func TestRankTest(t *testing.T) {
	t.Parallel()
	of := func(values ...int) (all []time.Duration) {
		for _, v := range values {
			all = append(all, time.Duration(v))
		}
		return all
	}
	for _, c := range []struct {
		a, b []time.Duration
		want float64
	}{
		{of(1, 1, 1), of(1, 1, 1), 1},
		{of(1, 2, 3, 4, 5), of(1, 2, 3, 4, 5), 1},
		{of(1, 2, 3, 4, 5), of(6, 7, 8, 9, 10), 0.009023},
		{of(1, 2, 2, 3), of(2, 3, 3, 4), 0.129155},
	} {
		if got := rankTest(c.a, c.b); math.Abs(got-c.want) > 1e-5 {
			t.Errorf("of %v and %v: p=%f, want %f", c.a, c.b, got, c.want)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	var quick, slow []time.Duration
	for range timingFull {
		quick = append(quick, time.Duration(1000+random.IntN(1000)))
		slow = append(slow, time.Duration(1050+random.IntN(1000)))
	}
	if p := rankTest(quick, slow); p > timingP {
		t.Errorf("a difference of 3 %% in %d samples is not found: p=%f", timingFull, p)
	}
}
