package bootstrap

import (
	"regexp"
	"slices"
	"time"

	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

var (
	namePattern = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`) // idempotency keys, machines and offers
	codePattern = regexp.MustCompile(`\A[A-Z][A-Z_]{0,63}\z`)      // what a run waits for
)

// checklist gathers what is wrong with the fields of a call.
type checklist struct{ issues problem.Issues }

func (c *checklist) err() error { return c.issues.Err() }

func (c *checklist) tenant(v string) {
	input.Tenant(&c.issues, v)
}

func (c *checklist) optionalTenant(v *string) {
	if v != nil {
		c.tenant(*v)
	}
}

// inTenant checks an id, if there is one, that names something together with a tenant.
func (c *checklist) inTenant(path, prefix string, tenantID, v *string) {
	c.optionalID(path, prefix, v)
	if v != nil && tenantID == nil {
		c.issues.Add(path, "takes tenantId")
	}
}

func (c *checklist) id(path, prefix, v string) {
	input.ID(&c.issues, path, prefix, v)
}

func (c *checklist) optionalID(path, prefix string, v *string) {
	input.OptionalID(&c.issues, path, prefix, v)
}

func (c *checklist) name(path, v string) {
	if !namePattern.MatchString(v) {
		c.issues.Add(path, "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

func (c *checklist) optionalName(path string, v *string) {
	if v != nil {
		c.name(path, *v)
	}
}

func (c *checklist) statuses(v []model.BootstrapStatus) {
	for _, s := range v {
		if _, ok := Transitions()[s]; !ok {
			c.issues.Add("statuses", "must be states of a bootstrap")
			return
		}
	}
}

// maxReasons is how many reasons one list may be narrowed to.
const maxReasons = 100

func (c *checklist) waitReasons(v []string) {
	if len(v) > maxReasons {
		c.issues.Add("waitReasons", "must be at most %d", maxReasons)
		return
	}
	for _, reason := range v {
		if !codePattern.MatchString(reason) {
			c.issues.Add("waitReasons", "must match ^[A-Z][A-Z_]{0,63}$")
			return
		}
	}
}

func (c *checklist) cleanups(v []model.CleanupStatus) {
	for _, s := range v {
		if !slices.Contains(model.CleanupStatuses(), s) {
			c.issues.Add("cleanups", "must be states of a cleanup")
			return
		}
	}
}

func (c *checklist) start(in model.BootstrapMachineInput) {
	c.plan(PlanInput{TenantID: in.TenantID, AccountID: in.AccountID, PoolID: in.PoolID, MachineID: in.MachineID, OfferID: in.OfferID})
	c.name("idempotencyKey", in.IdempotencyKey)
}

func (c *checklist) plan(in PlanInput) {
	c.tenant(in.TenantID)
	c.id("accountId", "pacct", in.AccountID)
	c.id("poolId", "pool", in.PoolID)
	c.optionalName("machineId", in.MachineID)
	c.optionalName("offerId", in.OfferID)
	if (in.MachineID == nil) == (in.OfferID == nil) {
		c.issues.Add("machineId", "give exactly one of machineId and offerId")
	}
}

func (c *checklist) retry(in model.RetryBootstrapInput) {
	c.tenant(in.TenantID)
	c.id("bootstrapId", "boot", in.BootstrapID)
	c.name("idempotencyKey", in.IdempotencyKey)
}

func (c *checklist) resolve(in model.ResolveClaimInput) {
	c.tenant(in.TenantID)
	c.id("bootstrapId", "boot", in.BootstrapID)
	c.optionalName("machineId", in.MachineID)
	if in.NothingOrdered != nil && !*in.NothingOrdered {
		c.issues.Add("nothingOrdered", "must be true when it is given")
	}
	if (in.MachineID == nil) == (in.NothingOrdered == nil) {
		c.issues.Add("machineId", "give exactly one of machineId and nothingOrdered")
	}
}

// place is that of a run in a list: newest first.
type place struct {
	CreatedMicro int64  `json:"c"`
	ID           string `json:"i"`
}

func (c place) createdAt() time.Time { return time.UnixMicro(c.CreatedMicro) }

func placeOf(b *model.Bootstrap) place { return place{CreatedMicro: b.CreatedAt.UnixMicro(), ID: b.ID} }
