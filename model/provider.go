package model

// MachineKind tells a whole server from a virtual one.
type MachineKind string

// The kinds of machine.
const (
	Metal MachineKind = "metal"
	VPS   MachineKind = "vps"
)

// Availability tells whether an offer can be had now.
type Availability string

// The degrees of availability.
const (
	Available           Availability = "available"
	Limited             Availability = "limited"
	OutOfStock          Availability = "out_of_stock"
	AvailabilityUnknown Availability = "unknown"
)

// ClaimMode says how a driver finds again what it may have ordered.
type ClaimMode string

// The claim modes.
const (
	ClaimToken      ClaimMode = "token"
	ClaimUniqueName ClaimMode = "unique-name"
	ClaimLabel      ClaimMode = "label"
	ClaimLocal      ClaimMode = "local"
	ClaimNone       ClaimMode = "none"
)

// ProviderCapabilities is what a driver can do.
type ProviderCapabilities struct {
	Offers    bool      `json:"offers"`
	Machines  bool      `json:"machines"`
	Order     bool      `json:"order"`
	Bootstrap bool      `json:"bootstrap"`
	Release   bool      `json:"release"`
	Prices    bool      `json:"prices"`
	LiveStock bool      `json:"liveStock"`
	ClaimMode ClaimMode `json:"claimMode"`
}

// Provider is what callers see of a driver's manifest.
type Provider struct {
	Name         string                `json:"name"`
	DisplayName  string                `json:"displayName"`
	ConfigSchema JSON                  `json:"configSchema"`
	SecretFields []string              `json:"secretFields"`
	Capabilities *ProviderCapabilities `json:"capabilities"`
}

// Disk is a number of equal disks. Media is nvme, ssd, hdd or unknown.
type Disk struct {
	SizeGB int64  `json:"sizeGB"`
	Count  int    `json:"count"`
	Media  string `json:"media"`
}

// GPU is a number of equal GPUs. MemoryGiB is that of each, nil when not known.
type GPU struct {
	Model     string   `json:"model"`
	Vendor    string   `json:"vendor"`
	Count     int      `json:"count"`
	MemoryGiB *float64 `json:"memoryGiB"`
}

// Price is a price as the provider states it: decimal strings, nil where it states none.
type Price struct {
	Hourly      *string `json:"hourly"`
	Monthly     *string `json:"monthly"`
	Setup       *string `json:"setup"`
	Currency    string  `json:"currency"`
	TaxIncluded bool    `json:"taxIncluded"`
}

// Offer is a machine type in one region.
type Offer struct {
	ID             string       `json:"id"`
	Kind           MachineKind  `json:"kind"`
	Region         string       `json:"region"`
	ProviderRegion string       `json:"providerRegion"`
	Name           string       `json:"name"`
	Arch           *string      `json:"arch"`
	VCPU           *int         `json:"vcpu"`
	MemoryGiB      *float64     `json:"memoryGiB"`
	Disks          []*Disk      `json:"disks"`
	GPU            *GPU         `json:"gpu"`
	Price          *Price       `json:"price"`
	Availability   Availability `json:"availability"`
	ObservedAt     Time         `json:"observedAt"`
}

// Machine is one machine of an account at the provider.
type Machine struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Kind      MachineKind `json:"kind"`
	Region    string      `json:"region"`
	Status    string      `json:"status"`
	Addresses []string    `json:"addresses"`
	OfferID   *string     `json:"offerId"`
	InUse     bool        `json:"inUse,omitempty"` // no driver knows: whoever lists machines for the API says so
}
