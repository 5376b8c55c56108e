package authz

import (
	"context"
	"fmt"
	"sync"
)

// reads lets those who ask the same question at the same time share a read of the database. While the cache may not answer, a caller
// with a thousand streams asks a thousand times for each event: one by one that takes longer than a read may.
//
// A read that is under way may have seen the time before somebody came. So whoever comes meanwhile waits for the next one, which all of
// those share: what an answer is of is never older than its question.
type reads struct {
	mu    sync.Mutex
	lanes map[string]*lane
}

// lane is the reads of one question, of which one runs at a time.
type lane struct{ next *sharedRead }

type sharedRead struct {
	done chan struct{}
	read snapshot
	err  error
}

// join waits for the next read of the question. The read does not end with ctx, since others may wait for it.
func (r *reads) join(ctx context.Context, q question, read func() (snapshot, error)) (snapshot, error) {
	key := fmt.Sprintf("%q", append([]string{q.credential}, q.subjects...))
	r.mu.Lock()
	l, running := r.lanes[key]
	if !running {
		if r.lanes == nil {
			r.lanes = map[string]*lane{}
		}
		l = &lane{}
		r.lanes[key] = l
	}
	if l.next == nil {
		l.next = &sharedRead{done: make(chan struct{})}
	}
	mine := l.next
	r.mu.Unlock()
	if !running {
		go r.run(key, l, read)
	}
	select {
	case <-mine.done:
		return mine.read, mine.err
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
}

// run reads for as long as somebody waits.
func (r *reads) run(key string, l *lane, read func() (snapshot, error)) {
	for {
		r.mu.Lock()
		next := l.next
		l.next = nil
		if next == nil {
			delete(r.lanes, key)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		next.read, next.err = read()
		close(next.done)
	}
}
