package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// sealLock is "auditlog" in hexadecimal. Who holds it adds to the chains.
const sealLock = 0x61756469746c6f67

// rowColumns are those of a row, as texts that say all that is stored. A time may be infinite, which no number of an integer's size is.
const rowColumns = `l.id::text AS row_id, l.xid::text AS row_xid, trunc(extract(epoch FROM l.at) * 1000000)::text AS row_at,
	l.tenant_id AS row_tenant_id, l.actor AS row_actor, l.action AS row_action, l.object AS row_object, l.outcome AS row_outcome,
	l.request_id AS row_request_id, l.details::text AS row_details`

// place is where a row stands in the order of all rows: that of the writing transactions, which no late commit disturbs, and then of
// the rows' numbers.
type place struct {
	XID string `bun:"xid_text"`
	ID  int64  `bun:"audit_id"`
}

// lockSealing keeps every other sealer out until tx ends. It does not wait.
func lockSealing(ctx context.Context, tx bun.IDB) (locked bool, err error) {
	if err := tx.NewRaw("SELECT pg_try_advisory_xact_lock(?)", int64(sealLock)).Scan(ctx, &locked); err != nil {
		return false, fmt.Errorf("locking the chains of the audit log: %w", err)
	}
	return locked, nil
}

// lastSealed is the place up to which the log is chained.
func lastSealed(ctx context.Context, idb bun.IDB) (place, error) {
	p := place{XID: "0"}
	err := idb.NewRaw(`SELECT c.xid::text AS xid_text, c.audit_id FROM audit_chain AS c ORDER BY c.xid DESC, c.audit_id DESC LIMIT 1`).
		Scan(ctx, &p)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return place{}, fmt.Errorf("finding the last chained audit row: %w", err)
	}
	return p, nil
}

// selectUnsealed reads the next rows to be chained: those before which no running transaction can add one any more.
func selectUnsealed(ctx context.Context, tx bun.IDB, after place, limit int) (links []*link, err error) {
	err = tx.NewRaw(`SELECT l.tenant_id AS chain_tenant, l.id AS audit_id, l.xid::text AS chain_xid, `+rowColumns+`
		FROM audit_log AS l
		WHERE (l.xid, l.id) > (?::xid8, ?) AND l.xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY l.xid, l.id LIMIT ?`, after.XID, after.ID, limit).Scan(ctx, &links)
	if err != nil {
		return nil, fmt.Errorf("reading audit rows to be chained: %w", err)
	}
	return links, nil
}

// selectHeads reads the last entry of each of these tenants' chains; what has none yet is left out.
func selectHeads(ctx context.Context, idb bun.IDB, tenantIDs []string) (heads []*link, err error) {
	err = idb.NewRaw(`SELECT c.tenant_id AS chain_tenant, c.seq, c.hash FROM unnest(?::text[]) AS t (id)
		CROSS JOIN LATERAL (SELECT * FROM audit_chain WHERE tenant_id = t.id ORDER BY seq DESC LIMIT 1) AS c`,
		pgdialect.Array(tenantIDs)).Scan(ctx, &heads)
	if err != nil {
		return nil, fmt.Errorf("reading heads of the audit chains: %w", err)
	}
	return heads, nil
}

// oldestUnsealed is the first row that is in no chain, by the database's clock.
type oldestUnsealed struct {
	TenantID string  `bun:"tenant_id"`
	ID       int64   `bun:"id"`
	Seconds  float64 `bun:"seconds"` // its age
}

// selectOldestUnsealed is nil when every row is in a chain.
func selectOldestUnsealed(ctx context.Context, idb bun.IDB, after place) (*oldestUnsealed, error) {
	o := &oldestUnsealed{}
	err := idb.NewRaw(`SELECT l.tenant_id, l.id, `+ageOf("l")+` AS seconds FROM audit_log AS l
		WHERE (l.xid, l.id) > (?::xid8, ?) ORDER BY l.xid, l.id LIMIT 1`, after.XID, after.ID).Scan(ctx, o)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the oldest audit row that is in no chain: %w", err)
	}
	return o, nil
}

// ageOf is how old a row is, in seconds; one of the future is new.
func ageOf(alias string) string {
	return "greatest(extract(epoch FROM now() - least(" + alias + ".at, now())), 0)::float8"
}

// placeBefore is the last place that was chained longer than that before the end of the log: from where to look for what moved of late,
// however long nobody has chained since.
func placeBefore(ctx context.Context, idb bun.IDB, d time.Duration) (place, error) {
	p := place{XID: "0"}
	err := idb.NewRaw(`SELECT c.xid::text AS xid_text, c.audit_id FROM audit_chain AS c JOIN audit_log AS l ON l.id = c.audit_id
		WHERE l.at < (SELECT least(e.at, now()) FROM audit_chain AS d JOIN audit_log AS e ON e.id = d.audit_id ORDER BY d.xid DESC, d.audit_id DESC LIMIT 1)
			- ? * interval '1 second'
		ORDER BY c.xid DESC, c.audit_id DESC LIMIT 1`, d.Seconds()).Scan(ctx, &p)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return place{}, fmt.Errorf("finding what was chained before: %w", err)
	}
	return p, nil
}

