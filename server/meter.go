package server

import (
	"sync"
	"time"
)

// sweepAt is how many callers a meter remembers before it forgets those who have all their points back.
const sweepAt = 10_000

// meter gives each caller points that refill with time. An operation takes its cost, so that a thousand cheap requests
// and one dear request are charged alike, in whatever connections they come.
type meter struct {
	rate, burst float64 // points a second, points at most
	now         func() time.Time

	mu      sync.Mutex
	callers map[string]balance
}

type balance struct {
	points float64
	at     time.Time
}

func newMeter(rate, burst int) *meter {
	return &meter{rate: float64(rate), burst: float64(burst), now: time.Now, callers: map[string]balance{}}
}

// charge takes the points from the caller, or nothing when there are too few: then wait says how long until there are.
func (m *meter) charge(caller string, points int) (wait time.Duration) {
	want := min(float64(max(points, 1)), m.burst)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	have := m.burst
	if b, known := m.callers[caller]; known {
		have = min(m.burst, b.points+m.rate*now.Sub(b.at).Seconds())
	}
	if have < want {
		return time.Duration((want - have) / m.rate * float64(time.Second))
	}
	if len(m.callers) >= sweepAt {
		m.sweep(now)
	}
	m.callers[caller] = balance{have - want, now}
	return 0
}

func (m *meter) sweep(now time.Time) {
	for caller, b := range m.callers {
		if b.points+m.rate*now.Sub(b.at).Seconds() >= m.burst {
			delete(m.callers, caller)
		}
	}
}
