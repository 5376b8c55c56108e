package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// orphan is the whole row.
type orphan struct {
	bun.BaseModel `bun:"table:orphans,alias:o"`
	model.Orphan

	// AccountStamp is that of the account when it last showed the machine so; empty where the version before wrote the row.
	AccountStamp string `bun:"account_stamp"`
}

// seenAs reports whether the account may be the project that the machine was seen in.
func (o *orphan) seenAs(stamp string) bool { return o.AccountStamp == "" || o.AccountStamp == stamp }

const orphanColumns = "o.id, o.tenant_id, o.account_id, o.kind, o.machine_id, o.operation_id, o.bootstrap_id, o.host_id, o.price, " +
	"o.first_seen_at, o.last_seen_at, o.resolved_at, o.release_asked_at, o.release_asked_by, o.release_at, o.release_attempt, " +
	"o.release_error, o.release_dropped_at"

func selectOrphans(ctx context.Context, idb bun.IDB, visible visible, in OrphansInput, p input.Page[*place]) ([]*model.Orphan, error) {
	var items []*model.Orphan
	err := orphansOf(idb.NewSelect().Model(&items), visible, in, p).Scan(ctx)
	return items, failed("listing orphans", err)
}

func orphansOf(query *bun.SelectQuery, visible visible, in OrphansInput, p input.Page[*place]) *bun.SelectQuery {
	query = visible(query.ModelTableExpr("orphans AS o").ColumnExpr(orphanColumns), "o")
	if in.AccountID != nil {
		query = query.Where("o.account_id = ?", *in.AccountID)
	}
	if p.Place != nil {
		query = query.Where("(o.first_seen_at, o.id) < (?, ?)", p.Place.createdAt(), p.Place.ID)
	}
	return query.OrderExpr("o.first_seen_at DESC, o.id DESC").Limit(int64(p.First + 1))
}

// loadOrphan reads an orphan; nil when the tenant has none of the id.
func loadOrphan(ctx context.Context, idb bun.IDB, tenantID, orphanID string) (*orphan, error) {
	return oneOrphan(ctx, idb.NewSelect().Model((*orphan)(nil)).Where("id = ?", orphanID).Where("tenant_id = ?", tenantID))
}

// lockOrphan keeps an orphan as it is until the transaction ends; nil when it is gone.
func lockOrphan(ctx context.Context, tx bun.IDB, orphanID string) (*orphan, error) {
	return oneOrphan(ctx, tx.NewSelect().Model((*orphan)(nil)).Where("id = ?", orphanID).For("UPDATE"))
}

func oneOrphan(ctx context.Context, q *bun.SelectQuery) (*orphan, error) {
	o := new(orphan)
	err := q.Scan(ctx, o)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("reading an orphan", err)
	}
	return o, nil
}

// writeOrphan runs the query, which writes one row at most, and reads the row back; errLost when its conditions hold for none.
func writeOrphan(ctx context.Context, q *bun.UpdateQuery) (*orphan, error) {
	o := new(orphan)
	err := q.Returning("*").Scan(ctx, o)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errLost
	}
	if err != nil {
		return nil, failed("writing an orphan", err)
	}
	return o, nil
}

// guardedOrphan starts a write of the one who gives the machine back: it holds only while that is wanted still, on the same word, and nobody has
// taken it over. Attempts are counted anew with each word, so one alone names no holder.
func guardedOrphan(idb bun.IDB, o *orphan) *bun.UpdateQuery {
	return idb.NewUpdate().Model((*orphan)(nil)).Where("id = ?", o.ID).Where("release_attempt = ?", o.ReleaseAttempt).
		Where("release_asked_at = ?", o.ReleaseAskedAt).Where("release_at IS NOT NULL").Where("resolved_at IS NULL")
}

