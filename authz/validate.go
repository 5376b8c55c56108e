package authz

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

var rolePattern = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,62}\z`)

const maxDescription = 200

// checkBinding adds an issue for each field that breaks its form. Whether the role exists is asked of the roles.
func checkBinding(issues *problem.Issues, prefix string, b model.RoleBinding) {
	checkSubject(issues, prefix, b.Subject)
	if _, ok := parseObject(b.Object); !ok {
		issues.Add(prefix+"object", "must be compute-fleet, compute-tenant/<tenantId>, compute-provider-account/<accountId> "+
			"or compute-pool/<poolId>")
	}
	if b.Effect != model.Allow && b.Effect != model.Deny {
		issues.Add(prefix+"effect", "must be allow or deny")
	}
}

func checkSubject(issues *problem.Issues, prefix string, s Subject) {
	if !validSubject(s) {
		issues.Add(prefix+"subject", "must be user:<name>, service:<name> or group:<name>, the name 1 to %d printable ASCII "+
			"characters without white space", maxSubjectName)
	}
}

// tenantOf finds the tenant that a service belongs to: those named "service:<tenant>/<name>" act with that tenant's API tokens.
func tenantOf(s Subject) (Object, bool) {
	name, isService := strings.CutPrefix(s, servicePrefix)
	tenantID, _, owned := strings.Cut(name, "/")
	return Tenant(tenantID), isService && owned && input.ValidTenant(tenantID)
}

// ServiceTenant is the tenant that a service belongs to, whose administrators make as many of those as they like: what is counted for each of them
// is counted for the tenant. Empty for other subjects.
func ServiceTenant(s Subject) string {
	if tenant, owned := tenantOf(s); owned {
		return tenant.TenantID()
	}
	return ""
}

// checkRevoke judges a binding by its form alone: one that outlived its role must be removable.
func checkRevoke(b model.RoleBinding) error {
	var issues problem.Issues
	checkBinding(&issues, "", b)
	if !rolePattern.MatchString(b.Role) {
		issues.Add("role", "must match %s", rolePattern)
	}
	return issues.Err()
}

// checkGrant judges a binding that is to be made, with a role that is there now.
func (r *roles) checkGrant(ctx context.Context, idb bun.IDB, b model.RoleBinding) error {
	var issues problem.Issues
	checkBinding(&issues, "", b)
	if r.builtIn[b.Role] == nil {
		defined, err := selectRoleNames(ctx, idb)
		if err != nil {
			return err
		}
		checkRole(&issues, "", b.Role, slices.Concat(r.builtInNames(), defined))
	}
	return issues.Err()
}

// checkRole adds an issue when the role is none of those.
func checkRole(issues *problem.Issues, prefix, role string, known []string) {
	if !slices.Contains(known, role) {
		issues.Add(prefix+"role", "must be one of %s", strings.Join(known, ", "))
	}
}

// checkDefinition judges a role that is to be defined, and gives it with its permissions in the order of AllPermissions.
func (r *roles) checkDefinition(in model.DefineRoleInput) (model.Role, error) {
	var issues problem.Issues
	r.checkDefinable(&issues, in.Name)
	role := model.Role{Name: in.Name}
	if in.Description != nil {
		role.Description = *in.Description
	}
	if !utf8.ValidString(role.Description) || utf8.RuneCountInString(role.Description) > maxDescription ||
		strings.ContainsFunc(role.Description, unicode.IsControl) {
		issues.Add("description", "must be at most %d characters, none of them a control character", maxDescription)
	}
	if len(in.Permissions) == 0 {
		issues.Add("permissions", "must have at least one")
	}
	if all := len(AllPermissions()); len(in.Permissions) > all {
		issues.Add("permissions", "must be at most %d, each once", all)
		return role, issues.Err()
	}
	for i, p := range in.Permissions {
		path := fmt.Sprintf("permissions.%d", i)
		switch {
		case !slices.Contains(AllPermissions(), p):
			issues.Add(path, "must be one of %s", strings.Join(texts(AllPermissions()), ", "))
		case slices.Contains(in.Permissions[:i], p):
			issues.Add(path, "is there twice")
		}
	}
	for _, p := range AllPermissions() {
		if slices.Contains(in.Permissions, p) {
			role.Permissions = append(role.Permissions, p)
		}
	}
	return role, issues.Err()
}

// checkDefinable adds an issue when that is no name of a role that may be defined, changed or deleted.
func (r *roles) checkDefinable(issues *problem.Issues, name string) {
	switch {
	case !rolePattern.MatchString(name):
		issues.Add("name", "must match %s", rolePattern)
	case r.builtIn[name] != nil:
		issues.Add("name", "is that of a built-in role, which cannot be changed")
	}
}

func texts(permissions []Permission) []string {
	out := make([]string, len(permissions))
	for i, p := range permissions {
		out[i] = string(p)
	}
	return out
}
