package authz

import (
	"context"
	"math"
	"sync"
	"time"

	"better/compute/internal/problem"
)

// DenialLimits is how many denials of one caller, or of all services of one tenant together, are told, and written, in a time.
type DenialLimits struct {
	PerSecond int // that a caller gets back each second
	AtMost    int // that it can save up
}

// defaultDenials is more than a person or a program meets by mistake, and less than fills a disk: a row is about a kilobyte.
var defaultDenials = DenialLimits{PerSecond: 20, AtMost: 200}

// sweepDenialsAt is how many callers are remembered before those that have all their denials back are forgotten.
const sweepDenialsAt = 10_000

// denials counts those of each caller, so that nobody without rights can fill the audit log. The services of a tenant, which its administrators make,
// are one caller.
type denials struct {
	mu      sync.Mutex
	left    map[payer]denialsLeft
	sweepAt int // how many callers the next sweep waits for
}

// payer is whose limits hold for a caller: the tenant's, for all of its services, or else its own.
type payer struct{ limit, name string }

const (
	limitSubject = "subject"
	limitTenant  = "tenant"
)

func payerOf(caller Subject) payer {
	if tenant := ServiceTenant(caller); tenant != "" {
		return payer{limitTenant, tenant}
	}
	return payer{limitSubject, caller}
}

type denialsLeft struct {
	n  float64
	at time.Time
}

// CheckRepeat is for a call that is answered, and written down, without a right to it: the repeat of one that the caller made when it
// still had that. To who would be denied it costs a denial, so that nobody without rights can fill the audit log by this either:
// RATE_LIMITED when there is none left. UNAUTHENTICATED or UNAVAILABLE as in Check.
func (d *Decider) CheckRepeat(ctx context.Context, p Permission, o Object) error {
	actor, held, err := d.caller(ctx)
	if err != nil || decide(held, p, o) == granted {
		return err
	}
	return d.denials.take(d.Denials, actor.Subject, d.now())
}

// take takes one denial of the caller's. RATE_LIMITED, with details.retryAfterSeconds, when it has none left; details.limit says
// whose they are, "subject" or "tenant".
func (d *denials) take(l DenialLimits, caller Subject, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := payerOf(caller)
	left := d.of(l, p, now)
	if left < 1 {
		wait := math.Ceil((1 - left) / float64(l.PerSecond))
		return problem.New(problem.RateLimited, "You were denied too often in a short time; try again later.").
			With("rule", "denials").With("limit", p.limit).With("retryAfterSeconds", int(wait))
	}
	if d.left == nil {
		d.left, d.sweepAt = map[payer]denialsLeft{}, sweepDenialsAt
	}
	d.left[p] = denialsLeft{left - 1, now}
	if len(d.left) >= d.sweepAt {
		d.sweep(l, now)
	}
	return nil
}

func (d *denials) of(l DenialLimits, p payer, now time.Time) float64 {
	left, known := d.left[p]
	if !known {
		return float64(l.AtMost)
	}
	return min(float64(l.AtMost), left.n+float64(l.PerSecond)*now.Sub(left.at).Seconds())
}

// sweep waits the longer the more are left, so that a flood of callers costs each of them a constant.
func (d *denials) sweep(l DenialLimits, now time.Time) {
	for p := range d.left {
		if d.of(l, p, now) >= float64(l.AtMost) {
			delete(d.left, p)
		}
	}
	d.sweepAt = max(sweepDenialsAt, 2*len(d.left))
}
