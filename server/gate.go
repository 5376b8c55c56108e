package server

import "sync"

// gate bounds how many things each caller has open at a time.
type gate struct {
	mu   sync.Mutex
	open map[string]int
	max  int
}

func newGate(limit int) *gate { return &gate{open: map[string]int{}, max: limit} }

// enter takes a place for key; release gives it back and may be called more than once. False when all are taken.
func (g *gate) enter(key string) (release func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[key] >= g.max {
		return nil, false
	}
	g.open[key]++
	return sync.OnceFunc(func() { g.leave(key) }), true
}

func (g *gate) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[key]--; g.open[key] == 0 {
		delete(g.open, key)
	}
}
