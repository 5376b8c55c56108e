package host

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/input"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Limits of a join, in terms of the database's clock.
const (
	maxSkewSeconds   = 5 * 60
	repeatForMinutes = 10
	// contestForMinutes is longer than any install takes: a thief may read the token before the machine that it is made for has booted.
	contestForMinutes = 24 * 60
)

// What was identified before must be found again; what was not proves nothing. Both compare against the attempt's machine.
const sameMachine = `coalesce(machine->>'osMachineId', '') IN ('', ?1) AND coalesce(machine->>'serial', '') IN ('', ?2)`

// takenRun is the run whose token a join took.
type takenRun struct {
	BootstrapID string `bun:"id"`
	TenantID    string `bun:"tenant_id"`
	AccountID   string `bun:"account_id"`
	PoolID      string `bun:"pool_id"`
	MachineID   string `bun:"machine_id"`
}

// takeToken is the decision about a join. It is one statement, so that of any number of joins with one token exactly one finds it
// unused: the others wait for the row and then see it taken. errNotTaken when it may not be taken.
func takeToken(ctx context.Context, tx bun.IDB, a *attempt) (*takenRun, error) {
	run := new(takenRun)
	err := tx.NewRaw(`
		UPDATE bootstraps SET token_used_at = now(), token_key_hash = ?4
		WHERE token_hash = ?0 AND token_used_at IS NULL AND token_expires_at > now()
			AND status IN ('installing', 'installed') AND cancel_requested_at IS NULL AND machine_id IS NOT NULL
			AND `+sameMachine+`
			AND abs(extract(epoch FROM ?3::timestamptz - now())) <= ?5
		RETURNING id, tenant_id, account_id, pool_id, machine_id`,
		a.tokenHash, a.machine.MachineID, a.machine.Serial, a.clock, a.keyHash, maxSkewSeconds).Scan(ctx, run)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errNotTaken
	}
	if err != nil {
		return nil, fmt.Errorf("taking a join token: %w", err)
	}
	return run, nil
}

// tokenRun is the run that a token belongs to, and how the attempt stands to it.
type tokenRun struct {
	BootstrapID  string                `bun:"id"`
	TenantID     string                `bun:"tenant_id"`
	PoolID       string                `bun:"pool_id"`
	Status       model.BootstrapStatus `bun:"status"`
	Cancelled    bool                  `bun:"cancelled"`
	Used         bool                  `bun:"used"`
	UsedLately   bool                  `bun:"used_lately"`
	Contestable  bool                  `bun:"contestable"`
	SameKey      bool                  `bun:"same_key"`
	Expired      bool                  `bun:"expired"`
	WrongMachine bool                  `bun:"wrong_machine"`
	WrongClock   bool                  `bun:"wrong_clock"`
	SkewSeconds  float64               `bun:"skew_seconds"`
}

// findByToken gives nil when no run has the token.
func findByToken(ctx context.Context, idb bun.IDB, a *attempt) (*tokenRun, error) {
	run := new(tokenRun)
	err := idb.NewRaw(`
		SELECT id, tenant_id, pool_id, status, cancel_requested_at IS NOT NULL AS cancelled,
			token_used_at IS NOT NULL AS used,
			coalesce(token_used_at > now() - ?5 * interval '1 minute', false) AS used_lately,
			coalesce(token_used_at > now() - ?7 * interval '1 minute', false) AS contestable,
			coalesce(token_key_hash = ?4, false) AS same_key,
			coalesce(token_expires_at <= now(), true) AS expired,
			NOT (`+sameMachine+`) AS wrong_machine,
			abs(extract(epoch FROM ?3::timestamptz - now())) > ?6 AS wrong_clock,
			extract(epoch FROM ?3::timestamptz - now())::float8 AS skew_seconds
		FROM bootstraps WHERE token_hash = ?0`,
		a.tokenHash, a.machine.MachineID, a.machine.Serial, a.clock, a.keyHash, repeatForMinutes, maxSkewSeconds, contestForMinutes).Scan(ctx, run)
	return orNil(run, err, "looking for the run of a token")
}

// runState is where a run stands.
type runState struct {
	Status     model.BootstrapStatus `bun:"status"`
	Generation int                   `bun:"generation"`
}

func findRun(ctx context.Context, idb bun.IDB, bootstrapID string) (*runState, error) {
	run := new(runState)
	err := idb.NewRaw(`SELECT status, generation FROM bootstraps WHERE id = ?`, bootstrapID).Scan(ctx, run)
	return orNil(run, err, "looking for a run")
}

