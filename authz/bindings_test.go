package authz

import (
	"testing"
	"time"

	"better/compute/model"
)

// cacheAt10 is a cache on a link that was proven at version 10, holding a subject.
func cacheAt10(now time.Time) *bindingCache {
	c := newBindingCache(10)
	c.restart(10, now)
	_, _, generation := c.get([]Subject{"user:a"}, now)
	c.put(map[Subject]bindingsOf{"user:a": {grants: map[string][]grant{"compute-fleet": {{role: "fleet-admin", effect: model.Allow}}}}}, generation)
	return c
}

func (c *bindingCache) holds(s Subject, now time.Time) bool {
	_, missing, _ := c.get([]Subject{s}, now)
	return len(missing) == 0
}

func TestCacheForgetsWhatItMayHaveMissed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name string
		do   func(c *bindingCache)
		at   time.Duration
		want bool
	}{
		{"nothing happens", func(*bindingCache) {}, 0, true},
		{"the proof is old", func(*bindingCache) {}, trust + 1, false},
		{"another proof", func(c *bindingCache) { c.prove(10, now.Add(trust)) }, 2 * trust, true},
		{"the next version is heard of", func(c *bindingCache) { c.heard(11) }, 0, true},
		{"an old version is heard of", func(c *bindingCache) { c.heard(10) }, 0, true},
		{"a version was missed", func(c *bindingCache) { c.heard(12) }, 0, false},
		{"the poll is behind", func(c *bindingCache) { c.heard(11); c.prove(10, now) }, 0, true},
		{"the poll is ahead", func(c *bindingCache) { c.prove(11, now) }, 0, false},
		{"its subject changed", func(c *bindingCache) { c.drop("user:a") }, 0, false},
		{"another subject changed", func(c *bindingCache) { c.drop("user:b") }, 0, true},
		{"all changed", func(c *bindingCache) { c.forget() }, 0, false},
		{"the link broke", func(c *bindingCache) { c.distrust() }, 0, false},
		{"the link stands again", func(c *bindingCache) { c.distrust(); c.restart(10, now) }, 0, false},
		{"the database was set back", func(c *bindingCache) { c.restart(3, now) }, 0, false},
	} {
		cache := cacheAt10(now)
		c.do(cache)
		if got := cache.holds("user:a", now.Add(c.at)); got != c.want {
			t.Errorf("%s: the cache answers = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTrustEndsWithinASecond(t *testing.T) {
	t.Parallel()
	// A proof is as old as the start of the poll that gave it, so this alone bounds what a decision can miss.
	if trust >= time.Second || trust < 2*pollInterval {
		t.Errorf("a proof is trusted for %v", trust)
	}
}

func TestCacheRefusesWhatAChangeOvertook(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, change := range map[string]func(c *bindingCache){
		"same subject": func(c *bindingCache) { c.drop("user:b") }, "all": (*bindingCache).forget, "gap": func(c *bindingCache) { c.heard(20) },
		"poll": func(c *bindingCache) { c.prove(20, now) }, "reconnect": func(c *bindingCache) { c.distrust(); c.restart(10, now) },
	} {
		c := cacheAt10(now)
		_, _, generation := c.get([]Subject{"user:b"}, now)
		change(c)
		c.put(map[Subject]bindingsOf{"user:b": {}}, generation)
		if c.holds("user:b", now) {
			t.Errorf("%s: what was read before the change was stored after it", name)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := cacheAt10(now)
	many := map[Subject]bindingsOf{}
	for i := range 20 {
		many["user:"+string(rune('b'+i))] = bindingsOf{}
	}
	_, _, generation := c.get(nil, now)
	c.put(many, generation)
	if got := c.entries.Len(); got != 10 {
		t.Errorf("%d entries in a cache of 10", got)
	}
}
