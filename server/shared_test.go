package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// However many ask, one looks, and who asks within a second of it gets what that one found: also a failure, and also when it was given up.
func TestOneLooksForAll(t *testing.T) {
	t.Parallel()
	looks, failure := 0, errors.New("away")
	s := &shared[int]{look: func(ctx context.Context) (int, error) {
		looks++
		if looks == 2 {
			return 0, failure
		}
		return looks, ctx.Err()
	}}
	at := time.Unix(1000, 0)
	ask := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				got, err := s.get(ctx, func() time.Time { return at })
				if looks == 2 && !errors.Is(err, failure) || looks != 2 && (err != nil || got != looks) {
					t.Errorf("after %d looks: %d, %v", looks, got, err)
				}
			})
		}
		all.Wait()
	}
	for want := 1; want <= 3; want++ {
		for range 2 {
			ask()
			at = at.Add(sharedFor - 1)
			ask()
			at = at.Add(1 - sharedFor)
		}
		if looks != want {
			t.Errorf("looked %d times, want %d", looks, want)
		}
		at = at.Add(sharedFor)
	}
}
