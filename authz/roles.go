package authz

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/casbin/casbin/v2"
	casbinmodel "github.com/casbin/casbin/v2/model"
	stringadapter "github.com/casbin/casbin/v2/persist/string-adapter"

	"better/compute/internal/problem"
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

// roles is Casbin's answer to "may this role do that" for every pair there is. It is asked once, before anybody sees the
// result, and never again: Casbin's own caches outlive a removed rule, and its enforcer does not bear a reload beside a
// decision. So this value does not change; a new set of roles is a new value.
type roles struct {
	may map[string]map[Permission]bool
}

func loadRoles(policy string) (*roles, error) {
	m, err := casbinmodel.NewModelFromString(modelText)
	if err != nil {
		return nil, fmt.Errorf("reading the Casbin model: %w", err)
	}
	enforcer, err := casbin.NewEnforcer(m, stringadapter.NewAdapter(policy))
	if err != nil {
		return nil, fmt.Errorf("reading the roles: %w", err)
	}
	rules, err := enforcer.GetPolicy()
	if err != nil {
		return nil, fmt.Errorf("listing the roles: %w", err)
	}
	if len(rules) == 0 {
		return nil, errors.New("reading the roles: there are none, which would deny everybody")
	}
	may := map[string]map[Permission]bool{}
	for _, rule := range rules {
		if role := rule[0]; may[role] == nil {
			if may[role], err = askCasbin(enforcer, role); err != nil {
				return nil, err
			}
		}
	}
	return &roles{may: may}, nil
}

func askCasbin(enforcer *casbin.Enforcer, role string) (map[Permission]bool, error) {
	answers := map[Permission]bool{}
	for _, p := range AllPermissions() {
		yes, err := enforcer.Enforce(role, string(p))
		if err != nil {
			return nil, fmt.Errorf("asking Casbin whether %s has %s: %w", role, p, err)
		}
		answers[p] = yes
	}
	return answers, nil
}

// allows is false for a role that does not exist any more.
func (r *roles) allows(role string, p Permission) bool { return r.may[role][p] }

// checkRole adds an issue when there is no such role.
func (r *roles) checkRole(issues *problem.Issues, prefix, role string) {
	if r.may[role] == nil {
		issues.Add(prefix+"role", "must be one of %s", strings.Join(slices.Sorted(maps.Keys(r.may)), ", "))
	}
}
