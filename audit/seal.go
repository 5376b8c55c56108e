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

	moved map[string]Head // since they were logged
}

// NewSealer makes a sealer; Run makes it work.
func NewSealer(db *postgres.DB, log *slog.Logger) *Sealer {
	return &Sealer{db: db, log: log, Poll: 500 * time.Millisecond, LogEvery: time.Minute, moved: map[string]Head{}}
}

// Run chains until ctx ends, under a context that sees all tenants. Failures of the database are logged and tried again.
func (s *Sealer) Run(ctx context.Context) error {
	logged := time.Now()
	defer s.logHeads(context.WithoutCancel(ctx))
	for {
		n, err := s.sealBatch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.WarnContext(ctx, "chaining the audit log", "error", err)
		}
		if time.Since(logged) >= s.LogEvery {
			s.logHeads(ctx)
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
	for _, l := range links {
		s.moved[l.TenantID] = l.head()
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

// logHeads anchors the chains where the log goes: who can change the database cannot make that undone.
func (s *Sealer) logHeads(ctx context.Context) {
	for _, tenantID := range slices.Sorted(maps.Keys(s.moved)) {
		h := s.moved[tenantID]
		s.log.InfoContext(ctx, headMessage, "tenant", h.TenantID, "seq", h.Seq, "hash", h.Hash)
	}
	clear(s.moved)
}
