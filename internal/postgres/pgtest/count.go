package pgtest

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// CountQueries starts to count the statements that go through Bun or in batches on db, which New has made, BEGIN, COMMIT and what sets the scope left
// out, and returns the function that reads the number so far. Call it before the queries start. A test that lists one page twice, with few
// rows and with many, and compares finds an N+1.
func CountQueries(db *postgres.DB) (count func() int) {
	counter := new(counter)
	db.AddQueryHook(counter)
	batches := db.Pool.Config().ConnConfig.Tracer.(*batches)
	start := batches.n.Load()
	return func() int { return int(counter.n.Load() + batches.n.Load() - start) }
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

// batches counts the statements of batches. Bun sends none.
type batches struct{ n atomic.Int64 }

func (b *batches) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	if q.SQL != "begin" && !strings.HasPrefix(q.SQL, "SELECT set_config") {
		b.n.Add(1)
	}
}

func (*batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (*batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
