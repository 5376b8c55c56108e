package model

import "sync"

// Siblings are rows that were read together, so that what hangs on them can be read together too: whoever first wants something
// of one of them reads it for all. They live as long as the answer that they are part of. Safe for concurrent use.
type Siblings[T any] struct {
	rows []*T

	mu       sync.Mutex
	readings map[string]*reading
}

// reading is one thing that is read once.
type reading struct {
	once  sync.Once
	found any
	err   error
}

// NewSiblings makes siblings of the rows.
func NewSiblings[T any](rows []*T) *Siblings[T] {
	return &Siblings[T]{rows: rows, readings: map[string]*reading{}}
}

// ReadTogether gives what read finds for all the rows. It is called once for each name, and its error kept like its result.
func ReadTogether[T, V any](s *Siblings[T], name string, read func(rows []*T) (V, error)) (V, error) {
	s.mu.Lock()
	r := s.readings[name]
	if r == nil {
		r = new(reading)
		s.readings[name] = r
	}
	s.mu.Unlock()
	r.once.Do(func() { r.found, r.err = read(s.rows) })
	found, _ := r.found.(V) // what a reader of that name found, or nothing beside an error
	return found, r.err
}
