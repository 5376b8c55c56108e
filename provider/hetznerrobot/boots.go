package hetznerrobot

import (
	"sync"
	"time"
)

// bootTime is how long a server may take from a reset until its SSH server answers. Large ones test their memory first.
const bootTime = 6 * time.Minute

// boots remembers which servers may be booting, since Robot does not say. What is forgotten with the process costs one more reset or some
// minutes of waiting, and nothing else.
type boots struct {
	now func() time.Time

	mu     sync.Mutex
	since  map[int64]time.Time
	silent map[int64]time.Time
}

func newBoots(now func() time.Time) *boots {
	return &boots{now: now, since: map[int64]time.Time{}, silent: map[int64]time.Time{}}
}

// reset notes that a server was reset.
func (b *boots) reset(number int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since[number] = b.now()
	delete(b.silent, number)
}

// answered notes that a server is up.
func (b *boots) answered(number int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.silent, number)
}

// wasReset reports whether a server was reset no longer ago.
func (b *boots) wasReset(number int64, within time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known := b.since[number]
	return known && b.now().Sub(at) < within
}

// mayBoot reports whether a server that does not answer may be booting: it was reset lately, or has not been seen silent for long.
func (b *boots) mayBoot(number int64) bool {
	if b.wasReset(number, bootTime) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first, known := b.silent[number]
	if !known {
		first = b.now()
		b.silent[number] = first
	}
	return b.now().Sub(first) < bootTime
}
