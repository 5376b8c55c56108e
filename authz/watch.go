package authz

import (
	"context"
	"sync"
)

// watchers are those who asked to hear of changes, by the subjects and tokens that concern them.
type watchers struct {
	mu    sync.Mutex
	byKey map[string]map[*watch]struct{}
}

type watch struct {
	tenantID string // of what is decided; "" for anything
	changed  chan struct{}
}

// Changes gives a channel that receives when a role, bindings of the actor or of one of its groups that can count in the tenant, or its API
// token may have changed: check again then. Changes that come before the last one was received count as one. The channel is never closed;
// it goes silent when ctx ends.
func (d *Decider) Changes(ctx context.Context, a Actor, tenantID string) <-chan struct{} {
	return d.watchers.watch(ctx, a.watched(), tenantID)
}

func (w *watchers) watch(ctx context.Context, keys []string, tenantID string) <-chan struct{} {
	mine := &watch{tenantID, make(chan struct{}, 1)}
	w.add(keys, mine)
	context.AfterFunc(ctx, func() { w.remove(keys, mine) })
	return mine.changed
}

// AfterEnd calls fn once the actor's credential was taken back, unless ctx ends first: an API token that counts no more, or one of
// another kind that was withdrawn. That a credential expires is the caller's to see.
func (d *Decider) AfterEnd(ctx context.Context, a Actor, fn func()) {
	switch {
	case a.Credential != "":
		go d.afterRevocation(ctx, a, d.watchers.watch(ctx, []string{tokenKey(a.Credential)}, ""), fn)
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

func (w *watchers) add(keys []string, mine *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string]map[*watch]struct{}{}
	}
	for _, key := range keys {
		if w.byKey[key] == nil {
			w.byKey[key] = map[*watch]struct{}{}
		}
		w.byKey[key][mine] = struct{}{}
	}
}

func (w *watchers) remove(keys []string, mine *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.byKey[key], mine)
		if len(w.byKey[key]) == 0 {
			delete(w.byKey, key)
		}
	}
}

// tell is for a change in one tenant, or with "" in any.
func (w *watchers) tell(key, tenantID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.byKey[key] {
		if one.tenantID == tenantID || one.tenantID == "" || tenantID == "" {
			one.signal()
		}
	}
}

func (w *watchers) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.byKey {
		for one := range set {
			one.signal()
		}
	}
}

// signal never waits: a full channel holds a signal already.
func (w *watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
