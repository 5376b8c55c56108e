package apitoken

import (
	"time"
	"unicode"
	"unicode/utf8"

	"better/compute/authz"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

const maxDescription = 200

// place is that of a token in a list: newest first.
type place struct {
	CreatedMicro int64  `json:"c"`
	ID           string `json:"i"`
}

func (p place) createdAt() time.Time { return time.UnixMicro(p.CreatedMicro) }

func placeOf(t *model.APIToken) place { return place{CreatedMicro: t.CreatedAt.UnixMicro(), ID: t.ID} }

// owner is the object that rights over the tokens are decided on.
func owner(tenantID *string) authz.Object {
	if tenantID == nil {
		return authz.Fleet()
	}
	return authz.Tenant(*tenantID)
}

// subjectOf names the service. No tenant and no name has a slash, so a tenant's service is never the fleet's, nor another tenant's.
func subjectOf(tenantID *string, name string) authz.Subject {
	if tenantID == nil {
		return "service:" + name
	}
	return "service:" + *tenantID + "/" + name
}

func checkOwner(issues *problem.Issues, tenantID *string) {
	if tenantID != nil {
		input.Tenant(issues, *tenantID)
	}
}

// checkNew judges everything but the end, which the database's clock decides on.
func checkNew(issues *problem.Issues, tenantID *string, name, description string) {
	checkOwner(issues, tenantID)
	input.Name(issues, "name", name)
	if !utf8.ValidString(description) || utf8.RuneCountInString(description) > maxDescription || hasControl(description) {
		issues.Add("description", "must be at most %d characters, without control characters", maxDescription)
	}
}

func hasControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}
