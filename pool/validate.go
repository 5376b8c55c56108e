package pool

import (
	"encoding/base64"
	"encoding/json"

	"better/compute/internal/id"
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

// cursor is the place of a pool in the tenant's list. Archived pools can share a name.
type cursor struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

func encodeCursor(p *model.Pool) string {
	b, _ := json.Marshal(cursor{p.Name, p.ID}) // of two strings
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(b, &c) != nil {
		return cursor{}, false
	}
	return c, input.ValidName(c.Name) && id.Valid(idPrefix, c.ID)
}
