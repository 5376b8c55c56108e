package server

import (
	"sync"
	"time"
)

// sweepAt is how many accounts a meter remembers before it forgets those that have all their points back.
const sweepAt = 10_000

// The limits that an account is held to.
const (
	limitSubject = "subject"
	limitTenant  = "tenant"
)

// account is what points are taken from: a caller's, or that of a tenant, which all of its callers share.
type account struct{ limit, name string }

// allowance is how many points an account gets back each second, and how many it can save up.
type allowance struct{ rate, burst float64 }

// meter gives each account points that refill with time. An operation takes its cost, so that a thousand cheap requests
// and one dear request are charged alike, in whatever connections they come.
type meter struct {
	allowances map[string]allowance // by limit
	now        func() time.Time

	mu       sync.Mutex
	balances map[account]balance
	sweepAt  int // how many balances the next sweep waits for
}

type balance struct {
	points float64
	at     time.Time
}

func newMeter(l Limits) *meter {
	return &meter{
		allowances: map[string]allowance{
			limitSubject: {float64(l.PointsPerSecond), float64(l.PointsAtMost)},
			limitTenant:  {float64(l.TenantPointsPerSecond), float64(l.TenantPointsAtMost)},
		},
		now: time.Now, balances: map[account]balance{}, sweepAt: sweepAt,
	}
}

// charge takes the points from every account, or from none when one has too few: then wait says how long until it has them, and
// short which one it is, the one with the longest wait.
func (m *meter) charge(points int, accounts ...account) (wait time.Duration, short account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, a := range accounts {
		if w := m.missing(a, points, now); w > wait {
			wait, short = w, a
		}
	}
	if wait > 0 {
		return wait, short
	}
	for _, a := range accounts {
		m.balances[a] = balance{m.points(a, now) - m.price(a, points), now}
	}
	if len(m.balances) >= m.sweepAt {
		m.sweep(now)
	}
	return 0, account{}
}

// missing is how long until the account has the points.
func (m *meter) missing(a account, points int, now time.Time) time.Duration {
	lack := m.price(a, points) - m.points(a, now)
	return time.Duration(max(lack, 0) / m.allowances[a.limit].rate * float64(time.Second))
}

// price is at least a point, and never more than can be saved up.
func (m *meter) price(a account, points int) float64 {
	return min(float64(max(points, 1)), m.allowances[a.limit].burst)
}

func (m *meter) points(a account, now time.Time) float64 {
	allowed := m.allowances[a.limit]
	b, known := m.balances[a]
	if !known {
		return allowed.burst
	}
	return min(allowed.burst, b.points+allowed.rate*now.Sub(b.at).Seconds())
}

// sweep forgets the accounts that have all their points back. The next one waits until there are twice as many as are left, so that
// a flood of new names costs each of them a constant.
func (m *meter) sweep(now time.Time) {
	for a := range m.balances {
		if m.points(a, now) >= m.allowances[a.limit].burst {
			delete(m.balances, a)
		}
	}
	m.sweepAt = max(sweepAt, 2*len(m.balances))
}
