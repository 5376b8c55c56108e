package authz

import (
	"context"
	"sync"
)

// watchers are those who asked to hear of changes, by the subjects that concern them.
type watchers struct {
	mu        sync.Mutex
	bySubject map[Subject]map[chan struct{}]struct{}
}

// Changes gives a channel that receives when bindings of the actor or of one of its groups may have changed: check again
// then. Changes that come before the last one was received count as one. The channel is never closed; it goes silent
// when ctx ends.
func (d *Decider) Changes(ctx context.Context, a Actor) <-chan struct{} {
	changed := make(chan struct{}, 1)
	d.watchers.add(a.subjects(), changed)
	context.AfterFunc(ctx, func() { d.watchers.remove(a.subjects(), changed) })
	return changed
}

func (w *watchers) add(subjects []Subject, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bySubject == nil {
		w.bySubject = map[Subject]map[chan struct{}]struct{}{}
	}
	for _, s := range subjects {
		if w.bySubject[s] == nil {
			w.bySubject[s] = map[chan struct{}]struct{}{}
		}
		w.bySubject[s][changed] = struct{}{}
	}
}

func (w *watchers) remove(subjects []Subject, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range subjects {
		delete(w.bySubject[s], changed)
		if len(w.bySubject[s]) == 0 {
			delete(w.bySubject, s)
		}
	}
}

func (w *watchers) tell(s Subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signal(w.bySubject[s])
}

func (w *watchers) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.bySubject {
		w.signal(set)
	}
}

// signal never waits: a full channel holds a signal already.
func (w *watchers) signal(set map[chan struct{}]struct{}) {
	for changed := range set {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
