// Package event owns the outbox: events that are written in the transaction of what they report, and read by every
// replica in one order, behind the commit horizon.
//
// It refuses to know what the events say. The invariant: a reader that goes on from a position it was given sees every
// event after it exactly once, whoever wrote it and however long its transaction took to commit.
package event

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Retention is how long events are kept.
const Retention = 7 * 24 * time.Hour

// channel is where a commit that wrote events is announced. Announcements are hints: a lost one costs the poll delay.
const channel = "events"

// Record is an event to be written. Data is a CloudEvents 1.0 envelope without secrets.
type Record struct {
	TenantID    string
	Type        string
	BootstrapID string
	AccountID   string
	Data        model.JSON
}

// Position is a place in the order of events. Transactions commit out of order, so the order is that of the transaction
// that wrote an event, then of the event's number; both are compared as numbers.
type Position struct {
	XID uint64
	ID  int64
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.XID < q.XID || p.XID == q.XID && p.ID < q.ID
}

func (p Position) String() string { return fmt.Sprintf("%d.%d", p.XID, p.ID) }

// Event is an event that was read.
type Event struct {
	Record
	Position Position
	At       time.Time

	shared sync.Map // what Share found, by key
}

// Share gives what find found for the first reader of the event that asked by this key to all that ask by it: readers of a
// Hub's subscriptions get the same event. While one finds, the others wait, and go on all at once; a failure is told to those and not kept.
func (e *Event) Share(key any, find func() (any, error)) (any, error) {
	mine := &finding{done: make(chan struct{})}
	if other, found := e.shared.LoadOrStore(key, mine); found {
		f, _ := other.(*finding)
		<-f.done
		return f.value, f.err
	}
	defer close(mine.done)
	if mine.value, mine.err = find(); mine.err != nil {
		e.shared.Delete(key)
	}
	return mine.value, mine.err
}

type finding struct {
	done  chan struct{}
	value any
	err   error
}

// Append writes an event in the caller's transaction, which must hold the row that the event tells of. The error of a transaction that
// is older than one that has told of the same run makes RunInTx run it again: a transaction gets its place in the order when it first
// writes, which may be before it gets hold of the row.
func Append(ctx context.Context, tx bun.IDB, r Record) error {
	var announced string
	var late bool
	err := tx.NewRaw(`
		WITH written AS (
			INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data) VALUES (?0, ?1, ?2, ?3, ?4)
		)
		SELECT pg_notify(?5, '')::text, EXISTS (SELECT FROM events WHERE bootstrap_id = ?2 AND xid > pg_current_xact_id())`,
		r.TenantID, r.Type, r.BootstrapID, r.AccountID, r.Data, channel).Scan(ctx, &announced, &late)
	if err == nil && late {
		err = &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "the transaction is older than the last event of the run"}
	}
	if err != nil {
		return fmt.Errorf("appending event %s: %w", r.Type, err)
	}
	return nil
}

// Range says which events to read.
type Range struct {
	// After and UpTo bound the positions: After < position <= UpTo.
	After, UpTo Position
	TenantID    string
	// AccountID and BootstrapID narrow further when not empty.
	AccountID   string
	BootstrapID string
	// Accounts narrows the query to what its reader may know, by the column of the account's id. Nil for all.
	Accounts func(q *bun.SelectQuery, column string) *bun.SelectQuery
	Limit    int64
}

// Read lists the events of a range in order. UpTo must lie behind the commit horizon, as every position of a Subscription does.
func Read(ctx context.Context, db bun.IDB, r Range) ([]*Event, error) {
	return scan(ctx, r.query(db))
}

func (r Range) query(db bun.IDB) *bun.SelectQuery {
	q := selectEvents(db).
		Where("(e.xid, e.id) > (?::xid8, ?)", r.After.xid(), r.After.ID).
		Where("(e.xid, e.id) <= (?::xid8, ?)", r.UpTo.xid(), r.UpTo.ID).
		Where("e.tenant_id = ?", r.TenantID).
		OrderExpr("e.xid, e.id").Limit(r.Limit)
	if r.AccountID != "" {
		q = q.Where("e.account_id = ?", r.AccountID)
	}
	if r.BootstrapID != "" {
		q = q.Where("e.bootstrap_id = ?", r.BootstrapID)
	}
	if r.Accounts != nil {
		q = r.Accounts(q, "e.account_id")
	}
	return q
}

