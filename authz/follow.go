package authz

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	pollInterval = 150 * time.Millisecond
	pollTimeout  = 300 * time.Millisecond
	dialTimeout  = 2 * time.Second
)

// Run follows the policy until ctx ends, on a connection of its own: it listens for changes and asks for the policy
// version every 150 ms, which proves that the link lives and that no notification was lost. When the link breaks, decisions read the
// database until a new one stands. Call it once.
func (d *Decider) Run(ctx context.Context) error {
	for first := true; ; first = false {
		stood, err := d.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if stood || first { // once for each time that it is away
			d.log.WarnContext(ctx, "the link that follows the policy is down; each decision reads the database", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// follow is the life of one link. It returns when the link is not to be trusted any more, and whether it ever was.
func (d *Decider) follow(ctx context.Context) (stood bool, err error) {
	conn, err := d.listen(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTimeout)
		defer cancel()
		_ = conn.Close(closing)
	}()
	defer func() { // before the farewell, which may take its time
		d.cache.distrust()
		d.watchers.tellAll() // a stream without events would hear of a change only when the next link stands
	}()
	// Only after LISTEN took hold: what changed before is in the version and in every later read, what changes after is told.
	start := d.now()
	version, err := policyVersion(ctx, conn)
	if err != nil {
		return false, err
	}
	d.cache.restart(version, start)
	d.log.InfoContext(ctx, "the link that follows the policy is up", "version", version)
	d.watchers.tellAll()
	for {
		if err := waitForNotifications(ctx, conn, pollInterval); err != nil {
			return true, err
		}
		start := d.now()
		version, err := policyVersion(ctx, conn)
		if err != nil {
			return true, err
		}
		if !d.cache.prove(version, start) {
			d.watchers.tellAll()
		}
	}
}

func (d *Decider) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config := d.db.Pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = "compute-api authz"
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { d.notified(n.Payload) }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to follow the policy: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN authz"); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listening for changes of the policy: %w", err)
	}
	return conn, nil
}

// notified takes one notification: a subject whose bindings changed, and then "~<tenant> <subject>", which says where; "token:<id>" for a token
// that did, "*" for everything, or "=<version>", which ends those of one statement.
func (d *Decider) notified(payload string) {
	switch {
	case payload == "*":
		d.cache.forget()
		d.watchers.tellAll()
	case strings.HasPrefix(payload, "~"):
		tenantID, subject, _ := strings.Cut(payload[1:], " ")
		d.watchers.tell(subject, tenantID)
	case strings.HasPrefix(payload, "="):
		version, err := strconv.ParseInt(payload[1:], 10, 64)
		if err != nil || !d.cache.heard(version) {
			d.cache.forget()
			d.watchers.tellAll()
		}
	default:
		d.cache.drop(payload)
		if strings.HasPrefix(payload, tokenKey("")) {
			d.watchers.tell(payload, "")
		}
	}
}

// waitForNotifications lets them come in for that long.
func waitForNotifications(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		err := conn.PgConn().WaitForNotification(waiting)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return fmt.Errorf("waiting for changes of the policy: %w", err)
		}
	}
}

func policyVersion(ctx context.Context, conn *pgx.Conn) (version int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, "SELECT version FROM policy_version").Scan(&version); err != nil {
		return 0, fmt.Errorf("asking for the policy version: %w", err)
	}
	return version, nil
}
