package apitoken

import (
	"context"
	"errors"
	"time"

	"better/compute/authz"
	"better/compute/internal/problem"
)

const (
	noteTimeout = 5 * time.Second
	noteAtOnce  = 100
)

// Why a token is nobody's. None of them says anything about the token.
var (
	ErrMalformed = errors.New("an API token with a typo")
	ErrUnknown   = errors.New("an unknown API token")
	ErrEnded     = errors.New("an API token that was revoked or has expired")
)

// Authenticate tells who comes with the token: a caller for as long as the token counts, which is asked anew each time. ErrMalformed,
// ErrUnknown, ErrEnded, or UNAVAILABLE.
func (s *Service) Authenticate(ctx context.Context, token string) (authz.Actor, error) {
	if !wellFormed(token) {
		return authz.Actor{}, ErrMalformed
	}
	ctx = everywhere(ctx)
	h := hashOf(token)
	f, err := s.factsOf(ctx, h)
	if err != nil {
		return authz.Actor{}, err
	}
	live, err := s.authz.Live(ctx, f.id)
	if err != nil {
		return authz.Actor{}, err
	}
	if !live {
		s.known.Remove(h)
		return authz.Actor{}, ErrEnded
	}
	s.used(h, f)
	return authz.Actor{Subject: f.subject, Credential: f.id, Expires: f.ends}, nil
}

// factsOf answers from memory where it can. That a token is unknown is not remembered: whoever makes tokens up would fill the memory.
func (s *Service) factsOf(ctx context.Context, h hash) (facts, error) {
	if f, ok := s.known.Get(h); ok {
		return f, nil
	}
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return facts{}, problem.New(problem.Unavailable, "The API token cannot be looked up right now; try again.").Because(ctx.Err())
	}
	f, found, err := find(ctx, s.db, h, s.now)
	switch {
	case err != nil:
		return facts{}, err
	case !found:
		return facts{}, ErrUnknown
	}
	s.known.Add(h, f)
	return f, nil
}

// used has the use noted, at most once a minute, by somebody else: a request neither waits for that nor fails with it.
func (s *Service) used(h hash, f facts) {
	now := s.now()
	if now.Before(f.noteAfter) {
		return
	}
	f.noteAfter = now.Add(time.Minute)
	s.known.Add(h, f)
	select {
	case s.uses <- f.id:
	default: // too many at once: one that goes on being used is noted later
	}
}

// Run notes the use of tokens until ctx ends. Call it once.
func (s *Service) Run(ctx context.Context) error {
	ctx = everywhere(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-s.uses:
			s.note(ctx, s.gather(first))
		}
	}
}

// gather takes what else waits.
func (s *Service) gather(first string) []string {
	ids := []string{first}
	for len(ids) < noteAtOnce {
		select {
		case id := <-s.uses:
			ids = append(ids, id)
		default:
			return ids
		}
	}
	return ids
}

func (s *Service) note(ctx context.Context, ids []string) {
	noting, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	if err := noteUse(noting, s.db, ids); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "the last use of API tokens was not noted", "error", err)
	}
}