// confirmRelease is errLost unless the orphan is this one's to give back at this moment, and errOwned when its machine is somebody's. It is asked
// before the act, which must not come late, and of the database, since the clock of a process that was stopped has not moved.
func confirmRelease(ctx context.Context, idb bun.IDB, o *orphan, known knownBy) error {
	var ours, owned bool
	err := idb.NewRaw(`SELECT EXISTS (SELECT FROM orphans WHERE id = ?0 AND release_attempt = ?1 AND release_asked_at = ?2
			AND release_at > now() AND resolved_at IS NULL),
		EXISTS (SELECT FROM machine_reservations WHERE machine_key = ANY (?3::text[]) AND orphan_id IS DISTINCT FROM ?0)`,
		o.ID, o.ReleaseAttempt, o.ReleaseAskedAt, pgdialect.Array(known.keys)).Scan(ctx, &ours, &owned)
	if err != nil {
		return failed("looking whether a machine is to be given back", err)
	}
	isHost, err := hostSays(ctx, idb, o.TenantID, known.serial)
	switch {
	case err != nil:
		return err
	case !ours:
		return errLost
	case owned, isHost:
		return errOwned
	}
	return nil
}

func markReleased(ctx context.Context, tx bun.IDB, orphanID, subject string) (*orphan, error) {
	set := fields{
		"release_asked_at": now, "release_asked_by": subject, "release_at": now, "release_attempt": 0, "release_error": "",
		"release_dropped_at": nil,
	}
	return writeOrphan(ctx, set.apply(tx.NewUpdate().Model((*orphan)(nil)).Where("id = ?", orphanID)))
}

// asked reports whether a person's word to give the machine back stands.
func (o *orphan) asked() bool { return o.ReleaseAskedAt != nil && o.ReleaseDroppedAt == nil }

// reserveForOrphan takes the machine for its release and reports whether it is the orphan's now.
func reserveForOrphan(ctx context.Context, tx bun.IDB, key, orphanID string) (bool, error) {
	res, err := tx.NewRaw("INSERT INTO machine_reservations (machine_key, orphan_id) VALUES (?, ?) ON CONFLICT (machine_key) DO NOTHING",
		key, orphanID).Exec(ctx)
	if err != nil {
		return false, failed("reserving a machine", err)
	}
	n, err := res.RowsAffected()
	return n == 1, failed("reserving a machine", err)
}

// endRelease ends what was begun for an orphan, and frees its machine; errLost when it is another's by now.
func endRelease(ctx context.Context, tx bun.IDB, o *orphan, set fields) error {
	if _, err := writeOrphan(ctx, set.with(fields{"release_at": nil}).apply(guardedOrphan(tx, o))); err != nil {
		return err
	}
	_, err := tx.NewRaw("DELETE FROM machine_reservations WHERE orphan_id = ?", o.ID).Exec(ctx)
	return failed("giving a reservation back", err)
}

// dueRelease takes the next orphan that is to be given back, of a tenant that is not busy, and keeps other replicas from it for a while; nil
// when there is none.
func dueRelease(ctx context.Context, idb bun.IDB, taken time.Duration, busy []string) (*orphan, error) {
	o := new(orphan)
	err := idb.NewRaw(`UPDATE orphans SET release_at = ?, release_attempt = release_attempt + 1
		WHERE id = (SELECT id FROM orphans WHERE release_at <= now() AND resolved_at IS NULL AND tenant_id <> ALL (?::text[])
			ORDER BY release_at LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING *`, fromNow(taken), pgdialect.Array(busy)).Scan(ctx, o)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("looking for machines to give back", err)
	}
	return o, nil
}

// claimedMachine is a machine of an account, with the key that reservations know it by; empty when it has none.
type claimedMachine struct {
	provider.OwnedMachine
	Key string
}

// sweptAt says of which account, and as what, the provider was asked, when, and for how long its lists, and what was just being done, may
// be behind.
type sweptAt struct {
	AccountID string
	Stamp     string
	Began     time.Time
	Lag       time.Duration
}