// selectMoved reads the heads of the chains that have entries after the place, whoever added them.
func selectMoved(ctx context.Context, idb bun.IDB, after place) (heads []*link, err error) {
	err = idb.NewRaw(`SELECT c.tenant_id AS chain_tenant, c.seq, c.hash
		FROM (SELECT DISTINCT tenant_id AS id FROM audit_chain WHERE (xid, audit_id) > (?::xid8, ?)) AS t
		CROSS JOIN LATERAL (SELECT * FROM audit_chain WHERE tenant_id = t.id ORDER BY seq DESC LIMIT 1) AS c
		ORDER BY c.tenant_id`, after.XID, after.ID).Scan(ctx, &heads)
	if err != nil {
		return nil, fmt.Errorf("reading the heads that moved: %w", err)
	}
	return heads, nil
}

func insertLinks(ctx context.Context, tx bun.IDB, links []*link) error {
	rows := make([]chainRow, len(links))
	for i, l := range links {
		rows[i] = chainRow{TenantID: l.TenantID, Seq: l.Seq, AuditID: l.AuditID, XID: l.XID, Hash: l.Hash}
	}
	if _, err := tx.NewInsert().Model(&rows).Exec(ctx); err != nil {
		return fmt.Errorf("adding to the audit chains: %w", err)
	}
	return nil
}

type chainRow struct {
	bun.BaseModel `bun:"table:audit_chain"`

	TenantID string
	Seq      int64
	AuditID  int64
	XID      string `bun:"xid"`
	Hash     []byte
}

// allHeads reads heads in the order of the tenants, from one on, without a look at the rest of their chains.
func allHeads(ctx context.Context, idb bun.IDB, from string, inclusive bool, limit int) (heads []*link, err error) {
	after := ">"
	if inclusive {
		after = ">="
	}
	err = idb.NewRaw(`WITH RECURSIVE t AS (
			(SELECT tenant_id AS id FROM audit_chain WHERE tenant_id ? ? ORDER BY tenant_id LIMIT 1)
			UNION ALL
			SELECT (SELECT c.tenant_id FROM audit_chain AS c WHERE c.tenant_id > t.id ORDER BY c.tenant_id LIMIT 1)
			FROM t WHERE t.id IS NOT NULL
		)
		SELECT c.tenant_id AS chain_tenant, c.seq, c.hash FROM t
		CROSS JOIN LATERAL (SELECT * FROM audit_chain WHERE tenant_id = t.id ORDER BY seq DESC LIMIT 1) AS c
		LIMIT ?`, bun.Safe(after), from, limit).Scan(ctx, &heads)
	if err != nil {
		return nil, fmt.Errorf("reading the heads of the audit chains: %w", err)
	}
	return heads, nil
}

// reading is a cursor of the database: it reads on where it stands, whatever the order of what it reads, and ends with its transaction or at close.
type reading[T any] struct {
	tx   bun.IDB
	name string
}

func (c reading[T]) fetch(ctx context.Context, limit int) (rows []*T, err error) {
	err = c.tx.NewRaw("FETCH ? FROM ?", limit, bun.Ident(c.name)).Scan(ctx, &rows)
	if err != nil {
		return nil, fmt.Errorf("reading on in the audit log: %w", err)
	}
	return rows, nil
}

func (c reading[T]) close(ctx context.Context) error {
	_, err := c.tx.NewRaw("CLOSE ?", bun.Ident(c.name)).Exec(ctx)
	return err
}

// openChains reads the entries in the order of tenants and places, with their rows where they are still there.
func openChains(ctx context.Context, tx bun.IDB, tenantID *string) (reading[link], error) {
	_, err := tx.NewRaw(`DECLARE audit_chains CURSOR FOR
		SELECT c.tenant_id AS chain_tenant, c.seq, c.audit_id, c.xid::text AS chain_xid, c.hash, `+rowColumns+`
		FROM audit_chain AS c LEFT JOIN audit_log AS l ON l.id = c.audit_id
		WHERE ? ORDER BY c.tenant_id, c.seq`, of("c", tenantID)).Exec(ctx)
	if err != nil {
		return reading[link]{}, fmt.Errorf("reading the audit chains: %w", err)
	}
	return reading[link]{tx, "audit_chains"}, nil
}

// stray is a row that is in no chain.
type stray struct {
	ID       int64   `bun:"id"`
	TenantID string  `bun:"tenant_id"`
	Passed   bool    `bun:"passed"`  // younger ones are in a chain
	Future   bool    `bun:"future"`  // its transaction has not begun
	Seconds  float64 `bun:"seconds"` // its age
}

func openStrays(ctx context.Context, tx bun.IDB, tenantID *string, last place) (reading[stray], error) {
	_, err := tx.NewRaw(`DECLARE audit_strays CURSOR FOR
		SELECT l.id, l.tenant_id, (l.xid, l.id) <= (?::xid8, ?) AS passed, l.xid >= pg_snapshot_xmax(pg_current_snapshot()) AS future,
			`+ageOf("l")+` AS seconds
		FROM audit_log AS l
		WHERE ? AND NOT EXISTS (SELECT FROM audit_chain AS c WHERE c.audit_id = l.id)`, last.XID, last.ID, of("l", tenantID)).Exec(ctx)
	if err != nil {
		return reading[stray]{}, fmt.Errorf("looking for audit rows that are in no chain: %w", err)
	}
	return reading[stray]{tx, "audit_strays"}, nil
}

// of keeps one tenant's rows, or all.
func of(alias string, tenantID *string) any {
	if tenantID == nil {
		return bun.Safe("true")
	}
	return bun.SafeQuery("?.tenant_id = ?", bun.Ident(alias), *tenantID)
}
