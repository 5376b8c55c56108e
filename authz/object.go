package authz

import (
	"strings"

	"better/compute/internal/id"
	"better/compute/internal/input"
)

// Kind is the kind of an item that belongs to a tenant and can be granted by itself.
type Kind string

// The kinds of items.
const (
	ProviderAccounts Kind = "compute-provider-account"
	Pools            Kind = "compute-pool"
)

const (
	fleetName    = "compute-fleet"
	tenantPrefix = "compute-tenant/"
)

// Object is a place in the tree fleet > tenant > item; a grant on it holds for all below it. Make one with Fleet,
// Tenant, ProviderAccount or Pool. It is a name: whether the thing exists is not known here.
type Object struct {
	tenantID string // empty for the fleet
	kind     Kind   // empty for the fleet and for a tenant
	id       string
}

// Fleet is the root of the tree.
func Fleet() Object { return Object{} }

// Tenant is all that belongs to a tenant.
func Tenant(tenantID string) Object { return Object{tenantID: tenantID} }

// ProviderAccount is one account, as the caller named it: tenant and id.
func ProviderAccount(tenantID, accountID string) Object {
	return Object{tenantID: tenantID, kind: ProviderAccounts, id: accountID}
}

// Pool is one pool, as the caller named it: tenant and id.
func Pool(tenantID, poolID string) Object {
	return Object{tenantID: tenantID, kind: Pools, id: poolID}
}

// TenantID is the tenant that the object is in, empty for the fleet.
func (o Object) TenantID() string { return o.tenantID }

// String is the object's name in bindings and errors: "compute-fleet", "compute-tenant/<t>",
// "compute-provider-account/<id>" or "compute-pool/<id>".
func (o Object) String() string {
	switch {
	case o.kind != "":
		return itemName(o.kind, o.id)
	case o.tenantID != "":
		return tenantPrefix + o.tenantID
	default:
		return fleetName
	}
}

// chain is the object and all above it, narrow to wide. An item whose tenant is not known hangs below the fleet.
func (o Object) chain() []string {
	chain := make([]string, 0, 3)
	if o.kind != "" {
		chain = append(chain, itemName(o.kind, o.id))
	}
	if o.tenantID != "" {
		chain = append(chain, tenantPrefix+o.tenantID)
	}
	return append(chain, fleetName)
}

func itemName(k Kind, id string) string { return string(k) + "/" + id }

// parseObject reads the name of an object. An item comes without its tenant, which its name does not tell.
func parseObject(name string) (Object, bool) {
	if name == fleetName {
		return Fleet(), true
	}
	if tenantID, ok := strings.CutPrefix(name, tenantPrefix); ok {
		return Tenant(tenantID), input.ValidTenant(tenantID)
	}
	if accountID, ok := strings.CutPrefix(name, string(ProviderAccounts)+"/"); ok {
		return ProviderAccount("", accountID), id.Valid("pacct", accountID)
	}
	if poolID, ok := strings.CutPrefix(name, string(Pools)+"/"); ok {
		return Pool("", poolID), id.Valid("pool", poolID)
	}
	return Object{}, false
}
