package model

// BootstrapStatus is a state of the bootstrap state machine.
type BootstrapStatus string

// The states; Joined and Failed are final.
const (
	Claiming    BootstrapStatus = "claiming"
	Identifying BootstrapStatus = "identifying"
	Preparing   BootstrapStatus = "preparing"
	Installing  BootstrapStatus = "installing"
	Installed   BootstrapStatus = "installed"
	Joined      BootstrapStatus = "joined"
	Failed      BootstrapStatus = "failed"
)

// BootstrapStatuses lists every state in the order of the state machine.
func BootstrapStatuses() []BootstrapStatus {
	return []BootstrapStatus{Claiming, Identifying, Preparing, Installing, Installed, Joined, Failed}
}

// Final reports whether the state is never left.
func (s BootstrapStatus) Final() bool { return s == Joined || s == Failed }

// CleanupStatus is what becomes of the machine of a failed run.
type CleanupStatus string

// The states of cleaning up.
const (
	CleanupNone      CleanupStatus = "none"
	CleanupPending   CleanupStatus = "pending"
	CleanupReleasing CleanupStatus = "releasing"
	CleanupReleased  CleanupStatus = "released"
	CleanupKept      CleanupStatus = "kept"
	CleanupBlocked   CleanupStatus = "blocked"
)

// CleanupStatuses lists every state of cleaning up.
func CleanupStatuses() []CleanupStatus {
	return []CleanupStatus{CleanupNone, CleanupPending, CleanupReleasing, CleanupReleased, CleanupKept, CleanupBlocked}
}

// FailureReason is why a run failed: a code, in upper case in every transport.
type FailureReason string

// The failure reasons.
const (
	OfferGone           FailureReason = "OFFER_GONE"
	OfferOutOfStock     FailureReason = "OUT_OF_STOCK"
	QuotaExceeded       FailureReason = "QUOTA_EXCEEDED"
	PaymentRequired     FailureReason = "PAYMENT_REQUIRED"
	CredentialsRejected FailureReason = "CREDENTIALS_REJECTED"
	SecretUnresolved    FailureReason = "SECRET_UNRESOLVED"
	ClaimTimeout        FailureReason = "CLAIM_TIMEOUT"
	MachineNotFound     FailureReason = "MACHINE_NOT_FOUND"
	MachineInUse        FailureReason = "MACHINE_IN_USE"
	IdentityMismatch    FailureReason = "IDENTITY_MISMATCH"
	RebootFailed        FailureReason = "REBOOT_FAILED"
	SSHUnreachable      FailureReason = "SSH_UNREACHABLE"
	SSHAuthFailed       FailureReason = "SSH_AUTH_FAILED"
	HostKeyChanged      FailureReason = "HOST_KEY_CHANGED"
	ClockSkew           FailureReason = "CLOCK_SKEW"
	InstallFailed       FailureReason = "INSTALL_FAILED"
	InstallTimeout      FailureReason = "INSTALL_TIMEOUT"
	JoinTimeout         FailureReason = "JOIN_TIMEOUT"
	Cancelled           FailureReason = "CANCELLED"
	InternalFailure     FailureReason = "INTERNAL"
)

// FailureReasons lists every reason, in the order of the documentation.
func FailureReasons() []FailureReason {
	return []FailureReason{
		OfferGone, OfferOutOfStock, QuotaExceeded, PaymentRequired, CredentialsRejected, SecretUnresolved, ClaimTimeout,
		MachineNotFound, MachineInUse, IdentityMismatch, RebootFailed, SSHUnreachable, SSHAuthFailed, HostKeyChanged,
		ClockSkew, InstallFailed, InstallTimeout, JoinTimeout, Cancelled, InternalFailure,
	}
}

// ClaimUncertain is the wait reason of a run whose order has an unknown outcome.
const ClaimUncertain = "CLAIM_UNCERTAIN"

// BootstrapFailure says why and how a run failed. LogTail has at most 40 lines.
type BootstrapFailure struct {
	Reason  FailureReason `json:"reason"`
	Message string        `json:"message"`
	LogTail []string      `json:"logTail"`
}

