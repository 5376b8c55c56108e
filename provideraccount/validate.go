package provideraccount

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

const idPrefix = "pacct"

// Bounds of a page.
const (
	defaultPage = 50
	maxPage     = 100
)

// The forms are anchored to the whole text: `$` alone would let a new line through.
var (
	tenantForm   = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	providerForm = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,63}\z`)
	nameForm     = regexp.MustCompile(`\A[a-z0-9][a-z0-9._-]{0,62}\z`)
	keyForm      = regexp.MustCompile(`\A[A-Za-z0-9._~:/+=-]{1,128}\z`)
	gpuModelForm = regexp.MustCompile(`\A[A-Za-z0-9-]{1,32}\z`)
)

func checkTenant(issues *problem.Issues, tenantID string) {
	if !tenantForm.MatchString(tenantID) {
		issues.Add("tenantId", "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

func checkPlace(issues *problem.Issues, tenantID, accountID string) {
	checkTenant(issues, tenantID)
	if !id.Valid(idPrefix, accountID) {
		issues.Add("accountId", "must match ^pacct_[0-9a-hjkmnp-tv-z]{26,52}$")
	}
}

func checkProvider(issues *problem.Issues, name string) {
	if !providerForm.MatchString(name) {
		issues.Add("provider", "must match ^[a-z][a-z0-9-]{0,63}$")
	}
}

func checkCreate(in model.CreateProviderAccountInput) error {
	var issues problem.Issues
	checkTenant(&issues, in.TenantID)
	checkProvider(&issues, in.Provider)
	if !nameForm.MatchString(in.Name) {
		issues.Add("name", "must match ^[a-z0-9][a-z0-9._-]{0,62}$")
	}
	if in.IdempotencyKey != nil && !keyForm.MatchString(*in.IdempotencyKey) {
		issues.Add("idempotencyKey", "must match ^[A-Za-z0-9._~:/+=-]{1,128}$")
	}
	return issues.Err()
}

func checkUpdate(in model.UpdateProviderAccountInput) error {
	var issues problem.Issues
	checkPlace(&issues, in.TenantID, in.AccountID)
	if in.IfVersion != nil && *in.IfVersion < 1 {
		issues.Add("ifVersion", "must be at least 1")
	}
	return issues.Err()
}

func checkQuery(issues *problem.Issues, q *model.OfferQuery) {
	if q == nil {
		return
	}
	if q.Kind != nil && *q.Kind != model.Metal && *q.Kind != model.VPS {
		issues.Add("query.kind", "must be metal or vps")
	}
	if q.Region != nil && !nameForm.MatchString(*q.Region) {
		issues.Add("query.region", "must match ^[a-z0-9][a-z0-9._-]{0,62}$")
	}
	if q.GpuModel != nil && !gpuModelForm.MatchString(*q.GpuModel) {
		issues.Add("query.gpuModel", "must match ^[A-Za-z0-9-]{1,32}$")
	}
	checkRange(issues, "query.minGpus", q.MinGpus, 0, 64)
	checkRange(issues, "query.minVcpu", q.MinVcpu, 0, 1024)
	checkRange(issues, "query.minMemoryGiB", q.MinMemoryGiB, 0, 16384)
}

func checkRange(issues *problem.Issues, path string, n *int, low, high int) {
	if n != nil && (*n < low || *n > high) {
		issues.Add(path, "must be from %d to %d", low, high)
	}
}

// page is what a PageInput asks for.
type page struct {
	first     int
	after     string // as given
	afterName string
}

func checkPage(issues *problem.Issues, first *int, after *string) page {
	p := page{first: defaultPage}
	checkRange(issues, "first", first, 1, maxPage)
	if first != nil {
		p.first = *first
	}
	if after == nil {
		return p
	}
	p.after = *after
	name, ok := decodeCursor(*after)
	if !ok {
		issues.Add("after", "must be the endCursor of an earlier page")
	}
	p.afterName = name
	return p
}

// cursor is the place of an account in the tenant's list.
type cursor struct {
	Name string `json:"name"`
}

func encodeCursor(a *model.ProviderAccount) string {
	b, _ := json.Marshal(cursor{a.Name}) // of one string
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (name string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return "", false
	}
	var c cursor
	if json.Unmarshal(b, &c) != nil {
		return "", false
	}
	return c.Name, nameForm.MatchString(c.Name)
}

// authenticated finds the caller; UNAUTHENTICATED without one, or with one whose credential has ended.
func authenticated(ctx context.Context) (authz.Actor, error) {
	actor, ok := authz.ActorFrom(ctx)
	if !ok || !actor.Expires.IsZero() && !time.Now().Before(actor.Expires) {
		return authz.Actor{}, problem.New(problem.Unauthenticated, "This needs a credential that has not expired.")
	}
	return actor, nil
}
