package authz

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"better/compute/model"
)

const (
	cachedSubjects = 50_000
	cachedTokens   = 50_000

	// How long a proof of freshness lasts. A change is followed within a second even if its notification was lost and the
	// link hangs: what the cache says is never older than this.
	trust = 500 * time.Millisecond
)

// bindingsOf are the bindings of one subject. Never changed once they can be seen.
type bindingsOf struct {
	grants map[string][]grant // by the name of the object
	places places
}

// grant holds the role as it was defined when the binding was read, so that no change of the role meets another time's bindings.
type grant struct {
	role       *role // nil: it does not exist
	effect     model.BindingEffect
	itemTenant string // whose the object is, when that is an item that was there
}

// on says what the bindings on that very object say about the permission.
func (b bindingsOf) on(object string, p Permission) decision {
	result := undecided
	for _, g := range b.grants[object] {
		if !g.role.allows(p) {
			continue
		}
		if g.effect != model.Allow {
			return denied
		}
		result = granted
	}
	return result
}

// token is what there is to know about an API token: until when it counts. The zero value never did.
type token struct {
	counts bool
	ends   time.Time // by this process's clock; zero: never
}

// newToken takes how many seconds, by the database's clock, were left of the token at some time after now; nil when it is revoked or
// not there.
func newToken(now time.Time, secondsLeft *float64) token {
	switch {
	case secondsLeft == nil:
		return token{}
	case *secondsLeft > math.MaxInt64/float64(time.Second):
		return token{counts: true}
	default:
		return token{counts: true, ends: now.Add(time.Duration(*secondsLeft * float64(time.Second)))}
	}
}

func (t token) live(now time.Time) bool { return t.counts && (t.ends.IsZero() || now.Before(t.ends)) }

// tokenKey names a token as the notifications do. No subject has this form.
func tokenKey(credential string) string { return "token:" + credential }

// question is whom a decision is about: subjects, and an API token or "".
type question struct {
	subjects   []Subject
	credential string
}

// snapshot is what one statement read to answer a question, and so what held at one moment.
type snapshot struct {
	version  int64 // of the policy
	bindings map[Subject]bindingsOf
	token    token
}

// standing is what decides about one caller, all of it as it was at one moment.
type standing struct {
	held  []bindingsOf
	token token
}

func (s snapshot) standing(q question) standing {
	answer := standing{held: make([]bindingsOf, len(q.subjects)), token: s.token}
	for i, subject := range q.subjects {
		answer.held[i] = s.bindings[subject]
	}
	return answer
}

// policyCache holds the bindings of the subjects, and the tokens, that were asked for last. It answers only while somebody proves that it
// has heard of every change, and of every version that anybody has seen; else each read goes to the database. All that it holds is from one version of the policy, the one it
// has heard of: it takes nothing from a later one, which would answer together with what has not been dropped yet, and then
// allow what was allowed at no time.
type policyCache struct {
	mu         sync.Mutex
	subjects   *simplelru.LRU[Subject, bindingsOf]
	tokens     *simplelru.LRU[string, token] // by tokenKey
	generation uint64                        // moves with each drop: what was read before a drop must not be stored after it
	version    int64                         // the policy version up to which every change was heard of
	provenAt   time.Time                     // zero: not at all
	reached    int64                         // the newest policy version that anybody has seen
	reachedAt  time.Time                     // when that was
}

func newPolicyCache(subjects, tokens int) *policyCache {
	bySubject, err := simplelru.NewLRU[Subject, bindingsOf](subjects, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	byKey, err := simplelru.NewLRU[string, token](tokens, nil)
	if err != nil {
		panic(err)
	}
	return &policyCache{subjects: bySubject, tokens: byKey}
}

// get answers the whole question or nothing of it; put takes the generation with what was read instead.
func (c *policyCache) get(q question, now time.Time) (answer standing, ok bool, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(q, now)
}

// at is get for whoever knows the version of the policy to be that one.
func (c *policyCache) at(version int64, q question, now time.Time) (answer standing, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != version {
		return standing{}, false
	}
	answer, ok, _ = c.find(q, now)
	return answer, ok
}

func (c *policyCache) find(q question, now time.Time) (answer standing, ok bool, generation uint64) {
	if c.provenAt.IsZero() || now.Sub(c.provenAt) > trust || c.version < c.reached {
		return standing{}, false, c.generation
	}
	if q.credential != "" {
		if answer.token, ok = c.tokens.Get(tokenKey(q.credential)); !ok {
			return standing{}, false, c.generation
		}
	}
	answer.held = make([]bindingsOf, len(q.subjects))
	for i, s := range q.subjects {
		if answer.held[i], ok = c.subjects.Get(s); !ok {
			return standing{}, false, c.generation
		}
	}
	return answer, true, c.generation
}

func (c *policyCache) put(q question, read snapshot, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A change overtook the read, which may have seen the time before it; or the read saw one that is yet to be heard of.
	if generation != c.generation || read.version != c.version {
		return
	}
	for s, b := range read.bindings {
		c.subjects.Add(s, b)
	}
	if q.credential != "" {
		c.tokens.Add(tokenKey(q.credential), read.token)
	}
}

// drop forgets a subject whose bindings changed, or a token.
func (c *policyCache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.subjects.Remove(key)
	c.tokens.Remove(key)
}

// heard takes the version that ends the notifications of one change. It reports false, having forgotten everything,
// when the notifications of an earlier version never came.
func (c *policyCache) heard(version int64) bool {
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
func (c *policyCache) prove(version int64, start time.Time) bool {
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

// reach says that somebody has seen the version. Until every change up to it was heard of, each read goes to the database; nothing is
// forgotten, since the notifications mostly are on their way.
func (c *policyCache) reach(version int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.reached {
		c.reached, c.reachedAt = version, now
	}
}

// restart begins anew on a fresh link: nothing that was held before it counts.
func (c *policyCache) restart(version int64, start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge()
	c.version, c.provenAt = version, start
	if version < c.reached && start.After(c.reachedAt) { // the database was set back
		c.reached = version
	}
}

// distrust sends every read to the database until the next restart.
func (c *policyCache) distrust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.provenAt = time.Time{}
}

func (c *policyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge()
}

func (c *policyCache) purge() {
	c.generation++
	c.subjects.Purge()
	c.tokens.Purge()
}
