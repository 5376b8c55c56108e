package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestReadsAreSharedAndNeverOlderThanTheQuestion(t *testing.T) {
	t.Parallel()
	var r reads
	var begun atomic.Int64
	gate := make(chan struct{})
	entered := make(chan struct{}, 200)
	read := func() (snapshot, error) {
		n := begun.Add(1)
		entered <- struct{}{}
		<-gate
		return snapshot{version: n}, nil
	}
	q := question{subjects: []Subject{"user:a"}}
	var wg sync.WaitGroup
	ask := func(oldest int64) {
		wg.Go(func() {
			if got, err := r.join(t.Context(), q, read); err != nil || got.version < oldest {
				t.Errorf("got the answer of read %d, %v; want %d or a later one", got.version, err, oldest)
			}
		})
	}
	ask(1)
	<-entered
	for range 100 {
		ask(2) // while the first read is under way
	}
	waiting := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		l := r.lanes[`["" "user:a"]`]
		return l != nil && l.next != nil
	}
	eventually(t, "somebody waits for the second read", waiting)
	other := make(chan struct{})
	go func() {
		defer close(other)
		if _, err := r.join(t.Context(), question{subjects: q.subjects, credential: "tok"}, func() (snapshot, error) { return snapshot{}, errors.New("failed") }); err == nil {
			t.Error("another question got this one's answer")
		}
	}()
	<-other // does not wait for them
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.join(left, q, read); !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(gate)
	wg.Wait()
	if n := begun.Load(); n > 20 { // some of the hundred may have come late
		t.Errorf("a hundred questions at a time took %d reads", n-1)
	}
	eventually(t, "nothing is kept", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lanes) == 0
	})
}
