package bootstrap

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"time"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
)

var (
	tenantPattern = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	namePattern   = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`) // idempotency keys, machines and offers
)

const (
	defaultPage = 50
	maxPage     = 100
)

// input gathers what is wrong with the fields of a call.
type input struct{ issues problem.Issues }

func (i *input) err() error { return i.issues.Err() }

func (i *input) tenant(v string) {
	if !tenantPattern.MatchString(v) {
		i.issues.Add("tenantId", "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

func (i *input) id(path, prefix, v string) {
	if !id.Valid(prefix, v) {
		i.issues.Add(path, "must match ^%s_[0-9a-hjkmnp-tv-z]{26,52}$", prefix)
	}
}

func (i *input) optionalID(path, prefix string, v *string) {
	if v != nil {
		i.id(path, prefix, *v)
	}
}

func (i *input) name(path, v string) {
	if !namePattern.MatchString(v) {
		i.issues.Add(path, "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

func (i *input) optionalName(path string, v *string) {
	if v != nil {
		i.name(path, *v)
	}
}

// page reads the arguments of a page; without first it has 50 items.
func (i *input) page(first *int, after *string) page {
	p := page{first: defaultPage}
	if first != nil {
		p.first = *first
	}
	if p.first < 1 || p.first > maxPage {
		i.issues.Add("first", "must be 1 to %d", maxPage)
	}
	if after == nil {
		return p
	}
	c, ok := parsePlace(*after)
	if !ok {
		i.issues.Add("after", "must be a cursor from an earlier page")
	}
	p.after, p.afterText = c, *after
	return p
}

func (i *input) statuses(v []model.BootstrapStatus) {
	for _, s := range v {
		if _, ok := Transitions()[s]; !ok {
			i.issues.Add("statuses", "must be states of a bootstrap")
			return
		}
	}
}

func (i *input) start(in model.BootstrapMachineInput) {
	i.tenant(in.TenantID)
	i.id("accountId", "pacct", in.AccountID)
	i.id("poolId", "pool", in.PoolID)
	i.optionalName("machineId", in.MachineID)
	i.optionalName("offerId", in.OfferID)
	if (in.MachineID == nil) == (in.OfferID == nil) {
		i.issues.Add("machineId", "give exactly one of machineId and offerId")
	}
	i.name("idempotencyKey", in.IdempotencyKey)
}

func (i *input) resolve(in model.ResolveClaimInput) {
	i.tenant(in.TenantID)
	i.id("bootstrapId", "boot", in.BootstrapID)
	i.optionalName("machineId", in.MachineID)
	if in.NothingOrdered != nil && !*in.NothingOrdered {
		i.issues.Add("nothingOrdered", "must be true when it is given")
	}
	if (in.MachineID == nil) == (in.NothingOrdered == nil) {
		i.issues.Add("machineId", "give exactly one of machineId and nothingOrdered")
	}
}

// page is which part of a list to read.
type page struct {
	first     int
	after     *place
	afterText string
}

// place is that of a run in a list: newest first.
type place struct {
	CreatedMicro int64  `json:"c"`
	ID           string `json:"i"`
}

// maxMicro is the end of the year 9999; the database has no much later times.
const maxMicro = 253_402_300_799_999_999

func (c place) createdAt() time.Time { return time.UnixMicro(c.CreatedMicro) }

func cursorOf(b *model.Bootstrap) string {
	text, _ := json.Marshal(place{CreatedMicro: b.CreatedAt.UnixMicro(), ID: b.ID}) // cannot fail: a number and a string
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePlace(s string) (*place, bool) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, false
	}
	c := new(place)
	if err := json.Unmarshal(text, c); err != nil || !id.Valid("boot", c.ID) || c.CreatedMicro < 0 || c.CreatedMicro > maxMicro {
		return nil, false
	}
	return c, true
}
