package bootstrap

import (
	"cmp"
	"context"
	"time"
)

// How much a replica does at a time of what it does for all accounts in turn, and for one tenant: a provider that hangs holds a few places and
// not all of them.
const (
	piecesAtATime   = 32
	piecesPerTenant = 4
)

// piece is something to be done for a tenant. It bounds its own time.
type piece struct {
	tenantID string
	do       func(context.Context) error
}

// doAll does what take gives, in several places at once, until that has nothing any more and all is done; while something goes on, what comes
// due meanwhile is taken too. Take is told which tenants have all their places, and gives nil for nothing. After an error nothing
// more is taken; the first one is the answer.
func doAll(ctx context.Context, look time.Duration, take func(ctx context.Context, busy []string) (*piece, error)) (err error) {
	type ending struct {
		tenantID string
		err      error
	}
	ended, going := make(chan ending), map[string]int{}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for n := 0; ; {
		var next *piece
		if n < piecesAtATime && err == nil {
			next, err = take(ctx, busyOf(going))
		}
		if next != nil {
			n++
			going[next.tenantID]++
			go func() { ended <- ending{next.tenantID, next.do(ctx)} }()
			continue
		}
		if n == 0 {
			return err
		}
		select {
		case e := <-ended:
			n--
			going[e.tenantID]--
			err = cmp.Or(err, e.err)
		case <-tick.C:
		}
	}
}

func busyOf(going map[string]int) []string {
	busy := []string{}
	for tenantID, n := range going {
		if n >= piecesPerTenant {
			busy = append(busy, tenantID)
		}
	}
	return busy
}
