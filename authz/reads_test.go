package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestReadsAreSharedAndNeverOlderThanTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r reads
		var begun atomic.Int64
		gate := make(chan struct{})
		read := func() (snapshot, error) {
			n := begun.Add(1)
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
		synctest.Wait()
		for range 100 {
			ask(2) // while the first read is under way
		}
		synctest.Wait()
		_, err := r.join(t.Context(), question{subjects: q.subjects, credential: "tok"}, func() (snapshot, error) { return snapshot{}, errors.New("failed") })
		if err == nil { // it does not wait for them
			t.Error("another question got this one's answer")
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := r.join(left, q, read); !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		close(gate)
		wg.Wait()
		synctest.Wait()
		if n := begun.Load(); n != 2 {
			t.Errorf("a hundred questions at a time took %d reads", n-1)
		}
		if len(r.lanes) != 0 {
			t.Errorf("%d lanes are kept", len(r.lanes))
		}
	})
}
