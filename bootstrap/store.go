package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"better/compute/internal/postgres"
	"better/compute/model"
)

// run is the whole row: what callers see, and what the reconciler keeps to itself.
type run struct {
	bun.BaseModel `bun:"table:bootstraps,alias:b"`
	model.Bootstrap

	CreatedBy         string     `bun:"created_by"`
	StateSince        time.Time  `bun:"state_since"`
	CancelRequestedAt *time.Time `bun:"cancel_requested_at"`

	OperationID     string     `bun:"operation_id"`
	OrderIntent     *intent    `bun:"order_intent,type:jsonb"`
	OrderIntentAt   *time.Time `bun:"order_intent_at"`
	OrderAttemptAt  *time.Time `bun:"order_attempt_at"`
	OrderRef        *string    `bun:"order_ref"`
	ClaimResolution *string    `bun:"claim_resolution"`

	Machine *machine `bun:"machine,type:jsonb"`
	BootID  *string  `bun:"boot_id"`

	Generation     int        `bun:"generation"`
	TokenHash      []byte     `bun:"token_hash"`
	TokenExpiresAt *time.Time `bun:"token_expires_at"`
	TokenUsedAt    *time.Time `bun:"token_used_at"`
	TokenKeyHash   []byte     `bun:"token_key_hash"`
	DeliveredAt    *time.Time `bun:"delivered_at"`
	InstallRef     *string    `bun:"install_ref"`

	LeaseHolder *string    `bun:"lease_holder"`
	LeaseEpoch  int64      `bun:"lease_epoch"`
	LeaseUntil  *time.Time `bun:"lease_until"`
	NextAt      time.Time  `bun:"next_at"`
	JobID       *int64     `bun:"job_id"`
	LastError   string     `bun:"last_error"`

	LiveAccountID *string `bun:"live_account_id,scanonly"`
	// Now is the database's time at which the row was read.
	Now time.Time `bun:"db_now,scanonly"`
}

// withNow reads the whole row and the time.
const withNow = "*, now() AS db_now"

// errLost says that the row is not the reconciler's to write any more: the lease went to another worker, or the run
// moved on without it.
var errLost = errors.New("the lease on the run is lost")

// fields are columns to be written, with their values.
type fields map[string]any

func (f fields) apply(q *bun.UpdateQuery) *bun.UpdateQuery {
	for _, column := range slices.Sorted(maps.Keys(f)) {
		q = q.Set("? = ?", bun.Ident(column), f[column])
	}
	return q
}

// with adds columns to a copy.
func (f fields) with(more fields) fields {
	all := fields{}
	maps.Copy(all, f)
	maps.Copy(all, more)
	return all
}

// now is the time of the database; no other clock decides anything about a run.
var now = bun.Safe("now()")

// fromNow is the time of the database, d later.
func fromNow(d time.Duration) schema.QueryAppender {
	return bun.SafeQuery("now() + ? * interval '1 microsecond'", d.Microseconds())
}

// load reads a run; nil when the tenant has none of the id.
func load(ctx context.Context, idb bun.IDB, tenantID, id string) (*run, error) {
	r := new(run)
	err := idb.NewSelect().Model(r).ColumnExpr(withNow).Where("id = ?", id).Where("tenant_id = ?", tenantID).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("reading a run", err)
	}
	return r, nil
}

// scanBootstrap takes columns.
func scanBootstrap(row postgres.Row) (*model.Bootstrap, error) {
	b := new(model.Bootstrap)
	return b, row.Scan(&b.ID, &b.TenantID, &b.AccountID, &b.PoolID, &b.MachineID, &b.OfferID, (*string)(&b.Status), &b.Step, &b.WaitReason, &b.Failure,
		(*string)(&b.Cleanup), &b.Attempt, &b.HostID, &b.CreatedAt.Time, &b.UpdatedAt.Time, &b.DeadlineAt, &b.JoinedAt, &b.RetryOf)
}

func idsOfRuns(runs []*model.Bootstrap) []string {
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = r.ID
	}
	return ids
}

// lock reads a run and keeps it as it is until the transaction ends. NOT_FOUND when the tenant has none of the id any more.
func lock(ctx context.Context, tx bun.IDB, tenantID, id string) (*run, error) {
	r := new(run)
	err := tx.NewSelect().Model(r).ColumnExpr(withNow).Where("id = ?", id).Where("tenant_id = ?", tenantID).
		For("NO KEY UPDATE").Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noRun()
	}
	if err != nil {
		return nil, failed("locking a run", err)
	}
	return r, nil
}

