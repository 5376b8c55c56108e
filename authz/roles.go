package authz

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
	stringadapter "github.com/casbin/casbin/v2/persist/string-adapter"
)

//go:embed model.conf
var casbinModel string

//go:embed roles.csv
var casbinPolicy string

// Permission is something that a caller may be allowed to do.
type Permission string

// The permissions.
const (
	ProvidersRead   Permission = "compute:providers:read"
	ProvidersManage Permission = "compute:providers:manage"
	PoolsRead       Permission = "compute:pools:read"
	PoolsManage     Permission = "compute:pools:manage"
	IAMManage       Permission = "compute:iam:manage"
	AuditRead       Permission = "compute:audit:read"
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
	m, err := model.NewModelFromString(casbinModel)
	if err != nil {
		return nil, fmt.Errorf("reading the Casbin model: %w", err)
	}
	enforcer, err := casbin.NewEnforcer(m, stringadapter.NewAdapter(policy))
	if err != nil {
		return nil, fmt.Errorf("reading the roles: %w", err)
	}
	names, err := enforcer.GetAllSubjects()
	if err != nil {
		return nil, fmt.Errorf("listing the roles: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("reading the roles: there are none, which would deny everybody")
	}
	may := make(map[string]map[Permission]bool, len(names))
	for _, role := range names {
		may[role] = map[Permission]bool{}
		for _, p := range AllPermissions() {
			if may[role][p], err = enforcer.Enforce(role, string(p)); err != nil {
				return nil, fmt.Errorf("asking Casbin whether %s has %s: %w", role, p, err)
			}
		}
	}
	return &roles{may: may}, nil
}

// allows is false for a role that does not exist any more.
func (r *roles) allows(role string, p Permission) bool { return r.may[role][p] }

func (r *roles) exists(role string) bool { return r.may[role] != nil }

func (r *roles) names() []string { return slices.Sorted(maps.Keys(r.may)) }
