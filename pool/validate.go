package pool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"time"

	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

const (
	idPrefix        = "pool"
	accountIDPrefix = "pacct"
	instanceIDPart  = "inst"
)

// Bounds of a page.
const (
	defaultPage = 50
	maxPage     = 100
)

var (
	tenantForm = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	nameForm   = regexp.MustCompile(`\A[a-z0-9][a-z0-9._-]{0,62}\z`)
)

func checkTenant(issues *problem.Issues, tenantID string) {
	if !tenantForm.MatchString(tenantID) {
		issues.Add("tenantId", "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

func checkPlace(issues *problem.Issues, tenantID, poolID string) {
	checkTenant(issues, tenantID)
	if !id.Valid(idPrefix, poolID) {
		issues.Add("poolId", "must match ^pool_[0-9a-hjkmnp-tv-z]{26,52}$")
	}
}

func checkCreate(in model.CreatePoolInput) error {
	var issues problem.Issues
	checkTenant(&issues, in.TenantID)
	if !nameForm.MatchString(in.Name) {
		issues.Add("name", "must match ^[a-z0-9][a-z0-9._-]{0,62}$")
	}
	switch in.Class {
	case model.ClassVPSHost, model.ClassMetalHost, model.ClassVPS, model.ClassMetal, model.ClassContainer:
	default:
		issues.Add("class", "must be vps-host, metal-host, vps, metal or container")
	}
	if in.Agent != model.AgentBCD && in.Agent != model.AgentNone {
		issues.Add("agent", "must be bcd or none")
	}
	if in.AccountID != nil && !id.Valid(accountIDPrefix, *in.AccountID) {
		issues.Add("accountId", "must match ^pacct_[0-9a-hjkmnp-tv-z]{26,52}$")
	}
	return issues.Err()
}

// page is what a PageInput asks for.
type page struct {
	first  int
	after  string // as given
	cursor cursor
}

func checkPage(issues *problem.Issues, first *int, after *string) page {
	p := page{first: defaultPage}
	if first != nil {
		p.first = *first
	}
	if p.first < 1 || p.first > maxPage {
		issues.Add("first", "must be from 1 to %d", maxPage)
	}
	if after == nil {
		return p
	}
	p.after = *after
	c, ok := decodeCursor(*after)
	if !ok {
		issues.Add("after", "must be the endCursor of an earlier page")
	}
	p.cursor = c
	return p
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
	return c, nameForm.MatchString(c.Name) && id.Valid(idPrefix, c.ID)
}

// authenticated gives UNAUTHENTICATED without a caller, or with one whose credential has ended.
func authenticated(ctx context.Context) error {
	actor, ok := authz.ActorFrom(ctx)
	if !ok || !actor.Expires.IsZero() && !time.Now().Before(actor.Expires) {
		return problem.New(problem.Unauthenticated, "This needs a credential that has not expired.")
	}
	return nil
}
