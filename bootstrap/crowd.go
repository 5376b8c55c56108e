package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"better/compute/internal/slots"
)

// How much a replica does at a time of what it does for all accounts in turn, and for one tenant: a provider that hangs holds a few slots and
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

// doAll does what take gives, in several slots at once, until that has nothing any more and all is done; while something goes on, what comes
// due meanwhile is taken too. Take is told which tenants have all their slots, and gives nil for nothing. After an error nothing
// more is taken; the first one is the answer.
func doAll(ctx context.Context, look time.Duration, take func(ctx context.Context, busy []string) (*piece, error)) (err error) {
	going, ended := slots.New(slots.Level{Name: perTenant, PerKey: piecesPerTenant}), make(chan error)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for n := 0; ; {
		var next *piece
		if n < piecesAtATime && err == nil {
			next, err = take(ctx, going.Full(perTenant))
		}
		if next != nil {
			release, full := going.Try(slots.Key{Level: perTenant, Name: next.tenantID})
			if full != nil {
				err = fmt.Errorf("taking something for a tenant that was said to be busy: %w", full)
				continue
			}
			n++
			go func() {
				err := next.do(ctx)
				release()
				ended <- err
			}()
			continue
		}
		if n == 0 {
			return err
		}
		select {
		case e := <-ended:
			n--
			err = cmp.Or(err, e)
		case <-tick.C:
		}
	}
}
