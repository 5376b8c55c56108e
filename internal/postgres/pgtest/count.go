package pgtest

import (
	"context"
	"sync/atomic"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// CountQueries starts to count the statements that go through Bun on db, BEGIN and COMMIT left out, and returns the
// function that reads the number so far. Call it before the queries start. A test that lists one page twice, with few
// rows and with many, and compares finds an N+1.
func CountQueries(db *postgres.DB) (count func() int) {
	counter := new(counter)
	db.AddQueryHook(counter)
	return func() int { return int(counter.n.Load()) }
}

type counter struct{ n atomic.Int64 }

func (c *counter) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	switch event.Operation() {
	case "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE":
	default:
		c.n.Add(1)
	}
	return ctx
}

func (c *counter) AfterQuery(context.Context, *bun.QueryEvent) {}