// newHost is a host that is about to be.
type newHost struct {
	takenRun
	ID      string
	Machine Machine
	Version string
}

func insertHost(ctx context.Context, tx bun.IDB, h *newHost) error {
	facts, err := json.Marshal(h.Machine)
	if err != nil {
		return fmt.Errorf("encoding facts: %w", err)
	}
	_, err = tx.NewRaw(`INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id, facts, agent_version)
		VALUES (?, ?, ?, ?, ?, ?, ?::jsonb, ?)`,
		h.ID, h.TenantID, h.PoolID, h.BootstrapID, h.AccountID, h.MachineID, string(facts), h.Version).Exec(ctx)
	if err != nil {
		return fmt.Errorf("storing a host: %w", err)
	}
	return nil
}

// reserveKey reports whether no other host has the key, and keeps it so until tx ends: two hosts that bring one key wait for each
// other.
func reserveKey(ctx context.Context, tx bun.IDB, hostID string, keyHash []byte) (free bool, err error) {
	lock := int64(binary.BigEndian.Uint64(keyHash)) //nolint:gosec // any 64 bits of the hash do
	if _, err := tx.NewRaw(`SELECT pg_advisory_xact_lock(?)`, lock).Exec(ctx); err != nil {
		return false, fmt.Errorf("locking a key: %w", err)
	}
	err = tx.NewRaw(`SELECT NOT EXISTS (SELECT FROM host_certificates WHERE key_hash = ? AND host_id <> ?)`, keyHash, hostID).
		Scan(ctx, &free)
	if err != nil {
		return false, fmt.Errorf("looking for a key: %w", err)
	}
	return free, nil
}

func insertCertificate(ctx context.Context, tx bun.IDB, tenantID, hostID string, keyHash []byte, c *pki.HostCertificate) error {
	_, err := tx.NewRaw(`INSERT INTO host_certificates (serial, host_id, tenant_id, key_hash, certificate, not_after)
		VALUES (?, ?, ?, ?, ?, ?)`, c.Serial, hostID, tenantID, keyHash, c.DER, c.NotAfter).Exec(ctx)
	if err != nil {
		return fmt.Errorf("storing a certificate: %w", err)
	}
	return nil
}

// firstCertificate is what the first answer to a join held.
type firstCertificate struct {
	HostID      string    `bun:"host_id"`
	Certificate []byte    `bun:"certificate"`
	NotAfter    time.Time `bun:"not_after"`
}

// findFirstCertificate gives nil when the host of the run was removed.
func findFirstCertificate(ctx context.Context, idb bun.IDB, bootstrapID string, keyHash []byte) (*firstCertificate, error) {
	first := new(firstCertificate)
	err := idb.NewRaw(`SELECT c.host_id, c.certificate, c.not_after FROM host_certificates c JOIN hosts h ON h.id = c.host_id
		WHERE h.bootstrap_id = ? AND h.removed_at IS NULL AND c.key_hash = ? ORDER BY c.issued_at LIMIT 1`, bootstrapID, keyHash).
		Scan(ctx, first)
	return orNil(first, err, "looking for a certificate")
}

// youngCertificate is a host's newest certificate in the first half of its life, which lasts that many seconds more.
type youngCertificate struct {
	KeyHash     []byte    `bun:"key_hash"`
	Certificate []byte    `bun:"certificate"`
	NotAfter    time.Time `bun:"not_after"`
	Seconds     int       `bun:"seconds"`
}

// findYoungCertificate gives nil when the host's newest certificate may be replaced.
func findYoungCertificate(ctx context.Context, idb bun.IDB, hostID string) (*youngCertificate, error) {
	young := new(youngCertificate)
	err := idb.NewRaw(`SELECT key_hash, certificate, not_after, seconds FROM (
			SELECT *, ceil(extract(epoch FROM issued_at + (not_after - issued_at) / 2 - now()))::int AS seconds
			FROM host_certificates WHERE host_id = ? ORDER BY issued_at DESC LIMIT 1) newest
		WHERE seconds > 0`, hostID).Scan(ctx, young)
	return orNil(young, err, "looking for a certificate")
}

