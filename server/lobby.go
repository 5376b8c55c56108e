package server

import (
	"container/list"
	"sync"
)

// lobby holds the connections whose caller is not known yet, up to a number. When it is full, whoever has waited longest goes: a client
// names its caller at once, so somebody who opens connections and says nothing loses those first, and shuts nobody out.
type lobby struct {
	max int

	mu      sync.Mutex
	waiting *list.List // of func(), the oldest first
}

func newLobby(limit int) *lobby { return &lobby{max: limit, waiting: list.New()} }

// enter lets a connection wait until release, which may be called more than once. drop is called if it has to go before, and must not wait.
// full says that another one had to go for it.
func (l *lobby) enter(drop func()) (release func(), full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if full = l.waiting.Len() >= l.max; full {
		oldest := l.waiting.Front()
		if drop, ok := oldest.Value.(func()); ok { // nothing else is in it
			drop()
		}
		l.waiting.Remove(oldest)
	}
	place := l.waiting.PushBack(drop)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting.Remove(place) // nothing, when it had to go
	}, full
}
