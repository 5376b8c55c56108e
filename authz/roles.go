package authz

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/casbin/casbin/v2"
	casbinmodel "github.com/casbin/casbin/v2/model"
	stringadapter "github.com/casbin/casbin/v2/persist/string-adapter"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"better/compute/model"
)

//go:embed model.conf
var modelText string

//go:embed roles.csv
var policyText string

// Permission is something that a caller may be allowed to do.
type Permission = model.Permission

// The permissions.
const (
	ProvidersRead   = model.ProvidersRead
	ProvidersManage = model.ProvidersManage
	PoolsRead       = model.PoolsRead
	PoolsManage     = model.PoolsManage
	IAMManage       = model.IAMManage
	AuditRead       = model.AuditRead
)

// AllPermissions lists every permission, in the order of the documentation.
func AllPermissions() []Permission {
	return []Permission{ProvidersRead, ProvidersManage, PoolsRead, PoolsManage, IAMManage, AuditRead}
}

// role is Casbin's answer to "may this role do that" for every permission there is, for one definition of the role. It is asked
// once, before anybody sees the result, and never again: Casbin's own caches outlive a removed rule, and its enforcer does not
// bear a reload beside a decision. So this value does not change; a role that is defined anew is a new value.
type role struct {
	may     map[Permission]bool
	defined []string // the definition, as it is stored; nil for a built-in role
}

// allows is false for the nil role, which stands for one that does not exist any more.
func (r *role) allows(p Permission) bool { return r != nil && r.may[p] }

// permissions are those that the role allows, in the order of AllPermissions.
func (r *role) permissions() []Permission {
	return slices.DeleteFunc(AllPermissions(), func(p Permission) bool { return !r.allows(p) })
}

// roles finds the role of a name and a definition.
type roles struct {
	builtIn map[string]*role // never changed

	mu      sync.Mutex
	defined *simplelru.LRU[string, *role] // the definition that was seen last, by name
}

func loadRoles(policy string) (*roles, error) {
	enforcer, err := newEnforcer(policy)
	if err != nil {
		return nil, err
	}
	rules, err := enforcer.GetPolicy()
	if err != nil {
		return nil, fmt.Errorf("listing the roles: %w", err)
	}
	if len(rules) == 0 {
		return nil, errors.New("reading the roles: there are none, which would deny everybody")
	}
	defined, err := simplelru.NewLRU[string, *role](2*maxDefinedRoles, nil)
	if err != nil {
		return nil, err
	}
	r := &roles{builtIn: map[string]*role{}, defined: defined}
	for _, rule := range rules {
		name := rule[0]
		if r.builtIn[name] != nil {
			continue
		}
		may, err := askCasbin(enforcer, name)
		if err != nil {
			return nil, err
		}
		r.builtIn[name] = &role{may: may}
	}
	return r, nil
}

func newEnforcer(policy string) (*casbin.Enforcer, error) {
	m, err := casbinmodel.NewModelFromString(modelText)
	if err != nil {
		return nil, fmt.Errorf("reading the Casbin model: %w", err)
	}
	enforcer, err := casbin.NewEnforcer(m, stringadapter.NewAdapter(policy))
	if err != nil {
		return nil, fmt.Errorf("reading the roles: %w", err)
	}
	return enforcer, nil
}

func askCasbin(enforcer *casbin.Enforcer, name string) (map[Permission]bool, error) {
	may := map[Permission]bool{}
	for _, p := range AllPermissions() {
		yes, err := enforcer.Enforce(name, string(p))
		if err != nil {
			return nil, fmt.Errorf("asking Casbin whether %s has %s: %w", name, p, err)
		}
		may[p] = yes
	}
	return may, nil
}

// find gives the role of that name: the built-in one, or what the definition says; nil when there is neither.
func (r *roles) find(name string, definition []string) (*role, error) {
	if found := r.builtIn[name]; found != nil || definition == nil {
		return found, nil
	}
	r.mu.Lock()
	found, _ := r.defined.Get(name)
	r.mu.Unlock()
	if found != nil && slices.Equal(found.defined, definition) {
		return found, nil
	}
	made, err := judge(name, definition)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.defined.Add(name, made)
	return made, nil
}

// judge asks Casbin about one definition, aside from everything else. A permission that this version does not know is passed over.
func judge(name string, definition []string) (*role, error) {
	var policy strings.Builder
	for _, p := range AllPermissions() {
		if slices.Contains(definition, string(p)) {
			fmt.Fprintf(&policy, "p, %s, %s, allow\n", name, p)
		}
	}
	made := &role{defined: slices.Clone(definition)}
	if policy.Len() == 0 {
		return made, nil // Casbin reads no empty policy
	}
	enforcer, err := newEnforcer(policy.String())
	if err != nil {
		return nil, err
	}
	made.may, err = askCasbin(enforcer, name)
	return made, err
}

// builtInNames are sorted.
func (r *roles) builtInNames() []string { return slices.Sorted(maps.Keys(r.builtIn)) }