// touch writes down a heartbeat of a host that is trusted, and says whether two thirds of its certificate's life are over. False
// when there is no such host and certificate any more.
func touch(ctx context.Context, idb bun.IDB, p Peer, version string) (renew, trusted bool, err error) {
	err = idb.NewRaw(`UPDATE hosts h SET last_seen_at = now(), agent_version = ? FROM host_certificates c
		WHERE h.id = ? AND h.tenant_id = ? AND h.removed_at IS NULL AND c.host_id = h.id AND c.serial = ?
		RETURNING now() > c.issued_at + (c.not_after - c.issued_at) * 2 / 3`, version, p.HostID, p.TenantID, p.Serial).
		Scan(ctx, &renew)
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	if err != nil {
		return false, false, postgres.Translate(fmt.Errorf("writing a heartbeat: %w", err))
	}
	return renew, true, nil
}

// lockTrusted keeps a host from being removed until tx ends, and gives its pool; empty when it is not trusted any more.
func lockTrusted(ctx context.Context, tx bun.IDB, p Peer) (poolID string, err error) {
	err = tx.NewRaw(`SELECT h.pool_id FROM hosts h JOIN host_certificates c ON c.host_id = h.id
		WHERE h.id = ? AND h.tenant_id = ? AND h.removed_at IS NULL AND c.serial = ? FOR NO KEY UPDATE OF h`,
		p.HostID, p.TenantID, p.Serial).Scan(ctx, &poolID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("locking a host: %w", err)
	}
	return poolID, nil
}

const columns = `h.id, h.tenant_id, h.pool_id, h.bootstrap_id, h.account_id, h.machine_id, h.joined_at, h.last_seen_at,
	h.agent_version, h.removed_at, (SELECT c.not_after FROM host_certificates c WHERE c.host_id = h.id
		ORDER BY c.issued_at DESC LIMIT 1) AS certificate_not_after`

// selectHost gives NOT_FOUND when the tenant has none of that id.
func selectHost(ctx context.Context, idb bun.IDB, tenantID, hostID string) (*model.Host, error) {
	return oneHost(ctx, idb, `SELECT `+columns+` FROM hosts h WHERE h.id = ? AND h.tenant_id = ?`, hostID, tenantID)
}

func oneHost(ctx context.Context, idb bun.IDB, query string, args ...any) (*model.Host, error) {
	h := new(model.Host)
	err := idb.NewRaw(query, args...).Scan(ctx, h)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound()
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading a host: %w", err))
	}
	return h, nil
}

// selectHosts reads one item more than the page has, newest first.
func selectHosts(ctx context.Context, idb bun.IDB, tenantID, poolID string, removed bool, p input.Page[string]) ([]*model.Host, error) {
	hosts := []*model.Host{}
	query := idb.NewSelect().TableExpr("hosts AS h").ColumnExpr(columns).
		Where("h.tenant_id = ?", tenantID).Where("h.pool_id = ?", poolID).OrderExpr("h.id DESC").Limit(int64(p.First + 1))
	if !removed {
		query.Where("h.removed_at IS NULL")
	}
	if p.Place != "" {
		query.Where("h.id < ?", p.Place)
	}
	if err := query.Scan(ctx, &hosts); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing hosts: %w", err))
	}
	return hosts, nil
}

// setRemoved ends the trust in a host and frees its machine. False when it was removed before.
func setRemoved(ctx context.Context, tx bun.IDB, hostID string) (removed bool, err error) {
	result, err := tx.NewRaw(`UPDATE hosts SET removed_at = now() WHERE id = ? AND removed_at IS NULL`, hostID).Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("removing a host: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.NewRaw(`DELETE FROM machine_reservations WHERE host_id = ?`, hostID).Exec(ctx); err != nil {
		return false, fmt.Errorf("freeing the machine of a host: %w", err)
	}
	return true, nil
}

// removeHostOf removes the host that a run made, and names it. False when there is none, or it was removed before.
func removeHostOf(ctx context.Context, tx bun.IDB, bootstrapID string) (hostID string, removed bool, err error) {
	err = tx.NewRaw(`SELECT id FROM hosts WHERE bootstrap_id = ?`, bootstrapID).Scan(ctx, &hostID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("looking for the host of a run: %w", err)
	}
	removed, err = setRemoved(ctx, tx, hostID)
	return hostID, removed, err
}

// orNil turns "no row" into nil.
func orNil[T any](row *T, err error, doing string) (*T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("%s: %w", doing, err))
	}
	return row, nil
}

// removedError is what an agent hears once its host is not trusted any more.
func removedError() error {
	return refuse(problem.Forbidden, "HOST_REMOVED", "This host was removed.")
}
