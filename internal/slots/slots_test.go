package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func two() *Set { return New(Level{"narrow", 1}, Level{"wide", 2}) }

func narrow(name string) Key { return Key{"narrow", name} }
func wide(name string) Key   { return Key{"wide", name} }

func TestTry(t *testing.T) {
	t.Parallel()
	s := two()
	first := try(t, s, wide("w"), narrow("a"))
	_, err := s.Try(wide("w"), narrow("a"))
	if full, ok := errors.AsType[*FullError](err); !ok || full.Key != narrow("a") || full.Unwrap() != nil {
		t.Errorf("all slots of a key are taken: %v", err)
	}
	if n := s.Users(wide("w")); n != 1 {
		t.Errorf("who got no slot holds one of another key: %d", n)
	}
	second := try(t, s, narrow("b"), wide("w"))
	if _, err = s.Try(narrow("c"), wide("w")); err == nil || s.Users(narrow("c")) != 0 {
		t.Error("a third one has a slot of two")
	}
	if diff := cmp.Diff([]string{"w"}, s.Full("wide")); diff != "" {
		t.Error(diff)
	}
	first()
	first()
	if diff := cmp.Diff([]string{}, s.Full("wide")); diff != "" {
		t.Error(diff)
	}
	try(t, s, narrow("a"), narrow("a"), wide("w"), wide("w"))()
	second()
	wantEmpty(t, s)
}

// Whoever asks first is served first, and what is behind one that gives up moves up.
func TestTakeIsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := two()
		held := try(t, s, narrow("a"))
		impatient, giveUp := context.WithCancel(t.Context())
		var order []int
		take := func(ctx context.Context, i int) {
			release, err := s.Take(ctx, narrow("a"))
			if err == nil {
				order = append(order, i)
				release()
				return
			}
			if full, ok := errors.AsType[*FullError](err); !ok || full.Key != narrow("a") || !errors.Is(err, context.Canceled) || i != 4 {
				t.Errorf("%d: %v", i, err)
			}
		}
		for i := range 10 {
			ctx := t.Context()
			if i == 4 {
				ctx = impatient
			}
			go take(ctx, i)
			synctest.Wait()
		}
		giveUp()
		synctest.Wait()
		if n := s.Users(narrow("a")); n != 10 {
			t.Errorf("%d hold or wait for a slot", n)
		}
		held()
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 1, 2, 3, 5, 6, 7, 8, 9}, order); diff != "" {
			t.Error(diff)
		}
		wantEmpty(t, s)
	})
}

func TestWhoWaitsForANarrowLevelHoldsNoWideOne(t *testing.T) {
	t.Parallel()
	s := two()
	held := try(t, s, narrow("a"))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() {
			if _, err := s.Take(ctx, wide("w"), narrow("a")); err == nil {
				t.Error("two have the only slot")
			}
		})
	}
	eventually(t, func() bool { return s.Users(narrow("a")) == 6 })
	if n := s.Users(wide("w")); n != 0 {
		t.Errorf("%d hold or wait for the wide level", n)
	}
	cancel()
	waiting.Wait()
	held()
	wantEmpty(t, s)
}

func TestTimeThatIsOver(t *testing.T) {
	t.Parallel()
	s := two()
	defer try(t, s, narrow("a"))()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, narrow("b"), narrow("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n := s.Users(narrow("b")); n != 0 {
		t.Error("what was taken before is kept")
	}
}

// Many who want several keys in any order, and some of whom give up: never too many have a slot, nobody waits for ever, nothing is left.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := New(Level{"narrow", 2}, Level{"wide", 5})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var inside [2][4]atomic.Int64
	enter := func(level, key int, most int64) {
		if n := inside[level][key].Add(1); n > most {
			t.Errorf("%d have a slot of %d", n, most)
		}
	}
	var crowd sync.WaitGroup
	var served atomic.Int64
	for i := range 64 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		crowd.Go(func() {
			for range 200 {
				a, b, c := r.IntN(4), r.IntN(4), r.IntN(4)
				keys := []Key{wide(fmt.Sprint(a)), narrow(fmt.Sprint(b)), wide(fmt.Sprint(c))}
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(4) == 0 {
					time.AfterFunc(time.Duration(r.IntN(200))*time.Microsecond, cancel)
				}
				release, err := s.Take(ctx, keys...)
				if err == nil {
					served.Add(1)
					enter(0, b, 2)
					enter(1, a, 5)
					runtime.Gosched()
					inside[0][b].Add(-1)
					inside[1][a].Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	if served.Load() < 64*100 {
		t.Errorf("only %d were served", served.Load())
	}
	wantEmpty(t, s)
}

func try(t *testing.T, s *Set, keys ...Key) (release func()) {
	t.Helper()
	release, err := s.Try(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func wantEmpty(t *testing.T, s *Set) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.keys); n != 0 {
		t.Errorf("%d keys that nobody uses are kept", n)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}
