// Package host owns the machines whose agents have joined: the join itself, heartbeats, renewals, removal, and the
// listener that the agents talk to.
//
// It refuses to know providers and how a run got as far as its install. The invariant: a join token makes one host,
// whoever presents it and how often; the host, its certificate, the end of its run and the events of that are committed together
// or not at all; and a host that was removed is refused from then on, on open connections too.
package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

const (
	idPrefix    = "host"
	poolPrefix  = "pool"
	runPrefix   = "boot"
	defaultLife = pki.HostLife
	defaultBeat = 30 * time.Second
)

// Actions of this package in the audit log.
const (
	joinAction    = "host.join"
	refusedAction = "host.join.refused"
	renewAction   = "host.renew"
	removeAction  = "removeHost"
)

// MarkJoined ends the run with the host, in the transaction of the join: its history, its events and the reservation of its
// machine.
type MarkJoined func(ctx context.Context, tx bun.IDB, bootstrapID, hostID string) error

// MarkContested fails a run that has joined, in the transaction that removes its host: its history and its event. Idempotent.
type MarkContested func(ctx context.Context, tx bun.IDB, bootstrapID string) error

// MarkClockOff notes on a run that its agent was refused for its machine's clock. Idempotent.
type MarkClockOff func(ctx context.Context, idb bun.IDB, bootstrapID string, off time.Duration) error

// Deps are what the service works with.
type Deps struct {
	DB      *postgres.DB
	Authz   *authz.Decider
	Cursors *cursor.Sealer
	// CA is nil in a deployment without PKI: hosts can then be read and removed, and none can join.
	CA            *pki.CA
	MarkJoined    MarkJoined
	MarkContested MarkContested
	MarkClockOff  MarkClockOff
	Log           *slog.Logger
	// Joined is told of the run of each join once that is committed, and Refused the reason of each that is refused; nil: nobody counts.
	Joined  func(ctx context.Context, bootstrapID string)
	Refused func(reason string)
	// CertificateLife is how long a host's certificate lasts; zero means 24 hours.
	CertificateLife time.Duration
	// Heartbeat is how often agents are told to report; zero means 30 seconds.
	Heartbeat time.Duration
}

// Service is safe for concurrent use.
type Service struct {
	db         *postgres.DB
	authz      *authz.Decider
	cursors    *cursor.Sealer
	ca         *pki.CA
	markJoined MarkJoined
	contested  MarkContested
	clockOff   MarkClockOff
	joined     func(ctx context.Context, bootstrapID string)
	refused    func(reason string)
	log        *slog.Logger
	life       time.Duration
	beat       time.Duration
	now        func() time.Time
}

// New makes the service.
func New(d Deps) *Service {
	s := &Service{
		db: d.DB, authz: d.Authz, cursors: d.Cursors, ca: d.CA, markJoined: d.MarkJoined, contested: d.MarkContested, clockOff: d.MarkClockOff,
		joined: d.Joined, refused: d.Refused, log: d.Log,
		life: d.CertificateLife, beat: d.Heartbeat, now: time.Now,
	}
	if s.life <= 0 {
		s.life = defaultLife
	}
	if s.beat <= 0 {
		s.beat = defaultBeat
	}
	return s
}

func (s *Service) heartbeatSeconds() int { return max(1, int(s.beat/time.Second)) }

func notFound() error {
	return problem.New(problem.NotFound, "The tenant has no such host.")
}
