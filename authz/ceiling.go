package authz

import (
	"maps"
	"slices"
)

// ceiling is what a caller may give: what it holds on an object and on everything below it. Whoever administers the fleet gives
// what it holds there, whatever it is denied further down: who is at the mercy of a tenant's administrators cannot put them right.
type ceiling struct {
	held  []bindingsOf
	below map[string]map[Permission]Object // by the name of an object: something below it on which the caller is denied that
}

// newCeiling looks at each binding once, since anybody who may bind can make the caller many denials.
func newCeiling(held []bindingsOf) ceiling {
	c := ceiling{held: held, below: map[string]map[Permission]Object{}}
	for _, h := range held {
		for _, name := range slices.Sorted(maps.Keys(h.grants)) {
			for _, p := range AllPermissions() {
				if h.on(name, p) == denied {
					c.deny(h.place(name).named, p)
				}
			}
		}
	}
	return c
}

func (c ceiling) deny(o Object, p Permission) {
	for _, above := range o.chain()[1:] {
		if c.below[above] == nil {
			c.below[above] = map[Permission]Object{}
		}
		if first, found := c.below[above][p]; !found || o.String() < first.String() {
			c.below[above][p] = o
		}
	}
}

// lacks finds what the caller does not hold of the permissions; nil when it holds them all.
func (c ceiling) lacks(at place, permissions []Permission) *shortfall {
	fleet := administersFleet(c.held)
	for _, p := range permissions {
		if fleet && decide(c.held, p, Fleet()) == granted {
			continue
		}
		if decide(c.held, p, at.decided) != granted {
			return &shortfall{p, at.named}
		}
		if o, found := c.below[at.named.String()][p]; found {
			return &shortfall{p, o}
		}
	}
	return nil
}

// administersFleet reports whether the caller holds compute:iam:manage on the fleet itself.
func administersFleet(held []bindingsOf) bool { return decide(held, IAMManage, Fleet()) == granted }

// place is that of an object that the subject is bound on.
func (b bindingsOf) place(name string) place {
	o, _ := parseObject(name)
	return placed(o, b.grants[name][0].itemTenant)
}
