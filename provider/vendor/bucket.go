package vendor

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// patience is how long a request may wait for its turn. One that would have to wait longer does not go out.
const patience = 2 * time.Second

// bucket holds what an account may still ask. It fills by the vendor's rate, and believes the vendor where that says that there is less.
type bucket struct {
	rate Rate
	now  func() time.Time

	mu     sync.Mutex
	tokens float64
	at     time.Time // when there were so many
	closed time.Time // nothing goes out before
}

func newBucket(rate Rate) *bucket {
	return &bucket{rate: rate, now: time.Now, tokens: float64(rate.Burst), at: time.Now()}
}

// await takes a token, waiting for it for a while, or says how long there will be none.
func (b *bucket) await(ctx context.Context) time.Duration {
	for {
		wait := b.take()
		if wait == 0 || wait > patience {
			return wait
		}
		select {
		case <-ctx.Done():
			return 0 // and the request fails by itself
		case <-time.After(wait):
		}
	}
}

func (b *bucket) take() (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if wait := b.closed.Sub(now); wait > 0 {
		return wait
	}
	if b.rate.PerSecond <= 0 {
		return 0
	}
	b.fill(now)
	if b.tokens < 1 {
		return time.Duration(math.Ceil((1 - b.tokens) / b.rate.PerSecond * float64(time.Second)))
	}
	b.tokens--
	return 0
}

func (b *bucket) fill(now time.Time) {
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*b.rate.PerSecond, float64(b.rate.Burst))
	b.at = now
}

// learn takes what the vendor says is left, and how long it wants to be left alone.
func (b *bucket) learn(r *http.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.fill(now)
	for _, name := range []string{"RateLimit-Remaining", "X-RateLimit-Remaining"} {
		if left, err := strconv.ParseUint(r.Header.Get(name), 10, 32); err == nil {
			b.tokens = min(b.tokens, float64(left))
		}
	}
	if r.StatusCode == http.StatusTooManyRequests {
		b.tokens = min(b.tokens, 0)
		b.closed = now.Add(retryAfter(r.Header))
	}
}
