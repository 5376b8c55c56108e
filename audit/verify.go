package audit

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// headMessage is that of the log lines that give a head, which ReadHeads understands too.
const headMessage = "audit head"

// backwardsAtMost is how far times may run backwards along a chain. A row has the time at which its transaction began, and its place from the
// first that the transaction wrote: between the two a transaction may read and wait, but none of ours for that long.
const backwardsAtMost = 5 * time.Minute

// EachHead gives the head of every tenant's chain to do, sorted by tenant. It decides nothing: it is for the operator at the machine.
func EachHead(ctx context.Context, db *postgres.DB, do func(Head) error) error {
	from := ""
	for inclusive := true; ; inclusive = false {
		heads, err := allHeads(ctx, db.DB, from, inclusive, batch)
		if err != nil {
			return postgres.Translate(err)
		}
		for _, l := range heads {
			if err := do(l.head()); err != nil {
				return err
			}
		}
		if len(heads) < batch {
			return nil
		}
		from = heads[len(heads)-1].TenantID
	}
}

// Heads are what was kept of chains outside of the database: the hash by tenant and place.
type Heads map[string]map[int64]string

// ReadHeads reads JSON lines as the command `audit heads` prints them, or a log with the lines that a server logs: what else is in a log is
// passed over, JSON or not. A tenant may have more than one head. Without any it is an error: nothing would be held against it.
func ReadHeads(r io.Reader) (Heads, error) {
	heads := Heads{}
	isLog, noJSON := false, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var h loggedHead
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			noJSON = cmp.Or(noJSON, n)
			continue
		}
		isLog = isLog || h.Message != nil
		if h.Message != nil && *h.Message != headMessage {
			continue
		}
		if err := heads.add(h.Head); err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("reading heads: %w", err)
	case noJSON > 0 && !isLog:
		return nil, fmt.Errorf("line %d is not JSON as `audit heads` prints it", noJSON)
	case len(heads) == 0:
		return nil, errors.New("there is no head in it")
	}
	return heads, nil
}

// loggedHead is a line with a head, or another one of a log.
type loggedHead struct {
	Head
	Message *string `json:"msg"`
}

func (hs Heads) add(h Head) error {
	if hash, err := hex.DecodeString(h.Hash); err != nil || len(hash) != len(start()) || h.Seq < 1 {
		return errors.New("is no head: it needs tenant, seq and hash")
	}
	if hs[h.TenantID] == nil {
		hs[h.TenantID] = map[int64]string{}
	}
	if known, twice := hs[h.TenantID][h.Seq]; twice && known != h.Hash {
		return errors.New("contradicts an earlier one")
	}
	hs[h.TenantID][h.Seq] = h.Hash
	return nil
}

// VerifyInput says what to verify, and against which heads.
type VerifyInput struct {
	TenantID *string // nil: all, "": what belongs to no tenant
	Heads    Heads
}

// Finding is something that is wrong with a chain.
type Finding struct {
	TenantID string
	Seq      int64 // 0 where it concerns no place in the chain
	AuditID  int64 // 0 where no row is named
	What     string
}

func (f Finding) String() string {
	return fmt.Sprintf("tenant=%q seq=%d audit=%d: %s", f.TenantID, f.Seq, f.AuditID, f.What)
}

// Summary is what was looked at. Unsealed rows are younger than the chains, and so not covered yet; one that is so for longer than a minute
// is a finding. Heads are those that were held against the chains.
type Summary struct {
	Tenants, Rows, Unsealed, Heads, Findings int
}

// Verify computes every chain again, as the database is at one moment, and gives each finding to found. It decides nothing and
// changes nothing: it is for the operator at the machine.
func Verify(ctx context.Context, db *postgres.DB, in VerifyInput, found func(Finding) error) (Summary, error) {
	v := verifier{in: in, found: found}
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	err := db.DB.RunInTx(ctx, options, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return fmt.Errorf("lifting the time limit: %w", err)
		}
		return v.run(ctx, tx)
	})
	return v.Summary, postgres.Translate(err)
}

// verifier goes through the chains in the order of tenants and places.
type verifier struct {
	Summary
	in    VerifyInput
	found func(Finding) error

	at   link            // the entry before
	late float64         // the latest time of the chain's rows up to there, in microseconds
	seen map[string]bool // which of the tenants with heads have a chain

	overdue int   // how many rows should be in a chain by now
	oldest  stray // of those
}

