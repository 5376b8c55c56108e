package host

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
)

func refuse(code problem.Code, reason, format string, args ...any) *problem.Error {
	return problem.New(code, format, args...).With("reason", reason)
}

// countRefusal tells of a join that was refused for a reason.
func (s *Service) countRefusal(err error) {
	if err == nil || s.refused == nil {
		return
	}
	if reason, ok := problem.From(err).Details["reason"].(string); ok {
		s.refused(reason)
	}
}

// longestOff, in seconds, is within what a time.Duration can hold.
const longestOff = 1e9

// explain says why a token was not taken, or answers a join that is asked for again. It reads after the decision and decides
// nothing itself, except that a join may be repeated.
func (s *Service) explain(ctx context.Context, a *attempt) (*JoinResponse, error) {
	run, err := findByToken(ctx, s.db.DB, a)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, s.explainUnknown(ctx, a)
	}
	switch {
	case run.Used && run.SameKey && run.UsedLately:
		return s.repeat(ctx, run, a)
	case run.Used && run.SameKey:
		return nil, refuse(problem.Unauthenticated, "TOKEN_USED", "The join token was used by this host, too long ago to be asked again.")
	case run.Used:
		return nil, s.contest(ctx, run)
	case run.Cancelled || run.Status == model.Failed:
		return nil, runFailed()
	case run.Expired:
		return nil, refuse(problem.Unauthenticated, "TOKEN_EXPIRED", "The join token has expired.")
	case run.WrongMachine:
		refusal := refuse(problem.Forbidden, "WRONG_MACHINE", "The join token was made for another machine.")
		return nil, s.alarm(ctx, run, refusal)
	case run.WrongClock:
		seconds := int64(math.Round(run.SkewSeconds))
		off := time.Duration(min(math.Abs(run.SkewSeconds), longestOff) * float64(time.Second))
		if err := s.clockOff(ctx, s.db.DB, run.BootstrapID, off); err != nil {
			return nil, err
		}
		return nil, refuse(problem.Forbidden, "CLOCK_SKEW", "The clock of this machine is off by %d s.", seconds).
			With("skewSeconds", seconds)
	}
	// Nothing speaks against the join: it met a change that is over now.
	return nil, problem.New(problem.Unavailable, "The bootstrap was being changed; try again.")
}

// explainUnknown believes what the token says of itself, but only to say more than "unknown": a failed run keeps no hash, and a
// new generation replaces it.
func (s *Service) explainUnknown(ctx context.Context, a *attempt) error {
	unknown := refuse(problem.Unauthenticated, "TOKEN_UNKNOWN", "The join token is not known.")
	bootstrapID, generation, ok := parseToken(a.token)
	if !ok {
		return unknown
	}
	run, err := findRun(ctx, s.db.DB, bootstrapID)
	switch {
	case err != nil:
		return err
	case run == nil:
		return unknown
	case run.Status == model.Failed:
		return runFailed()
	case generation < run.Generation:
		return refuse(problem.Unauthenticated, "TOKEN_SUPERSEDED", "The join token was replaced by a newer one.")
	}
	return unknown
}

func runFailed() error {
	return refuse(problem.InvalidState, "RUN_FAILED", "The bootstrap has failed or was cancelled.")
}

// repeat gives the certificate of the first answer again.
func (s *Service) repeat(ctx context.Context, run *tokenRun, a *attempt) (*JoinResponse, error) {
	first, err := findFirstCertificate(ctx, s.db.DB, run.BootstrapID, a.keyHash)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, refuse(problem.Forbidden, "HOST_REMOVED", "The host that this join made was removed.")
	}
	return s.welcome(run.TenantID, first.HostID, first.Certificate, first.NotAfter), nil
}

// contest deals with a token that a second agent shows, which is the machine's own when a thief came first. One that comes from the right
// machine while the token lasts, or within a day of the first, takes that one's trust away: which of the two is honest cannot be told, so neither is
// a host, and the run has failed. After that a token that somebody finds in old user data harms no host any more.
func (s *Service) contest(ctx context.Context, run *tokenRun) error {
	refusal := refuse(problem.Unauthenticated, "TOKEN_USED", "The join token was used by another agent.")
	if err := s.alarm(ctx, run, refusal); !errors.Is(err, refusal) {
		return err
	}
	if run.Expired && !run.Contestable || run.WrongMachine {
		return refusal
	}
	err := s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := s.contested(ctx, tx, run.BootstrapID); err != nil {
			return err
		}
		hostID, removed, err := removeHostOf(ctx, tx, run.BootstrapID)
		if err != nil || !removed {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			TenantID: run.TenantID, Action: removeAction, Object: authz.Pool(run.TenantID, run.PoolID).String(), Outcome: audit.Allowed,
			Details: map[string]any{"hostId": hostID, "bootstrapId": run.BootstrapID, "reason": "TOKEN_USED"},
		})
	})
	if err != nil {
		return err
	}
	return refusal
}

// alarm writes down that a real token is in the wrong hands, or was.
func (s *Service) alarm(ctx context.Context, run *tokenRun, refusal *problem.Error) error {
	s.log.WarnContext(ctx, "a join token was presented by the wrong agent",
		"bootstrapId", run.BootstrapID, "tenantId", run.TenantID, "reason", refusal.Details["reason"])
	err := audit.Record(ctx, s.db.DB, audit.Entry{
		TenantID: run.TenantID, Action: refusedAction, Object: authz.Pool(run.TenantID, run.PoolID).String(), Outcome: audit.Denied,
		Details: map[string]any{"bootstrapId": run.BootstrapID, "reason": refusal.Details["reason"]},
	})
	if err != nil {
		return err
	}
	return refusal
}