// update runs the query, which writes one row at most, and reads the row back; errLost when its conditions hold for none.
func update(ctx context.Context, q *bun.UpdateQuery) (*run, error) {
	r := new(run)
	err := q.Returning(withNow).Scan(ctx, r)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errLost
	}
	if err != nil {
		return nil, failed("writing a run", err)
	}
	return r, nil
}

// acquire takes the lease, under a new epoch. It returns nil and whether the run needs work at all when it cannot be had.
func acquire(ctx context.Context, idb bun.IDB, id, holder string, ttl time.Duration) (r *run, busy bool, err error) {
	r, err = update(ctx, idb.NewUpdate().Model((*run)(nil)).
		Set("lease_holder = ?", holder).Set("lease_epoch = lease_epoch + 1").Set("lease_until = ?", fromNow(ttl)).
		Where("id = ?", id).Where("live_account_id IS NOT NULL").Where("lease_until IS NULL OR lease_until <= now()"))
	if err == nil || !errors.Is(err, errLost) {
		return r, false, err
	}
	busy, err = idb.NewSelect().Model((*run)(nil)).Where("id = ?", id).Where("live_account_id IS NOT NULL").Exists(ctx)
	if err != nil {
		return nil, false, failed("looking for a run", err)
	}
	return nil, busy, nil
}

// guarded starts a write of the reconciler: it holds only while the run is in the state that the worker saw and the lease
// is the worker's.
func guarded(idb bun.IDB, r *run) *bun.UpdateQuery {
	return idb.NewUpdate().Model((*run)(nil)).
		Where("id = ?", r.ID).Where("lease_epoch = ?", r.LeaseEpoch).Where("status = ?", r.Status)
}

// reserve takes the machine for the run and reports whether it is the run's now. Idempotent; it waits for a transaction that is just
// taking the same machine.
func reserve(ctx context.Context, tx bun.IDB, key, runID string) (bool, error) {
	_, err := tx.NewRaw("INSERT INTO machine_reservations (machine_key, bootstrap_id) VALUES (?, ?) ON CONFLICT (machine_key) DO NOTHING",
		key, runID).Exec(ctx)
	if err != nil {
		return false, failed("reserving a machine", err)
	}
	var owner string
	err = tx.NewRaw("SELECT coalesce(bootstrap_id, '') FROM machine_reservations WHERE machine_key = ?", key).Scan(ctx, &owner)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // its owner gave it back just now; the caller may ask again
	}
	if err != nil {
		return false, failed("reading a reservation", err)
	}
	return owner == runID, nil
}

// take is reserve for a run that has proved to reach the machine: it takes it from a run that yields too. Two that prove it at once wait for
// each other at the reservation, and the second sees the first's proof.
func take(ctx context.Context, tx bun.IDB, key string, r *run) (bool, error) {
	got, err := reserve(ctx, tx, key, r.ID)
	if err != nil {
		return false, err
	}
	if _, err := tx.NewRaw("SELECT FROM machine_reservations WHERE machine_key = ? FOR UPDATE", key).Exec(ctx); err != nil {
		return false, failed("locking a reservation", err)
	}
	if got {
		got, err = reserve(ctx, tx, key, r.ID) // until the lock another could take it
		if got || err != nil {
			return got, err
		}
	}
	free, err := yields(ctx, tx, key, r.TenantID, 0)
	if err != nil || !free {
		return false, err
	}
	_, err = tx.NewRaw("UPDATE machine_reservations SET bootstrap_id = ?, reserved_at = now() WHERE machine_key = ?", r.ID, key).Exec(ctx)
	return err == nil, failed("taking a reservation", err)
}

// yields reports whether the machine is reserved for no more than a run of another tenant that, for at least that long, has not proved that it
// reaches the machine: anybody can name one. A tenant with a run of late that never reached the machine it named gets no such time again, or one
// run after the other would keep the machine from its owner. It looks at all tenants' runs, so the context has to.
func yields(ctx context.Context, idb bun.IDB, key, tenantID string, unproved time.Duration) (free bool, err error) {
	err = idb.NewRaw(`SELECT EXISTS (SELECT FROM machine_reservations AS r JOIN bootstraps AS b ON b.id = r.bootstrap_id
		WHERE r.machine_key = ? AND r.host_id IS NULL AND b.tenant_id <> ? AND b.status = ? AND b.machine IS NULL
			AND (b.state_since <= ? OR EXISTS (SELECT FROM bootstraps AS before WHERE before.tenant_id = b.tenant_id AND before.created_at > ?
				AND before.status = ? AND before.machine_id IS NOT NULL AND before.machine IS NULL)))`,
		key, tenantID, model.Identifying, fromNow(-unproved), fromNow(-rememberUnproved), model.Failed).Scan(ctx, &free)
	return free, failed("reading whose a machine is", err)
}

