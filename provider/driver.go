// Package provider owns what every driver must be: its manifest, its methods, the classes of its errors, and the
// registry that a server is built with.
//
// It refuses to know accounts, tenants, the database or the bootstrap state machine. The invariant: no driver method waits
// for hardware or repeats a paid call; each does one step and says what it saw.
package provider

import (
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"time"

	"better/compute/model"
)

// Driver makes clients for accounts of one provider. A Driver is safe for concurrent use.
type Driver interface {
	// Manifest never changes while the process lives.
	Manifest() Manifest
	// Open makes a client for one account. It makes no call to the provider and resolves no secret. Config has passed the manifest's
	// schema; what that cannot say is refused here, with InvalidConfig, and then no account is stored with it.
	Open(ctx context.Context, account Account) (Client, error)
}

// Account is what a driver gets to know of a provider account.
type Account struct {
	// ID names the account in the driver's own bookkeeping; it means nothing to the provider.
	ID string
	// Config is the account's config; secret fields hold references.
	Config json.RawMessage
	// Secret resolves a reference that stands in Config. It is called at the time of use and its result is never kept. An error
	// is an *Error of class SecretUnresolved.
	Secret func(ctx context.Context, reference string) (string, error)
	// Inventory keeps book of taken machines for drivers whose claim mode is local; nil for all others.
	Inventory Inventory
}

// Inventory keeps book of which machines of one account are taken, for providers that have no ordering API.
type Inventory interface {
	// Taken lists the machines that cannot be had: claimed, in a live bootstrap, or hosts, and those of keyed that somebody has through another
	// account.
	Taken(ctx context.Context, keyed []KeyedMachine) (map[string]bool, error)
	// Claimed is the machine that the operation has taken; empty when it has none.
	Claimed(ctx context.Context, operationID string) (machineID string, err error)
	// Take takes the first of the machines that is free for the operation, those whose last bootstrap failed after all others, and is idempotent
	// by operation. It gives an *Error of class OutOfStock when none is free.
	Take(ctx context.Context, operationID string, machines []KeyedMachine) (machineID string, err error)
	// Drop gives back what the operation took, if anything.
	Drop(ctx context.Context, operationID string) error
}

// KeyedMachine is a machine of an account, with its MachineKey.
type KeyedMachine struct{ MachineID, Key string }

// MachineFree is the status of a machine that Order would take.
const MachineFree = "free"

// Client speaks to a provider for one version of one account. Every method is safe for concurrent use, returns when ctx
// ends, and reports failures as *Error.
type Client interface {
	// Check makes the cheapest authorized read. Where the claim mode is local that is a login on the machines.
	Check(ctx context.Context) error
	// Offers lists every offer, unfiltered and in any order.
	Offers(ctx context.Context) ([]*model.Offer, error)
	// Machines lists every machine of the account, in any order. Where the claim mode is local it is that of Order, and those that
	// can be had have the status MachineFree.
	Machines(ctx context.Context) ([]*model.Machine, error)
	Close() error
}

// Bootstrapper is a Client that can turn machines into hosts. Capabilities.Bootstrap promises it.
type Bootstrapper interface {
	Client
	// MachineKey names the machine uniquely in the world, whichever account reaches it. It makes no call to the provider.
	// The key has no secret in it.
	MachineKey(machineID string) (string, error)
	// Identify reads who the machine is. NotFound when the account has no such machine; Unavailable while it cannot
	// be told yet (no address, still delivering).
	Identify(ctx context.Context, machineID string) (*Identity, error)
	// Prepare takes the machine a step towards being installable and says whether it is. Repeating it is harmless.
	Prepare(ctx context.Context, machineID string) (*Preparation, error)
	// Install delivers the agent and starts it. It returns a reference to poll, which may be done already. A repeat with a
	// higher generation supersedes what an earlier one delivered.
	Install(ctx context.Context, machineID string, payload Payload) (installRef string, err error)
	// InstallStatus tells how far an install is.
	InstallStatus(ctx context.Context, machineID, installRef string) (*InstallStatus, error)
	// Uninstall stops the agent on a machine that is kept, so far as the driver can; best effort.
	Uninstall(ctx context.Context, machineID string) error
}

