// Package agent is what bcd does on a host: join once, then heartbeat and renew until the host is removed.
//
// It speaks the agent protocol and keeps four files; it refuses to know anything of the server's code. The invariant:
// the join token is sent only over a connection whose server was verified with the CA pin, and never more than one
// key is made, so that a join that is tried again is the same join.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// ErrRemoved says that the server told this host that it was removed. Its certificate is worth nothing any more.
var ErrRemoved = errors.New("this host was removed from its pool")

// ErrExpired says that the certificate ended before it could be renewed, so that only a new bootstrap brings the host back.
var ErrExpired = errors.New("the certificate of this host has expired")

// RefusedError is a join that was refused for good: trying it again cannot help.
type RefusedError struct {
	Code, Reason, Message string
}

// Error is the text for the log.
func (e *RefusedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the join was refused (%s): %s", e.Code, e.Message)
	}
	return fmt.Sprintf("the join was refused (%s, %s): %s", e.Code, e.Reason, e.Message)
}

// Agent is one bcd.
type Agent struct {
	cfg     Config
	version string
	log     *slog.Logger
	now     func() time.Time
	started time.Time
	// The waits between tries: doubling from the first to the last.
	firstWait, lastWait time.Duration
}

// New makes an Agent that calls itself version.
func New(cfg Config, version string, log *slog.Logger) *Agent {
	return &Agent{
		cfg: cfg, version: version, log: log, now: time.Now, started: time.Now(),
		firstWait: time.Second, lastWait: 30 * time.Second,
	}
}

// Run joins if this host has not joined yet, then heartbeats and renews. It returns nil when ctx ends, a RefusedError
// when the join is refused for good, ErrRemoved or ErrExpired when the host is not one any more, and other errors when
// the state on disk cannot be used. Everything else it tries again.
func (a *Agent) Run(ctx context.Context) error {
	err := a.run(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (a *Agent) run(ctx context.Context) error {
	st, err := openState(a.cfg.StateDir)
	if err != nil {
		return err
	}
	defer st.close()
	host, err := st.load()
	if err != nil {
		return err
	}
	if host == nil {
		if host, err = a.join(ctx, st); err != nil {
			return err
		}
	}
	// The token is of no use any more. A crash between the join and this line leaves it to the next start.
	if err := a.cfg.removeToken(); err != nil {
		a.log.WarnContext(ctx, "the used join token cannot be deleted", "error", err)
	}
	return a.serve(ctx, st, host)
}

// serve is the life of a joined host.
func (a *Agent) serve(ctx context.Context, st *state, host *identity) error {
	c, err := newClient(a.cfg.Server, host, a.now)
	if err != nil {
		return err
	}
	defer c.close()
	a.log.InfoContext(ctx, "serving", "hostId", host.HostID, "tenantId", host.TenantID, "certificateEnds", host.leaf.NotAfter)
	for failures := 0; ; {
		wait, err := a.beat(ctx, st, c)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return ctx.Err()
		case removed(err):
			return ErrRemoved
		case refusedByTLS(err) && a.now().After(c.current().leaf.NotAfter):
			// Both agree. Either alone may be a wrong clock, or a server that lost its CA for an hour.
			return ErrExpired
		default:
			// Never slower than the heartbeat itself, so that a short failure costs at most one.
			wait = min(wait, a.backoff(failures))
			failures++
			a.log.WarnContext(ctx, "the heartbeat failed", "error", err, "retryIn", wait.String())
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// beat sends one heartbeat and renews the certificate when it is time or the server asks for it. It returns how long
// to wait for the next.
func (a *Agent) beat(ctx context.Context, st *state, c *client) (time.Duration, error) {
	host := c.current()
	told, err := c.heartbeat(ctx, heartbeatRequest{
		AgentVersion: a.version, Clock: clockText(a.now()), UptimeSeconds: a.uptimeSeconds(),
	})
	if err != nil {
		return interval(host.HeartbeatSeconds), err
	}
	wait := interval(told.HeartbeatSeconds)
	if !told.Renew && a.now().Before(renewAt(host)) {
		return wait, nil
	}
	csr, err := host.csr()
	if err != nil {
		return wait, err
	}
	answer, err := c.renew(ctx, renewRequest{CSR: csr})
	if err != nil {
		return wait, fmt.Errorf("renewing: %w", err)
	}
	fresh, err := host.renewed(answer)
	if err != nil {
		return wait, fmt.Errorf("renewing: %w", err)
	}
	if err := st.save(fresh); err != nil {
		return wait, err
	}
	c.use(fresh)
	a.log.InfoContext(ctx, "the certificate was renewed", "certificateEnds", fresh.leaf.NotAfter)
	return wait, nil
}

// renewAt is when two thirds of the certificate's life are over.
func renewAt(host *identity) time.Time {
	life := host.leaf.NotAfter.Sub(host.leaf.NotBefore)
	return host.leaf.NotBefore.Add(life * 2 / 3)
}

// interval bounds what a server may ask for, so that a wrong number neither floods it nor silences the agent.
func interval(seconds int) time.Duration {
	return time.Duration(min(max(seconds, 1), 3600)) * time.Second
}

// backoff doubles with each failure. Half of it is random, so that a fleet that lost its server does not come back as
// one wave.
func (a *Agent) backoff(failures int) time.Duration {
	wait := min(a.firstWait<<min(failures, 16), a.lastWait)
	return wait/2 + rand.N(wait/2+1) //nolint:gosec // nothing to be guessed
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
