package bootstrap

import "sync"

// slots bounds how many steps of one key go on at a time.
type slots struct {
	perKey int
	mu     sync.Mutex
	taken  map[string]int
}

// take reports whether there was a slot; free gives it back.
func (s *slots) take(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken = map[string]int{}
	}
	if s.taken[key] >= s.perKey {
		return false
	}
	s.taken[key]++
	return true
}

func (s *slots) free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[key]--; s.taken[key] == 0 {
		delete(s.taken, key)
	}
}