// reservedBy reports whether the machine is the run's.
func reservedBy(ctx context.Context, idb bun.IDB, key, runID string) (is bool, err error) {
	err = idb.NewRaw("SELECT EXISTS (SELECT FROM machine_reservations WHERE machine_key = ? AND bootstrap_id = ?)", key, runID).Scan(ctx, &is)
	return is, failed("reading whose a machine is", err)
}

// holder is who has a machine.
type holder int

const (
	heldByUs holder = iota
	heldByRun
	heldByHost
)

// holderOf tells whether a machine that could not be reserved is a host or only in another run. One that was given back just now counts as
// in a run: asking again is right.
func holderOf(ctx context.Context, idb bun.IDB, key string) (holder, error) {
	var isHost bool
	err := idb.NewRaw("SELECT EXISTS (SELECT FROM machine_reservations WHERE machine_key = ? AND host_id IS NOT NULL)", key).Scan(ctx, &isHost)
	if err != nil {
		return 0, fmt.Errorf("reading a reservation: %w", err)
	}
	if isHost {
		return heldByHost, nil
	}
	return heldByRun, nil
}

// hostSays reports whether a host of the tenant that is not removed says that it has the serial number, by which alone some providers know a
// machine. Other tenants' hosts are not asked: they could keep it from being given back.
func hostSays(ctx context.Context, idb bun.IDB, tenantID, serial string) (says bool, err error) {
	if serial == "" {
		return false, nil
	}
	err = idb.NewRaw("SELECT EXISTS (SELECT FROM hosts WHERE tenant_id = ? AND removed_at IS NULL AND facts ->> 'serial' = ?)", tenantID, serial).
		Scan(ctx, &says)
	return says, failed("looking for a host", err)
}

// reserved tells which of the machines somebody has, whoever it is.
func reserved(ctx context.Context, idb bun.IDB, keys ...string) (map[string]bool, error) {
	taken := map[string]bool{}
	if len(keys) == 0 {
		return taken, nil
	}
	var found []string
	err := idb.NewRaw("SELECT machine_key FROM machine_reservations WHERE machine_key IN (?)", bun.List(keys)).Scan(ctx, &found)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("reading reservations", err)
	}
	for _, key := range found {
		taken[key] = true
	}
	return taken, nil
}

// typicalRuns is how many runs say how long one takes, and fewRuns how many are too few to.
const (
	typicalRuns = 20
	fewRuns     = 3
)

// typical is the median of how long the account's last runs took to join, of those that ordered or of those that did not; zero where there
// are too few.
func typical(ctx context.Context, idb bun.IDB, accountID string, ordered bool) (time.Duration, error) {
	var last struct {
		Runs   int   `bun:"runs"`
		Median int64 `bun:"median"`
	}
	err := idb.NewRaw(`SELECT count(*) AS runs,
			(coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM took)), 0) * 1000000)::bigint AS median
		FROM (SELECT joined_at - created_at AS took FROM bootstraps
			WHERE account_id = ? AND joined_at IS NOT NULL AND (offer_id IS NOT NULL) = ?
			ORDER BY joined_at DESC LIMIT ?) AS newest`, accountID, ordered, typicalRuns).Scan(ctx, &last)
	if err != nil {
		return 0, failed("reading how long runs take", err)
	}
	if last.Runs < fewRuns {
		return 0, nil
	}
	return time.Duration(last.Median) * time.Microsecond, nil
}

// unreserve gives back the machines of a run that needs none any more.
func unreserve(ctx context.Context, tx bun.IDB, runID string) error {
	_, err := tx.NewRaw("DELETE FROM machine_reservations WHERE bootstrap_id = ? AND host_id IS NULL", runID).Exec(ctx)
	return failed("giving a reservation back", err)
}

// notLost is errLost for a read that found no row.
func notLost(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errLost
	}
	return failed("reading a run", err)
}

// failed says what was being done when the database gave an error; UNAVAILABLE when it is away. It is nil for nil.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return postgres.Translate(fmt.Errorf("%s: %w", doing, err))
}
