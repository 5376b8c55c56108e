package provideraccount

import (
	"regexp"

	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

const idPrefix = "pacct"

// The forms are anchored to the whole text: `$` alone would let a new line through.
var (
	providerForm = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,63}\z`)
	keyForm      = regexp.MustCompile(`\A[A-Za-z0-9._~:/+=-]{1,128}\z`)
	gpuModelForm = regexp.MustCompile(`\A[A-Za-z0-9-]{1,32}\z`)
)

func checkPlace(issues *problem.Issues, tenantID, accountID string) {
	input.Tenant(issues, tenantID)
	input.ID(issues, "accountId", idPrefix, accountID)
}

func checkProvider(issues *problem.Issues, name string) {
	if !providerForm.MatchString(name) {
		issues.Add("provider", "must match ^[a-z][a-z0-9-]{0,63}$")
	}
}

// CreateForm lists what is wrong with the form of an input of Create. Like the forms below it decides nothing: the method says the same
// before it decides.
func CreateForm(in model.CreateProviderAccountInput) problem.Issues {
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	checkProvider(&issues, in.Provider)
	input.Name(&issues, "name", in.Name)
	if in.IdempotencyKey != nil && !keyForm.MatchString(*in.IdempotencyKey) {
		issues.Add("idempotencyKey", "must match ^[A-Za-z0-9._~:/+=-]{1,128}$")
	}
	return issues
}

// ListForm is that of List.
func ListForm(in ListInput) problem.Issues {
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	return issues
}

// GetForm is that of Get.
func GetForm(in GetInput) problem.Issues {
	var issues problem.Issues
	checkPlace(&issues, in.TenantID, in.AccountID)
	return issues
}

// OffersForm is that of Offers.
func OffersForm(in OffersInput) problem.Issues {
	issues := GetForm(GetInput{TenantID: in.TenantID, AccountID: in.AccountID})
	checkQuery(&issues, in.Query)
	return issues
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
	if q.Region != nil {
		input.Name(issues, "query.region", *q.Region)
	}
	if q.GpuModel != nil && !gpuModelForm.MatchString(*q.GpuModel) {
		issues.Add("query.gpuModel", "must match ^[A-Za-z0-9-]{1,32}$")
	}
	input.Range(issues, "query.minGpus", q.MinGpus, 0, 64)
	input.Range(issues, "query.minVcpu", q.MinVcpu, 0, 1024)
	input.Range(issues, "query.minMemoryGiB", q.MinMemoryGiB, 0, 16384)
}

// placeOf is the place of an account in the tenant's list.
func placeOf(a *model.ProviderAccount) (name string) { return a.Name }
