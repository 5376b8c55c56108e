package authz

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"better/compute/internal/postgres/pgtest"
)

// BenchmarkDecisions prints what a decision costs beside 10, 1,000 and 100,000 tenants, of five bindings each, and what a subject costs in
// memory. The sizes take turns, and of each the best turn counts, so that a busy machine falls on all of them alike.
func BenchmarkDecisions(b *testing.B) {
	var fleets []*fleet
	for _, tenants := range []int{10, 1_000, 100_000} {
		fleets = append(fleets, newFleet(b, tenants))
	}
	for range b.N {
		for range 40 {
			for _, f := range fleets {
				f.cached = min(f.cached, f.decide(b, 20_000, false))
				f.uncached = min(f.uncached, f.decide(b, 50, true))
			}
		}
		small, large := fleets[0], fleets[len(fleets)-1]
		for _, f := range fleets {
			fmt.Printf("decisions tenants=%d cached=%.0fns uncached=%.0fns\n", f.tenants, f.cached, f.uncached)
		}
		cached, uncached := large.cached/small.cached, large.uncached/small.uncached
		verdict := "PASS"
		if max(cached, uncached) > 1.3 {
			verdict = "FAIL"
			b.Fail()
		}
		fmt.Printf("decisions largest/smallest cached=%.2f uncached=%.2f %s seed=0\n", cached, uncached, verdict)
		subject, heap := large.memory(b)
		fmt.Printf("decisions memory subject=%dB of=%d process=%dMiB\n", subject, cachedSubjects, heap>>20)
	}
}

type fleet struct {
	tenants          int
	d                *Decider
	asked            int
	cached, uncached float64 // ns, of the best turn
}

func newFleet(b *testing.B, tenants int) *fleet {
	b.Helper()
	db := pgtest.New(b)
	owner := pgtest.Owner(b, db)
	for _, statement := range []string{
		`INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) SELECT 'pacct_' || t, t, 'sim', 'a', '' FROM generate_series(1, ?) t`,
		`INSERT INTO role_bindings (subject, role, object, effect) SELECT 'user:' || t || '-' || u, 'provider-viewer', 'compute-tenant/' || t, 'allow'
			FROM generate_series(1, ?) t, generate_series(1, 4) u`,
		`INSERT INTO role_bindings (subject, role, object, effect) SELECT 'user:' || t || '-5', 'provider-viewer', 'compute-provider-account/pacct_' || t, 'allow'
			FROM generate_series(1, ?) t`,
		"ANALYZE provider_accounts, role_bindings",
	} {
		if _, err := owner.ExecContext(b.Context(), statement, tenants); err != nil {
			b.Fatal(err)
		}
	}
	return &fleet{tenants: tenants, d: follow(b, newDecider(b, db)), cached: math.MaxFloat64, uncached: math.MaxFloat64}
}

// cachedCallers is how many callers the cached decisions are spread over, where there are as many. With ten times as many a decision takes a
// fifth longer, since they do not stay in the processor's own cache.
const cachedCallers = 1_000

// decide takes n decisions and gives the nanoseconds of one, each for another caller: cached ones for callers that were asked for
// before, uncached ones for callers whom nothing is known of.
func (f *fleet) decide(b *testing.B, n int, uncached bool) float64 {
	b.Helper()
	callers := f.tenants
	if !uncached {
		callers = min(callers, cachedCallers)
		for i := range callers {
			f.check(b, i+1)
		}
	}
	began := time.Now()
	for range n {
		f.asked = f.asked%callers + 1
		if uncached {
			f.d.cache.drop(fmt.Sprintf("user:%d-1", f.asked))
		}
		f.check(b, f.asked)
	}
	return float64(time.Since(began).Nanoseconds()) / float64(n)
}

// check decides about the first caller of a tenant.
func (f *fleet) check(b *testing.B, tenant int) {
	b.Helper()
	name := fmt.Sprint(tenant)
	if err := f.d.Check(as(context.Background(), "user:"+name+"-1"), ProvidersRead, Tenant(name)); err != nil {
		b.Fatal(err)
	}
}

// memory fills the cache, and gives the bytes of a subject in it and those of the whole process.
func (f *fleet) memory(b *testing.B) (subject, process uint64) {
	b.Helper()
	f.d.cache.forget()
	before := heap()
	var subjects []Subject
	for t := 1; len(subjects) < cachedSubjects; t++ {
		for u := 1; u <= 5; u++ {
			subjects = append(subjects, fmt.Sprintf("user:%d-%d", t, u))
		}
	}
	q := question{subjects: subjects}
	eventually(b, "the cache is full", func() bool {
		read, err := f.d.readPolicy(b.Context(), f.d.db.DB, q)
		if err != nil {
			b.Fatal(err)
		}
		_, _, generation := f.d.cache.get(question{}, f.d.now())
		f.d.cache.put(q, read, generation)
		return f.d.cache.subjects.Len() == cachedSubjects
	})
	after := heap()
	return (after - before) / cachedSubjects, after
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
