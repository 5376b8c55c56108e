package event

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"better/compute/internal/postgres"
)

// Hub reads the outbox once for a whole process and hands each event to the subscriptions that want it. A subscription that does not
// keep up is cut off; it never holds back the others.
type Hub struct {
	db  *postgres.DB
	log *slog.Logger
	// Poll is how long a lost announcement can delay an event.
	Poll time.Duration

	mu       sync.Mutex
	started  chan struct{}
	position Position
	subs     map[*Subscription]struct{}
}

// batch is how many events are read at once.
const batch = 500

// NewHub makes a hub; Run makes it work.
func NewHub(db *postgres.DB, log *slog.Logger) *Hub {
	return &Hub{
		db: db, log: log, Poll: 250 * time.Millisecond,
		started: make(chan struct{}), subs: map[*Subscription]struct{}{},
	}
}

// Subscription is a bounded queue of the events after Start that a filter lets through.
type Subscription struct {
	// C is closed when the subscription is cut off because its reader did not keep up, and by Close.
	C <-chan *Event
	// Start is a position behind the commit horizon: every wanted event after it comes through C, none at or before it does.
	Start Position

	hub  *Hub
	c    chan *Event
	want func(*Event) bool
	once sync.Once
}

// Subscribe starts a subscription with room for size events. It waits until the hub knows where the outbox stands.
func (h *Hub) Subscribe(ctx context.Context, size int, want func(*Event) bool) (*Subscription, error) {
	select {
	case <-h.started:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := make(chan *Event, size)
	s := &Subscription{C: c, hub: h, c: c, want: want}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Start = h.position
	h.subs[s] = struct{}{}
	return s, nil
}

// Close ends the subscription; it may be called more than once.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.end()
}

// end is called with the hub's lock held.
func (s *Subscription) end() {
	s.once.Do(func() {
		delete(s.hub.subs, s)
		close(s.c)
	})
}

// Subscribers counts the open subscriptions.
func (h *Hub) Subscribers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

// Run reads until ctx ends. Database failures are logged and tried again: the position stays, so nothing is missed.
func (h *Hub) Run(ctx context.Context) error {
	ctx = postgres.WithScope(ctx, postgres.AllTenants()) // who may see an event is for its readers to decide
	for {
		err := h.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		h.log.WarnContext(ctx, "following the outbox was interrupted", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(h.Poll):
		}
	}
}

// follow holds one connection that both listens and reads, so a read always comes after the announcement that caused it.
func (h *Hub) follow(ctx context.Context) error {
	pooled, err := h.db.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquiring a connection: %w", err)
	}
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if err := h.start(ctx, conn); err != nil {
		return err
	}
	for {
		n, err := h.read(ctx, conn)
		if err != nil {
			return err
		}
		if n == batch {
			continue
		}
		if err := h.wait(ctx, conn); err != nil {
			return err
		}
	}
}

// StartAt makes the hub begin at a position instead of at the present. Call it before Run.
func (h *Hub) StartAt(p Position) {
	h.position = p
	close(h.started)
}

// start finds where the outbox stands, once in the life of the hub: everything before the oldest running transaction is behind
// the horizon.
func (h *Hub) start(ctx context.Context, conn *pgx.Conn) error {
	select {
	case <-h.started:
		return nil
	default:
	}
	var xmin string
	if err := conn.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text").Scan(&xmin); err != nil {
		return fmt.Errorf("finding the commit horizon: %w", err)
	}
	xid, err := strconv.ParseUint(xmin, 10, 64)
	if err != nil {
		return fmt.Errorf("finding the commit horizon: %w", err)
	}
	h.mu.Lock()
	h.position = Position{XID: xid}
	h.mu.Unlock()
	close(h.started)
	return nil
}

// read takes the next events from behind the horizon and hands them out.
func (h *Hub) read(ctx context.Context, conn *pgx.Conn) (int, error) {
	rows, err := conn.Query(ctx, `
		SELECT e.xid::text AS xid_text, e.id, e.tenant_id, e.type, e.bootstrap_id, e.account_id, e.data, e.at
		FROM events AS e
		WHERE (e.xid, e.id) > ($1::text::xid8, $2) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY e.xid, e.id LIMIT $3`, h.position.xid(), h.position.ID, batch)
	if err != nil {
		return 0, fmt.Errorf("reading events: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (*Event, error) {
		var e Event
		var xid string
		var data []byte
		if err := r.Scan(&xid, &e.Position.ID, &e.TenantID, &e.Type, &e.BootstrapID, &e.AccountID, &data, &e.At); err != nil {
			return nil, err
		}
		e.Data = data
		e.Position.XID, err = strconv.ParseUint(xid, 10, 64)
		return &e, err
	})
	if err != nil {
		return 0, fmt.Errorf("reading events: %w", err)
	}
	h.publish(events)
	return len(events), nil
}

func (h *Hub) publish(events []*Event) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.offer(events)
	}
	h.position = events[len(events)-1].Position
}

// offer is called with the hub's lock held and never blocks.
func (s *Subscription) offer(events []*Event) {
	for _, e := range events {
		if !s.want(e) {
			continue
		}
		select {
		case s.c <- e:
		default:
			s.end()
			return
		}
	}
}

// wait returns at the next announcement, or after Poll.
func (h *Hub) wait(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, h.Poll)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil
	}
	return fmt.Errorf("waiting for announcements: %w", err)
}
