package authz

import (
	"testing"
	"time"
)

// cacheAt10 is a cache on a link that was proven at version 10, holding a subject.
func cacheAt10(now time.Time) *policyCache {
	c := newPolicyCache(10, 10)
	c.restart(10, now)
	q := question{subjects: []Subject{"user:a"}}
	_, _, generation := c.get(q, now)
	c.put(q, snapshot{version: 10, bindings: map[Subject]bindingsOf{"user:a": {}}}, generation)
	return c
}

func (c *policyCache) holds(s Subject, now time.Time) bool {
	_, ok, _ := c.get(question{subjects: []Subject{s}}, now)
	return ok
}

func TestCacheForgetsWhatItMayHaveMissed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name string
		do   func(c *policyCache)
		at   time.Duration
		want bool
	}{
		{"nothing happens", func(*policyCache) {}, 0, true},
		{"the proof is old", func(*policyCache) {}, trust + 1, false},
		{"another proof", func(c *policyCache) { c.prove(10, now.Add(trust)) }, 2 * trust, true},
		{"the next version is heard of", func(c *policyCache) { c.heard(11) }, 0, true},
		{"an old version is heard of", func(c *policyCache) { c.heard(10) }, 0, true},
		{"a version was missed", func(c *policyCache) { c.heard(12) }, 0, false},
		{"the poll is behind", func(c *policyCache) { c.heard(11); c.prove(10, now) }, 0, true},
		{"the poll is ahead", func(c *policyCache) { c.prove(11, now) }, 0, false},
		{"its subject changed", func(c *policyCache) { c.drop("user:a") }, 0, false},
		{"another subject changed", func(c *policyCache) { c.drop("user:b") }, 0, true},
		{"all changed", func(c *policyCache) { c.forget() }, 0, false},
		{"the link broke", func(c *policyCache) { c.distrust() }, 0, false},
		{"the link stands again", func(c *policyCache) { c.distrust(); c.restart(10, now) }, 0, false},
		{"the database was set back", func(c *policyCache) { c.restart(3, now) }, 0, false},
		{"the version was seen", func(c *policyCache) { c.reach(10, now) }, 0, true},
		{"an old version was seen", func(c *policyCache) { c.reach(9, now) }, 0, true},
		{"a later version was seen", func(c *policyCache) { c.reach(11, now) }, 0, false},
		{"it was seen before it was proven once more", func(c *policyCache) { c.reach(11, now); c.prove(10, now) }, 0, false},
		{"it was seen before its changes were heard of", func(c *policyCache) { c.reach(11, now); c.drop("user:b"); c.heard(11) }, 0, true},
		{"it was seen before one of two changes was heard of", func(c *policyCache) { c.reach(12, now); c.drop("user:b"); c.heard(11) }, 0, false},
	} {
		cache := cacheAt10(now)
		c.do(cache)
		if got := cache.holds("user:a", now.Add(c.at)); got != c.want {
			t.Errorf("%s: the cache answers = %v, want %v", c.name, got, c.want)
		}
	}
}

// After a restore the versions that were seen before it mean nothing; one that was seen while the link began does.
func TestCacheAnswersAgainWhenTheDatabaseWasSetBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for start, want := range map[time.Time]bool{now: false, now.Add(1): true} {
		c := cacheAt10(now)
		c.reach(10, now)
		c.restart(3, start)
		_, _, generation := c.get(question{}, now)
		c.put(question{}, snapshot{version: 3, bindings: map[Subject]bindingsOf{"user:a": {}}}, generation)
		if got := c.holds("user:a", now); got != want {
			t.Errorf("a link that began %v after the version was seen: the cache answers = %v", start.Sub(now), got)
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
	for name, change := range map[string]func(c *policyCache){
		"same subject": func(c *policyCache) { c.drop("user:b") }, "all": (*policyCache).forget, "gap": func(c *policyCache) { c.heard(20) },
		"poll": func(c *policyCache) { c.prove(20, now) }, "reconnect": func(c *policyCache) { c.distrust(); c.restart(10, now) },
	} {
		c := cacheAt10(now)
		_, _, generation := c.get(question{}, now)
		change(c)
		c.put(question{}, snapshot{version: c.version, bindings: map[Subject]bindingsOf{"user:b": {}}}, generation)
		if c.holds("user:b", now) {
			t.Errorf("%s: what was read before the change was stored after it", name)
		}
	}
}

// The user's grant went with version 11, and what held the group back with 12. Read at 12, the group must not be kept beside the user
// of version 10: together they allow what was allowed at no time.
func TestCacheTakesNothingFromALaterVersion(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := cacheAt10(now)
	put := func(version int64) {
		_, _, generation := c.get(question{}, now)
		c.put(question{}, snapshot{version: version, bindings: map[Subject]bindingsOf{"group:g": {}}}, generation)
	}
	put(12)
	if c.holds("group:g", now) {
		t.Error("the cache holds two versions")
	}
	c.drop("user:a")
	c.heard(11)
	put(12)
	if c.holds("group:g", now) {
		t.Error("the cache holds a version that it has not heard of")
	}
	c.heard(12)
	put(12)
	if !c.holds("group:g", now) {
		t.Error("the cache does not hold the version that it has heard of")
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
	_, _, generation := c.get(question{}, now)
	c.put(question{}, snapshot{version: 10, bindings: many}, generation)
	if got := c.subjects.Len(); got != 10 {
		t.Errorf("%d entries in a cache of 10", got)
	}
}
