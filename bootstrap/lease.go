package bootstrap

import (
	"context"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

// lease is the right to work on a run, as long as it can be renewed. It protects work only: what protects money is the operation
// id, and what protects the row is the epoch in each write. The deadline here is counted on the monotonic clock from before
// each renewal was sent, so that it ends no later than the database's.
type lease struct {
	ttl    time.Duration
	cancel context.CancelCauseFunc
	expiry *time.Timer
	ended  chan struct{}

	mu    sync.Mutex
	until time.Time
}

// hold keeps the lease that was asked for at the time asked, until stop. The context ends when the lease does.
func hold(ctx context.Context, db bun.IDB, r *run, ttl time.Duration, asked time.Time) (context.Context, *lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lease{ttl: ttl, cancel: cancel, ended: make(chan struct{}), until: asked.Add(ttl)}
	l.expiry = time.AfterFunc(time.Until(l.until), func() { cancel(errLost) })
	go l.renew(ctx, db, r.ID, r.LeaseEpoch)
	return ctx, l
}

// confirm is errLost unless the lease on the run is held at this moment. It is asked before an act that must not come late. The monotonic clock
// alone would not do: it stands still while the computer is suspended, so the database is asked, whose time decides.
func (l *lease) confirm(ctx context.Context, db bun.IDB, r *run) error {
	held, err := db.NewSelect().Model((*run)(nil)).
		Where("id = ?", r.ID).Where("lease_epoch = ?", r.LeaseEpoch).Where("lease_until > now()").Exists(ctx)
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return failed("looking whether a lease is held", err)
	case !held, !l.valid(): // the answer may have waited in a process that was stopped
		return errLost
	}
	return nil
}

// valid reports whether the lease is held by the clock of this process.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// stop ends the renewals, and the context with them. Whoever writes the end of the step does it afterwards.
func (l *lease) stop() {
	l.expiry.Stop()
	l.cancel(nil)
	<-l.ended
}

func (l *lease) renew(ctx context.Context, db bun.IDB, id string, epoch int64) {
	defer close(l.ended)
	tick := time.NewTicker(l.ttl / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		// A renewal that was cut off may reach the database late: it must not bring back a lease that was given back.
		res, err := db.NewUpdate().Model((*run)(nil)).Set("lease_until = ?", fromNow(l.ttl)).
			Where("id = ?", id).Where("lease_epoch = ?", epoch).Where("lease_until IS NOT NULL").Exec(ctx)
		if err != nil {
			continue // the database may be back before the lease ends
		}
		if n, err := res.RowsAffected(); err == nil && n == 0 {
			l.cancel(errLost)
			return
		}
		l.extend(asked)
	}
}

func (l *lease) extend(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.expiry.Stop() {
		return // it has ended already
	}
	l.until = asked.Add(l.ttl)
	l.expiry.Reset(time.Until(l.until))
}