func (v *verifier) run(ctx context.Context, tx bun.IDB) error {
	v.seen = map[string]bool{}
	for tenantID, heads := range v.in.Heads {
		if v.in.TenantID == nil || *v.in.TenantID == tenantID {
			v.Heads += len(heads)
		}
	}
	chains, err := openChains(ctx, tx, v.in.TenantID)
	if err != nil {
		return err
	}
	if err := each(ctx, chains, v.follow); err != nil {
		return err
	}
	if err := v.endChain(); err != nil {
		return err
	}
	if err := v.missingChains(); err != nil {
		return err
	}
	last, err := lastSealed(ctx, tx)
	if err != nil {
		return err
	}
	strays, err := openStrays(ctx, tx, v.in.TenantID, last)
	if err != nil {
		return err
	}
	if err := each(ctx, strays, v.judge); err != nil {
		return err
	}
	return v.reportOverdue()
}

// each gives every row to do, and ends the reading.
func each[T any](ctx context.Context, c reading[T], do func(*T) error) error {
	for {
		rows, err := c.fetch(ctx, batch)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return c.close(ctx)
		}
		for _, r := range rows {
			if err := do(r); err != nil {
				return err
			}
		}
	}
}

// follow looks at the next entry. What is wrong with one is held against it alone: the next is judged by the hash that is stored.
func (v *verifier) follow(l *link) error {
	previous := v.at
	if v.Rows == 0 || l.TenantID != previous.TenantID {
		if err := v.endChain(); err != nil {
			return err
		}
		v.Tenants++
		previous, v.late = link{Hash: start()}, math.Inf(-1)
	}
	v.Rows++
	v.at = *l
	if v.in.Heads[l.TenantID] != nil {
		v.seen[l.TenantID] = true
	}
	var what string
	switch hash, kept := v.in.Heads[l.TenantID][l.Seq]; {
	case l.Seq != previous.Seq+1:
		what = fmt.Sprintf("the entries from %d on are gone", previous.Seq+1)
	case l.Row.ID == "":
		what = "the row is gone"
	case !l.holds(previous.Hash):
		what = "the row, its entry or the one before was changed"
	case kept && hash != l.head().Hash:
		what = "the chain differs from the head that was kept"
	default:
		if what = v.misdated(l); what == "" {
			return nil
		}
	}
	return v.report(Finding{l.TenantID, l.Seq, l.AuditID, what})
}

// misdated says how far before the latest of the rows chained earlier this one says that it was written; empty where that may be. From one
// that is too far back the time is counted anew: it is one finding, also where it is the earlier one, or the clock, that was wrong.
func (v *verifier) misdated(l *link) string {
	at, err := strconv.ParseFloat(l.Row.At, 64)
	if err != nil {
		return "the row has no time"
	}
	back := (v.late - at) / 1e6
	if back > 0 && back <= backwardsAtMost.Seconds() {
		return ""
	}
	v.late = at
	if back <= 0 {
		return ""
	}
	return fmt.Sprintf("the row is of %.0f s before one that was chained earlier", back)
}

// endChain holds the end of a chain against the heads that were kept of it.
func (v *verifier) endChain() error {
	if v.Rows == 0 {
		return nil
	}
	return v.beyond(v.at.TenantID, v.at.Seq)
}

// missingChains reports the heads of tenants without any chain.
func (v *verifier) missingChains() error {
	for _, tenantID := range slices.Sorted(maps.Keys(v.in.Heads)) {
		if v.seen[tenantID] || v.in.TenantID != nil && *v.in.TenantID != tenantID {
			continue
		}
		if err := v.beyond(tenantID, 0); err != nil {
			return err
		}
	}
	return nil
}

// beyond reports the heads that are further than a chain goes.
func (v *verifier) beyond(tenantID string, last int64) error {
	for _, seq := range slices.Sorted(maps.Keys(v.in.Heads[tenantID])) {
		if seq <= last {
			continue
		}
		if err := v.report(Finding{tenantID, seq, 0, fmt.Sprintf("the chain ends at %d, before the head that was kept", last)}); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at a row that is in no chain: one that waits for its turn is in order, for a minute.
func (v *verifier) judge(s *stray) error {
	switch {
	case s.Future:
		return v.report(Finding{s.TenantID, 0, s.ID, "the row is of a transaction that has not begun"})
	case s.Passed:
		return v.report(Finding{s.TenantID, 0, s.ID, "the row is in no chain, although younger ones are"})
	}
	v.Unsealed++
	if s.Seconds > overdueAfter.Seconds() {
		v.overdue++
	}
	if s.Seconds > v.oldest.Seconds {
		v.oldest = *s
	}
	return nil
}

// reportOverdue is one finding, however many rows wait: what they wait for is one thing.
func (v *verifier) reportOverdue() error {
	if v.overdue == 0 {
		return nil
	}
	return v.report(Finding{v.oldest.TenantID, 0, v.oldest.ID, fmt.Sprintf(
		"the row has been in no chain for %.0f s, the longest of %d that should be in one: no server chains, or a transaction holds them up",
		v.oldest.Seconds, v.overdue)})
}

func (v *verifier) report(f Finding) error {
	v.Findings++
	return v.found(f)
}