// Latest is the newest event of a bootstrap; nil when there is none. It may lie before the commit horizon: the events of one bootstrap are
// written one after the other, so none that is older can still come.
func Latest(ctx context.Context, db bun.IDB, tenantID, bootstrapID string) (*Event, error) {
	events, err := scan(ctx, selectEvents(db).
		Where("e.tenant_id = ? AND e.bootstrap_id = ?", tenantID, bootstrapID).
		OrderExpr("e.xid DESC, e.id DESC").Limit(1))
	if err != nil || len(events) == 0 {
		return nil, err
	}
	return events[0], nil
}

// Begun reports whether the transaction of a position has begun in this database, as that of every event has.
func Begun(ctx context.Context, db bun.IDB, p Position) (bool, error) {
	var begun bool
	err := db.NewRaw("SELECT ?::xid8 < pg_snapshot_xmax(pg_current_snapshot())", p.xid()).Scan(ctx, &begun)
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("comparing a position: %w", err))
	}
	return begun, nil
}

// CheckCounter is UNAVAILABLE when there are events of transactions that have not begun in this database, as after a restore into
// a cluster that counts from the start: the events of a bootstrap would not come in order, and so are refused until the counter has caught up.
func CheckCounter(ctx context.Context, db bun.IDB) error {
	var ahead bool
	err := db.NewRaw("SELECT EXISTS (SELECT FROM events WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))").Scan(ctx, &ahead)
	if err != nil {
		return postgres.Translate(fmt.Errorf("comparing the outbox with the transaction counter: %w", err))
	}
	if ahead {
		return problem.New(problem.Unavailable, "The database's transaction counter is behind its events.").
			Because(errors.New("restored into another cluster: advance its counter, see docs/operations.md"))
	}
	return nil
}

// Prune deletes events that are older than the retention, and an hour more, so that a cursor whose age is checked against the
// retention never points at a gap.
func Prune(ctx context.Context, db bun.IDB) error {
	_, err := db.NewRaw(`DELETE FROM events WHERE at < now() - make_interval(secs => ?)`,
		(Retention + time.Hour).Seconds()).Exec(ctx)
	if err != nil {
		return fmt.Errorf("pruning events: %w", err)
	}
	return nil
}

// xid is the decimal text of the transaction number, since xid8 has no cast from a signed integer.
func (p Position) xid() string { return strconv.FormatUint(p.XID, 10) }

// row is an event as read. The column alias must not be "xid": ORDER BY would then sort its text.
type row struct {
	XIDText     string     `bun:"xid_text"`
	ID          int64      `bun:"id"`
	TenantID    string     `bun:"tenant_id"`
	Type        string     `bun:"type"`
	BootstrapID string     `bun:"bootstrap_id"`
	AccountID   string     `bun:"account_id"`
	Data        model.JSON `bun:"data"`
	At          time.Time  `bun:"at"`
}

func selectEvents(db bun.IDB) *bun.SelectQuery {
	return db.NewSelect().TableExpr("events AS e").
		ColumnExpr("e.xid::text AS xid_text, e.id, e.tenant_id, e.type, e.bootstrap_id, e.account_id, e.data, e.at")
}

func scan(ctx context.Context, q *bun.SelectQuery) ([]*Event, error) {
	var rows []row
	if err := q.Scan(ctx, &rows); err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading events: %w", err))
	}
	events := make([]*Event, len(rows))
	for i, r := range rows {
		xid, err := strconv.ParseUint(r.XIDText, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading events: transaction number %q: %w", r.XIDText, err)
		}
		events[i] = &Event{
			Record:   Record{TenantID: r.TenantID, Type: r.Type, BootstrapID: r.BootstrapID, AccountID: r.AccountID, Data: r.Data},
			Position: Position{XID: xid, ID: r.ID},
			At:       r.At,
		}
	}
	return events, nil
}
