package bootstrap

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
)

// clock is the time that the queue goes by: this process's own, put right by the database's. The queue puts off a job until a time that it
// reckons itself, and the database decides when that has come: by a clock that is ten minutes ahead each wait would last ten minutes
// longer, and by one that is behind none would last at all.
type clock struct {
	own   func() time.Time
	ahead atomic.Int64 // by so many nanoseconds is the database ahead
}

// Now is about the database's time. It keeps the monotonic reading, so that what is measured by it is measured rightly.
func (c *clock) Now() time.Time { return c.own().Add(time.Duration(c.ahead.Load())) }

// NowOrNil lets the database say the time wherever it can.
func (c *clock) NowOrNil() *time.Time { return nil }

// set asks the database for its time.
func (c *clock) set(ctx context.Context, idb bun.IDB) error {
	var at time.Time
	asked := c.own()
	if err := idb.NewRaw("SELECT clock_timestamp()").Scan(ctx, &at); err != nil {
		return failed("reading the database's time", err)
	}
	took := c.own().Sub(asked)
	c.ahead.Store(int64(at.Sub(asked.Round(0)) - took/2)) // Round takes the monotonic reading away, which at has not
	return nil
}