// unownedMachine is a machine that belongs to nobody, with the account that it was ordered through, where that is another one.
type unownedMachine struct {
	model.Orphan

	OrderedThrough *string `bun:"ordered_through"`
	OrderTenant    string  `bun:"order_tenant"`
	OrderStamp     string  `bun:"order_stamp"`
}

// unowned finds those of the machines that belong to nobody: no run that is live or ended just now has it, no host is it, and nobody has
// reserved it but an orphan of the account that is given back. That the run of its operation has another machine makes it no less of an orphan: it is a second one. A run that has none yet, or
// gives back what it ordered, has whatever carries its operation. A machine that was ordered through another account is that account's to
// tell of, as long as that is what it was at the order. The run is the one that ordered the machine, where it is known.
func (d Deps) unowned(ctx context.Context, idb bun.IDB, s sweptAt, machines []claimedMachine) ([]*model.Orphan, error) {
	found, err := selectUnowned(ctx, idb, s, machines)
	if err != nil {
		return nil, err
	}
	var ours []*model.Orphan
	for _, m := range found {
		others, err := d.toldElsewhere(ctx, idb, m)
		if err != nil {
			return nil, err
		}
		if !others {
			m.Kind = model.OrphanNotOurs
			ours = append(ours, &m.Orphan)
		}
	}
	return ours, nil
}

// toldElsewhere reports whether the account that the machine was ordered through is there and shows the project of the order. It may be
// another tenant's, so an error says nothing of it.
func (d Deps) toldElsewhere(ctx context.Context, idb bun.IDB, m *unownedMachine) (bool, error) {
	if m.OrderedThrough == nil {
		return false, nil
	}
	account, err := d.Accounts.Account(ctx, idb, m.OrderTenant, *m.OrderedThrough)
	if problem.Is(err, problem.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if m.OrderStamp == "" {
		return true, nil
	}
	stamp, err := d.Accounts.Stamp(ctx, idb, account)
	if _, unknown := asProviderError(err); unknown {
		return false, provider.Errorf(provider.Unavailable, "Whose the machine is cannot be told right now.").Because(err)
	}
	return m.OrderStamp == stamp, err
}

// identityOf is who the orphan's machine said it was to the run that ordered it; nil where none read that.
func identityOf(ctx context.Context, idb bun.IDB, o *orphan) (*machine, error) {
	if o.BootstrapID == nil {
		return nil, nil
	}
	r := new(run)
	err := idb.NewSelect().Model(r).Column("machine").Where("id = ?", *o.BootstrapID).Where("machine_id = ?", o.MachineID).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r.Machine, failed("reading who a machine is", err)
}

func selectUnowned(ctx context.Context, idb bun.IDB, s sweptAt, machines []claimedMachine) ([]*unownedMachine, error) {
	operations, ids, keys := make([]string, len(machines)), make([]string, len(machines)), make([]string, len(machines))
	for i, m := range machines {
		operations[i], ids[i], keys[i] = m.OperationID, m.MachineID, m.Key
	}
	var found []*unownedMachine
	err := idb.NewRaw(`
		SELECT m.machine_id, m.operation_id, b.id AS bootstrap_id, nullif(b.order_intent -> 'price', 'null') AS price,
			nullif(b.account_id, ?4) AS ordered_through, coalesce(b.tenant_id, '') AS order_tenant,
			coalesce(b.order_intent ->> 'accountStamp', '') AS order_stamp
		FROM unnest(?0::text[], ?1::text[], ?2::text[]) AS m (operation_id, machine_id, machine_key)
		LEFT JOIN bootstraps AS b ON b.operation_id = m.operation_id
		WHERE (b.id IS NULL OR b.live_account_id IS NULL AND b.updated_at <= ?3 OR b.status <> 'failed' AND b.machine_id <> m.machine_id)
			AND NOT EXISTS (SELECT FROM hosts AS h
				WHERE h.bootstrap_id = b.id AND h.machine_id = m.machine_id AND (h.removed_at IS NULL OR h.removed_at > ?3))
			AND NOT EXISTS (SELECT FROM machine_reservations AS r WHERE r.machine_key = m.machine_key
				AND NOT EXISTS (SELECT FROM orphans AS o WHERE o.id = r.orphan_id AND o.account_id = ?4))`,
		pgdialect.Array(operations), pgdialect.Array(ids), pgdialect.Array(keys), s.before(), s.AccountID).Scan(ctx, &found)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("looking for machines without an owner", err)
	}
	return found, nil
}

