package audit

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// batch is how many rows are chained in one transaction, or verified at once: what bounds the memory.
const batch = 1000

const (
	// overdueAfter is how long a row may be in no chain until something is wrong.
	overdueAfter = time.Minute
	// anewSince is how much of the end of the log a starting sealer logs heads of again: who was to log them may have died.
	anewSince   = 10 * time.Minute
	farewellFor = 2 * time.Second
)

// Sealer chains the rows of the log, apart from the transactions that write them: no mutation waits for another of its tenant, and
// nobody's denials hold up a tenant. Each replica runs one; they take turns.
//
// A row is chained once no running transaction can come before it, so in one order for good; a sealer that dies leaves
// its transaction undone and nothing else.
type Sealer struct {
	db  *postgres.DB
	log *slog.Logger
	// Poll is how long a row waits at most, unless a transaction that began before it still runs.
	Poll time.Duration
	// LogEvery is how often at most the heads that moved are logged.
	LogEvery time.Duration

	logged *place // up to which heads were logged; nil until that is known
}

// NewSealer makes a sealer; Run makes it work.
func NewSealer(db *postgres.DB, log *slog.Logger) *Sealer {
	return &Sealer{db: db, log: log, Poll: 500 * time.Millisecond, LogEvery: time.Minute}
}

// Run chains until ctx ends, under a context that sees all tenants. Failures of the database are logged and tried again.
func (s *Sealer) Run(ctx context.Context) error {
	logged := time.Time{}
	defer s.farewell(ctx)
	for {
		n, err := s.sealBatch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.WarnContext(ctx, "chaining the audit log", "error", err)
		}
		if time.Since(logged) >= s.LogEvery {
			s.tell(ctx)
			logged = time.Now()
		}
		if n == batch {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.Poll):
		}
	}
}

// sealBatch chains the next rows, and tells how many; none while another sealer is at it.
func (s *Sealer) sealBatch(ctx context.Context) (n int, err error) {
	var links []*link
	err = s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		links = nil
		locked, err := lockSealing(ctx, tx)
		if err != nil || !locked {
			return err
		}
		last, err := lastSealed(ctx, tx)
		if err != nil {
			return err
		}
		if links, err = selectUnsealed(ctx, tx, last, batch); err != nil || len(links) == 0 {
			return err
		}
		if err := chain(ctx, tx, links); err != nil {
			return err
		}
		return insertLinks(ctx, tx, links)
	})
	if err != nil {
		return 0, err
	}
	return len(links), nil
}

// chain gives each its place and its hash, after the heads of the tenants.
func chain(ctx context.Context, tx bun.IDB, links []*link) error {
	heads := map[string]*link{}
	for _, l := range links {
		heads[l.TenantID] = &link{Hash: start()}
	}
	found, err := selectHeads(ctx, tx, slices.Collect(maps.Keys(heads)))
	if err != nil {
		return err
	}
	for _, head := range found {
		heads[head.TenantID] = head
	}
	for _, l := range links {
		head := heads[l.TenantID]
		l.Seq = head.Seq + 1
		l.Hash = l.Row.hash(head.Hash, l.TenantID, l.Seq)
		heads[l.TenantID] = l
	}
	return nil
}

// tell logs the heads that moved, and warns when rows are not chained.
func (s *Sealer) tell(ctx context.Context) {
	if err := s.logHeads(ctx); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "logging heads of the audit chains", "error", err)
	}
	age, err := Unsealed(ctx, s.db)
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "looking for audit rows that are in no chain", "error", err)
	}
	if age > overdueAfter {
		s.log.WarnContext(ctx, "the audit log is not being chained; a long transaction may hold it up", "seconds", int(age.Seconds()))
	}
}

func (s *Sealer) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellFor)
	defer cancel()
	if err := s.logHeads(ctx); err != nil {
		s.log.WarnContext(ctx, "logging heads of the audit chains; the next server that starts will", "error", err)
	}
}

// logHeads anchors the chains where the log goes: who can change the database cannot make that undone. It takes what moved from the
// database, so that nothing is lost with a sealer that died, in this process or another.
func (s *Sealer) logHeads(ctx context.Context) error {
	if s.logged == nil {
		from, err := placeBefore(ctx, s.db.DB, anewSince)
		if err != nil {
			return err
		}
		s.logged = &from
	}
	last, err := lastSealed(ctx, s.db.DB)
	if err != nil {
		return err
	}
	heads, err := selectMoved(ctx, s.db.DB, *s.logged)
	if err != nil {
		return err
	}
	for _, l := range heads {
		h := l.head()
		s.log.InfoContext(ctx, headMessage, "tenant", h.TenantID, "seq", h.Seq, "hash", h.Hash)
	}
	s.logged = &last
	return nil
}

// Unsealed is how long the oldest row that is in no chain has waited, by the database's clock; zero when there is none. It decides
// nothing: it is for the operator.
func Unsealed(ctx context.Context, db *postgres.DB) (time.Duration, error) {
	ctx = postgres.WithScope(ctx, postgres.AllTenants())
	last, err := lastSealed(ctx, db.DB)
	if err != nil {
		return 0, err
	}
	oldest, err := selectOldestUnsealed(ctx, db.DB, last)
	if err != nil || oldest == nil {
		return 0, err
	}
	return time.Duration(oldest.Seconds * float64(time.Second)), nil
}
