package server

import (
	"context"
	"sync"
	"time"
)

// sharedFor is how old an answer may be that callers share.
const sharedFor = time.Second

// shared is an answer that all get who ask within sharedFor of it. What asks for no credential takes no points, so this is what bounds its work.
type shared[T any] struct {
	look func(ctx context.Context) (T, error) // one at a time, and not ended by who asked first

	mu   sync.Mutex
	at   time.Time // of the last answer; zero: none yet
	last T
	err  error
}

// get waits for those who look, and looks itself only if their answer is too old.
func (s *shared[T]) get(ctx context.Context, now func() time.Time) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || now().Sub(s.at) >= sharedFor {
		s.last, s.err = s.look(context.WithoutCancel(ctx))
		s.at = now()
	}
	return s.last, s.err
}
