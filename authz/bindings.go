package authz

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"better/compute/model"
)

const (
	cachedSubjects = 50_000

	// How long a proof of freshness lasts. A change is followed within a second even if its notification was lost and the
	// link hangs: what the cache says is never older than this.
	trust = 750 * time.Millisecond
)

// bindingsOf are the bindings of one subject. Never changed once they can be seen.
type bindingsOf struct {
	grants map[string][]grant // by the name of the object
	places places
}

type grant struct {
	role   string
	effect model.BindingEffect
}

// on says what the bindings on that very object say about the permission.
func (b bindingsOf) on(object string, p Permission, roles *roles) decision {
	result := undecided
	for _, g := range b.grants[object] {
		if !roles.allows(g.role, p) {
			continue
		}
		if g.effect != model.Allow {
			return denied
		}
		result = granted
	}
	return result
}

// bindingCache holds the bindings of the subjects that were asked for last. It answers only while somebody proves that it
// has heard of every change; else each read goes to the database.
type bindingCache struct {
	mu         sync.Mutex
	entries    *simplelru.LRU[Subject, bindingsOf]
	generation uint64    // moves with each drop: what was read before a drop must not be stored after it
	version    int64     // the policy version up to which every change was heard of
	provenAt   time.Time // zero: not at all
}

func newBindingCache(size int) *bindingCache {
	entries, err := simplelru.NewLRU[Subject, bindingsOf](size, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &bindingCache{entries: entries}
}

// get finds what is known and names what must be read; put takes the generation with what was read.
func (c *bindingCache) get(subjects []Subject, now time.Time) (held []bindingsOf, missing []Subject, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.provenAt.IsZero() || now.Sub(c.provenAt) > trust {
		return nil, subjects, c.generation
	}
	held = make([]bindingsOf, 0, len(subjects))
	for _, s := range subjects {
		if b, ok := c.entries.Get(s); ok {
			held = append(held, b)
		} else {
			missing = append(missing, s)
		}
	}
	return held, missing, c.generation
}

// current is the generation for what is about to be read.
func (c *bindingCache) current() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

func (c *bindingCache) put(loaded map[Subject]bindingsOf, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation {
		return // a change overtook the read, which may have seen the time before it
	}
	for s, b := range loaded {
		c.entries.Add(s, b)
	}
}

// drop forgets one subject, whose bindings changed.
func (c *bindingCache) drop(s Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.entries.Remove(s)
}

// heard takes the version that ends the notifications of one change. It reports false, having forgotten everything,
// when the notifications of an earlier version never came.
func (c *bindingCache) heard(version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version <= c.version {
		return true
	}
	complete := version == c.version+1
	if !complete {
		c.purge()
	}
	c.version = version
	return complete
}

// prove says that the database was at the version at some time after start. It reports false, having forgotten
// everything, when that is ahead of what was heard.
func (c *bindingCache) prove(version int64, start time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	complete := version <= c.version
	if !complete {
		c.purge()
		c.version = version
	}
	c.provenAt = start
	return complete
}

// restart begins anew on a fresh link: nothing that was held before it counts.
func (c *bindingCache) restart(version int64, start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge()
	c.version, c.provenAt = version, start
}

// distrust sends every read to the database until the next restart.
func (c *bindingCache) distrust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.provenAt = time.Time{}
}

func (c *bindingCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge()
}

func (c *bindingCache) purge() {
	c.generation++
	c.entries.Purge()
}
