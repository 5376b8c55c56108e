package authz

import (
	"context"
	"sync"
)

// watchers are those who asked to hear of changes, by the subjects and tokens that concern them.
type watchers struct {
	mu    sync.Mutex
	byKey map[string]map[chan struct{}]struct{}
}

// Changes gives a channel that receives when a role or bindings of the actor or of one of its groups may have changed, or its API token:
// check again then. Changes that come before the last one was received count as one. The channel is never closed; it goes silent
// when ctx ends.
func (d *Decider) Changes(ctx context.Context, a Actor) <-chan struct{} {
	changed := make(chan struct{}, 1)
	d.watchers.add(a.watched(), changed)
	context.AfterFunc(ctx, func() { d.watchers.remove(a.watched(), changed) })
	return changed
}

// AfterEnd calls fn once the actor's credential was taken back, unless ctx ends first: an API token that counts no more, or one of
// another kind that was withdrawn. That a credential expires is the caller's to see.
func (d *Decider) AfterEnd(ctx context.Context, a Actor, fn func()) {
	switch {
	case a.Credential != "":
		go d.afterRevocation(ctx, a, d.Changes(ctx, a), fn)
	case a.Withdrawn != nil:
		go func() {
			select {
			case <-ctx.Done():
			case <-a.Withdrawn:
				fn()
			}
		}()
	}
}

func (d *Decider) afterRevocation(ctx context.Context, a Actor, changed <-chan struct{}, fn func()) {
	for {
		live, err := d.Live(ctx, a.Credential)
		if err == nil && !live {
			fn()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed: // also when the policy can be read again
		}
	}
}

// watched are the names by which notifications tell of the actor.
func (a Actor) watched() []string {
	if a.Credential == "" {
		return a.subjects()
	}
	return append(a.subjects(), tokenKey(a.Credential))
}

func (w *watchers) add(keys []string, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[Subject]map[chan struct{}]struct{}{}
	}
	for _, key := range keys {
		if w.byKey[key] == nil {
			w.byKey[key] = map[chan struct{}]struct{}{}
		}
		w.byKey[key][changed] = struct{}{}
	}
}

func (w *watchers) remove(keys []string, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.byKey[key], changed)
		if len(w.byKey[key]) == 0 {
			delete(w.byKey, key)
		}
	}
}

func (w *watchers) tell(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signal(w.byKey[key])
}

func (w *watchers) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.byKey {
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
