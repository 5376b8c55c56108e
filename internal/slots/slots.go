// Package slots owns how many of each key may do something at a time: the calls of an account, the steps of a tenant, the operations of a caller.
//
// It refuses to know what they do, and for how long. The invariant: a key never has more holders than its level has slots, whoever has
// waited longest for a key is next, and a key that nobody holds or waits for takes no memory.
package slots

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Level is a kind of key, and how many slots each key of it has.
type Level struct {
	Name   string
	PerKey int
}

// Key is what slots are of.
type Key struct{ Level, Name string }

// Set is the slots of all keys of some levels. It is safe for concurrent use.
type Set struct {
	levels []Level

	mu   sync.Mutex
	keys map[Key]*pool
}

// pool is the slots of one key, for as long as somebody holds or waits for one.
type pool struct {
	*semaphore.Weighted
	users int
}

// New makes the slots of the levels, the narrowest first.
func New(levels ...Level) *Set {
	return &Set{levels: levels, keys: map[Key]*pool{}}
}

// FullError says of which key no slot was free. It wraps the error of the context that ended the waiting, where there was any.
type FullError struct {
	Key   Key
	cause error
}

func (e *FullError) Error() string { return "no slot of this " + e.Key.Level + " is free" }

// Unwrap gives the context's error.
func (e *FullError) Unwrap() error { return e.cause }

// Take waits for a slot of each key, until ctx ends; then it gives a FullError. The keys are taken in the order of their levels and, within one, of
// their names, so that what waits at a narrow level holds none of a wide one, and no two wait for each other. A key that is named twice counts
// once. Release gives all slots back, and may be called more than once. Who holds slots of a set must not wait for more of it.
func (s *Set) Take(ctx context.Context, keys ...Key) (release func(), err error) {
	return s.each(keys, func(p *pool) (bool, error) {
		err := p.Acquire(ctx, 1)
		return err == nil, err
	})
}

// Try is Take for who does not wait. It passes nobody who does.
func (s *Set) Try(keys ...Key) (release func(), err error) {
	return s.each(keys, func(p *pool) (bool, error) { return p.TryAcquire(1), nil })
}

func (s *Set) each(keys []Key, acquire func(*pool) (bool, error)) (release func(), err error) {
	held := make([]func(), 0, len(keys))
	release = func() {
		for _, free := range held {
			free()
		}
	}
	for _, key := range s.inOrder(keys) {
		p := s.join(key)
		if ok, err := acquire(p); !ok {
			s.leave(key, p)
			release()
			return nil, &FullError{Key: key, cause: err}
		}
		held = append(held, func() { p.Release(1); s.leave(key, p) })
	}
	return sync.OnceFunc(release), nil
}

func (s *Set) inOrder(keys []Key) []Key {
	return slices.Compact(slices.SortedFunc(slices.Values(keys), func(a, b Key) int {
		return cmp.Or(cmp.Compare(s.level(a), s.level(b)), cmp.Compare(a.Name, b.Name))
	}))
}

func (s *Set) level(key Key) int {
	return slices.IndexFunc(s.levels, func(l Level) bool { return l.Name == key.Level })
}

func (s *Set) join(key Key) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[key]
	if p == nil {
		p = &pool{Weighted: semaphore.NewWeighted(int64(s.levels[s.level(key)].PerKey))}
		s.keys[key] = p
	}
	p.users++
	return p
}

func (s *Set) leave(key Key, p *pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(s.keys, key)
	}
}

// Users is how many hold a slot of the key or wait for one.
func (s *Set) Users(key Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.keys[key]; p != nil {
		return p.users
	}
	return 0
}

// Full lists the names of the keys of a level whose slots are all taken, in no order.
func (s *Set) Full(level string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := []string{}
	for key, p := range s.keys {
		if key.Level == level && p.users >= s.levels[s.level(key)].PerKey {
			full = append(full, key.Name)
		}
	}
	return full
}