// before is the time before which what ended is surely over. Without a sweep it is now.
func (s sweptAt) before() any {
	if s.Began.IsZero() {
		return bun.Safe("now()")
	}
	return s.Began.Add(-s.Lag)
}

// vanished finds the account's hosts whose machine the provider does not list.
func vanished(ctx context.Context, idb bun.IDB, s sweptAt, listed []string) ([]*model.Orphan, error) {
	var found []*model.Orphan
	err := idb.NewRaw(`SELECT h.machine_id, h.id AS host_id, h.bootstrap_id, b.operation_id FROM hosts AS h
		JOIN bootstraps AS b ON b.id = h.bootstrap_id
		WHERE h.account_id = ? AND h.removed_at IS NULL AND h.joined_at <= ? AND h.machine_id <> ALL (?::text[])`,
		s.AccountID, s.before(), pgdialect.Array(listed)).Scan(ctx, &found)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("looking for hosts without a machine", err)
	}
	for _, o := range found {
		o.Kind = model.OrphanNotThere
	}
	return found, nil
}

// keepOrphans writes down what a sweep found: an orphan that is open already was seen once more. One that was not found again has an owner by
// now, or is gone, unless the list may just have left it out; one that is being given back is left to that. A machine that cost money in what
// the account was before stays open until the account shows it again.
func keepOrphans(ctx context.Context, tx bun.IDB, s sweptAt, tenantID string, found []*model.Orphan, machines []claimedMachine, listed []string) error {
	slices.SortFunc(found, func(a, b *model.Orphan) int { return strings.Compare(a.MachineID, b.MachineID) }) // two sweeps never wait in a circle
	for _, o := range found {
		o.ID, o.TenantID, o.AccountID = id.New(orphanPrefix), tenantID, s.AccountID
		o.FirstSeenAt, o.LastSeenAt = model.NewTime(s.Began), model.NewTime(s.Began)
		_, err := tx.NewInsert().Model(o).Value("account_stamp", "?", s.Stamp).
			On("CONFLICT (account_id, kind, machine_id) WHERE resolved_at IS NULL DO UPDATE").
			Set("last_seen_at = greatest(orphan.last_seen_at, excluded.last_seen_at)").Set("account_stamp = excluded.account_stamp").Exec(ctx)
		if _, gone := postgres.ForeignKeyViolation(err); gone {
			return nil // with its account
		}
		if err != nil {
			return failed("writing an orphan", err)
		}
	}
	shown := make([]string, len(machines))
	for i, m := range machines {
		shown[i] = m.MachineID
	}
	_, err := tx.NewRaw(`UPDATE orphans SET resolved_at = now()
		WHERE account_id = ? AND resolved_at IS NULL AND last_seen_at < ?
			AND (release_asked_at IS NULL OR release_dropped_at IS NOT NULL)
			AND (machine_id = ANY (?::text[]) OR last_seen_at < ?)
			AND (kind = ? OR account_stamp IN ('', ?) OR machine_id = ANY (?::text[]))`,
		s.AccountID, s.Began, pgdialect.Array(listed), s.before(), model.OrphanNotThere, s.Stamp, pgdialect.Array(shown)).Exec(ctx)
	return failed("resolving orphans", err)
}