// Orderer is a Client that can claim machines for offers. Capabilities.Order promises it.
type Orderer interface {
	Client
	// FindClaim looks for what the operation has ordered. It returns nil without an error when there is nothing (yet: the
	// manifest's ListLag says how long that may mean nothing).
	FindClaim(ctx context.Context, operationID string) (*Claim, error)
	// Order makes exactly one paid call, which carries the operation id in the way of the claim mode. After a time-out, a reset or
	// an answer that cannot be read it gives UnknownOutcome: what was ordered must then be looked for, never ordered again. Errors of what
	// goes before that call are NotSent.
	Order(ctx context.Context, order Order) (*Claim, error)
	// Release gives the operation's machine back, and is idempotent: a machine that is gone is released. It refuses to touch a machine
	// that does not carry the operation id.
	Release(ctx context.Context, operationID, machineID string) error
}

// Claimant is an Orderer that can tell of all machines which operation ordered each. It is what finds a machine that nobody knows
// of any more. A driver whose claim mode is local has no use for it.
type Claimant interface {
	Orderer
	// Claims lists every machine of the account that carries an operation id, in any order.
	Claims(ctx context.Context) ([]OwnedMachine, error)
}

// OwnedMachine is a machine with the operation id that it carries.
type OwnedMachine struct {
	OperationID string
	MachineID   string
}

var operationForm = regexp.MustCompile(`\Abcd-[0-9a-hjkmnp-tv-z]{26,52}\z`)

// IsOperationID reports whether a name or label is an operation id of this server, or of another one like it.
func IsOperationID(s string) bool { return operationForm.MatchString(s) }

// Order is what to order.
type Order struct {
	// OperationID matches ^[a-z0-9-]{1,63}$, so that it can be a host name, a label or a client token; IsOperationID knows the server's.
	OperationID string
	OfferID     string
}

// ClaimState tells how far an order is.
type ClaimState string

// The states of a claim.
const (
	// ClaimPending: ordered, not delivered.
	ClaimPending ClaimState = "pending"
	// ClaimReady: the machine is there.
	ClaimReady ClaimState = "ready"
	// ClaimFailed: the provider gave the order up. Claim.Err says why, and nothing is to be released.
	ClaimFailed ClaimState = "failed"
)

// Claim is what is known of an order.
type Claim struct {
	State ClaimState
	// MachineID matches ^[A-Za-z0-9._:-]{1,128}$; empty while there is none.
	MachineID string
	// OrderRef is the provider's own name for the order, for people; may be empty.
	OrderRef string
	// Err is set on ClaimFailed.
	Err *Error
}

// Identity is who a machine is. Empty fields are not known.
type Identity struct {
	Serial      string   `json:"serial,omitempty"`
	OSMachineID string   `json:"osMachineId,omitempty"`
	MACs        []string `json:"macs,omitempty"` // of its network cards
	Addresses   []string `json:"addresses,omitempty"`
	// SSHHostKey is the fingerprint "SHA256:..." that later connections are pinned to.
	SSHHostKey string        `json:"sshHostKey,omitempty"`
	Arch       string        `json:"arch,omitempty"`
	CPUs       int           `json:"cpus,omitempty"`
	MemoryMiB  int64         `json:"memoryMiB,omitempty"`
	Disks      []*model.Disk `json:"disks,omitempty"`
	GPUs       []*model.GPU  `json:"gpus,omitempty"`
}

// RealSerial drops what makers leave in the place of a serial number.
func RealSerial(s string) string {
	switch strings.ToLower(strings.Trim(s, " .")) {
	case "", "0", "none", "n/a", "not specified", "not available", "default string", "system serial number", "to be filled by o.e.m", "0123456789":
		return ""
	}
	return s
}

// Preparation tells whether a machine can be installed.
type Preparation struct {
	Ready bool
	// Step says what is being done, for people; Wait is how long to wait before asking again when not Ready.
	Step string
	Wait time.Duration
	// BootID tells one boot from the next, where known.
	BootID string
	// ClockOffset is the machine's clock less ours, where it was measured.
	ClockOffset *time.Duration
}

// Payload is what Install delivers.
type Payload struct {
	Generation int
	// AgentBinary opens the bcd binary for an architecture (amd64, arm64).
	AgentBinary func(arch string) (io.ReadCloser, error)
	// JoinURL is the agent listener: https://host:port.
	JoinURL string
	// CAPin is what the agent verifies the listener with.
	CAPin string
	// Token is the join token: it goes into a file of mode 0600 and nowhere else.
	Token string
}

// InstallState tells how far an install is.
type InstallState string

// The states of an install.
const (
	InstallRunning   InstallState = "running"
	InstallSucceeded InstallState = "succeeded"
	InstallFailed    InstallState = "failed"
)

// InstallStatus is how far an install is. Log has its last lines, without secrets.
type InstallStatus struct {
	State    InstallState
	ExitCode int
	Log      []string
}