// Bootstrap is the run by which one machine becomes a host of a pool, as callers see it.
type Bootstrap struct {
	ID         string            `bun:"id,pk" json:"id"`
	TenantID   string            `bun:"tenant_id" json:"tenantId"`
	AccountID  string            `bun:"account_id" json:"accountId"`
	PoolID     string            `bun:"pool_id" json:"poolId"`
	MachineID  *string           `bun:"machine_id" json:"machineId"`
	OfferID    *string           `bun:"offer_id" json:"offerId"`
	Status     BootstrapStatus   `bun:"status" json:"status"`
	Step       string            `bun:"step" json:"step"`
	WaitReason *string           `bun:"wait_reason" json:"waitReason"`
	Failure    *BootstrapFailure `bun:"failure,type:jsonb" json:"failure"`
	Cleanup    CleanupStatus     `bun:"cleanup" json:"cleanup"`
	Attempt    int               `bun:"attempt" json:"attempt"`
	HostID     *string           `bun:"host_id" json:"hostId"`
	CreatedAt  Time              `bun:"created_at" json:"createdAt"`
	UpdatedAt  Time              `bun:"updated_at" json:"updatedAt"`
	DeadlineAt *Time             `bun:"deadline_at" json:"deadlineAt"`
	JoinedAt   *Time             `bun:"joined_at" json:"joinedAt"`
	RetryOf    *string           `bun:"retry_of" json:"-"` // the failed run that it tries again; not on REST

	Siblings *Siblings[Bootstrap] `bun:"-" json:"-"` // nil for one that was read alone
}

// IsNode marks the type for GraphQL.
func (Bootstrap) IsNode() {}

// BootstrapConnection is a page of runs.
type BootstrapConnection = Connection[Bootstrap]

// BootstrapEdge is a run in a page.
type BootstrapEdge = Edge[Bootstrap]

// BootstrapTransition is a step from one state into the next; From is nil for the first.
type BootstrapTransition struct {
	From   *BootstrapStatus `bun:"from_status" json:"from"`
	To     BootstrapStatus  `bun:"to_status" json:"to"`
	At     Time             `bun:"at" json:"at"`
	Reason *string          `bun:"reason" json:"reason"`
	Until  *Time            `bun:"until,scanonly" json:"until"` // when it left To; nil while it is in it
}

// BootstrapClaim is what is known of a run's order.
type BootstrapClaim struct {
	OperationID string
	OfferID     string
	Price       *Price
	IntendedAt  *Time
	AttemptedAt *Time
	OrderRef    *string
	LastError   string

	Run *Bootstrap // whose order it is
}

// OrphanKind says which side has no owner.
type OrphanKind string

// The kinds of orphans.
const (
	OrphanNotOurs  OrphanKind = "not-ours"  // at the provider, with an operation id of ours, and nothing of ours owns it
	OrphanNotThere OrphanKind = "not-there" // ours, and not at the provider
)

// Orphan is a machine without an owner on one of the two sides.
type Orphan struct {
	ID          string     `bun:"id,pk" json:"id"`
	TenantID    string     `bun:"tenant_id" json:"tenantId"`
	AccountID   string     `bun:"account_id" json:"accountId"`
	Kind        OrphanKind `bun:"kind" json:"kind"`
	MachineID   string     `bun:"machine_id" json:"machineId"`
	OperationID *string    `bun:"operation_id" json:"operationId"`
	BootstrapID *string    `bun:"bootstrap_id" json:"bootstrapId"`
	HostID      *string    `bun:"host_id" json:"hostId"`
	Price       *Price     `bun:"price,type:jsonb" json:"price"`
	FirstSeenAt Time       `bun:"first_seen_at" json:"firstSeenAt"`
	LastSeenAt  Time       `bun:"last_seen_at" json:"lastSeenAt"`
	ResolvedAt  *Time      `bun:"resolved_at" json:"resolvedAt"`

	ReleaseAskedAt   *Time  `bun:"release_asked_at" json:"-"`
	ReleaseAskedBy   string `bun:"release_asked_by" json:"-"`
	ReleaseAt        *Time  `bun:"release_at" json:"-"`
	ReleaseAttempt   int    `bun:"release_attempt" json:"-"`
	ReleaseError     string `bun:"release_error" json:"-"`
	ReleaseDroppedAt *Time  `bun:"release_dropped_at" json:"-"`
}

// Release is a person's word that the machine is to be given back; nil before there is one.
func (o *Orphan) Release() *OrphanRelease {
	if o.ReleaseAskedAt == nil {
		return nil
	}
	return &OrphanRelease{
		RequestedAt: *o.ReleaseAskedAt, RequestedBy: o.ReleaseAskedBy, Attempts: o.ReleaseAttempt, LastError: o.ReleaseError,
		NextTryAt: o.ReleaseAt, DroppedAt: o.ReleaseDroppedAt,
	}
}

// OrphanConnection is a page of orphans.
type OrphanConnection = Connection[Orphan]

// OrphanEdge is an orphan in a page.
type OrphanEdge = Edge[Orphan]

// BootstrapStatusChange is one message of a stream of transitions.
type BootstrapStatusChange struct {
	Cursor    string           `json:"cursor"`
	Bootstrap *Bootstrap       `json:"bootstrap"`
	From      *BootstrapStatus `json:"from"`
	To        BootstrapStatus  `json:"to"`
	At        Time             `json:"at"`
}
