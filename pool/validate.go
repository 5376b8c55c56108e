package pool

import (
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

const (
	idPrefix         = "pool"
	accountIDPrefix  = "pacct"
	instanceIDPrefix = "inst"
)

func checkPlace(issues *problem.Issues, tenantID, poolID string) {
	input.Tenant(issues, tenantID)
	input.ID(issues, "poolId", idPrefix, poolID)
}

func checkCreate(in model.CreatePoolInput) error {
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	input.Name(&issues, "name", in.Name)
	switch in.Class {
	case model.ClassVPSHost, model.ClassMetalHost, model.ClassVPS, model.ClassMetal, model.ClassContainer:
	default:
		issues.Add("class", "must be vps-host, metal-host, vps, metal or container")
	}
	if in.Agent != model.AgentBCD && in.Agent != model.AgentNone {
		issues.Add("agent", "must be bcd or none")
	}
	input.OptionalID(&issues, "accountId", accountIDPrefix, in.AccountID)
	return issues.Err()
}

// place is that of a pool in the tenant's list. Archived pools can share a name.
type place struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

func placeOf(p *model.Pool) place { return place{p.Name, p.ID} }
