package authz

import (
	"regexp"

	"better/compute/internal/problem"
	"better/compute/model"
)

var rolePattern = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,62}\z`)

// checkBinding adds an issue for each field that breaks its form. Whether the role exists is asked of the roles.
func checkBinding(issues *problem.Issues, prefix string, b model.RoleBinding) {
	if !validSubject(b.Subject) {
		issues.Add(prefix+"subject", "must be user:<name>, service:<name> or group:<name>, the name 1 to %d printable ASCII "+
			"characters without white space", maxSubjectName)
	}
	if _, ok := parseObject(b.Object); !ok {
		issues.Add(prefix+"object", "must be compute-fleet, compute-tenant/<tenantId>, compute-provider-account/<accountId> "+
			"or compute-pool/<poolId>")
	}
	if b.Effect != model.Allow && b.Effect != model.Deny {
		issues.Add(prefix+"effect", "must be allow or deny")
	}
}

// checkRoleForm is for a role that need not exist any more: a binding that outlived it must be removable.
func checkRoleForm(issues *problem.Issues, role string) {
	if !rolePattern.MatchString(role) {
		issues.Add("role", "must match %s", rolePattern)
	}
}
