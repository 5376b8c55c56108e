package model

// Host is a machine whose agent has joined.
type Host struct {
	ID           string `bun:"id,pk" json:"id"`
	TenantID     string `bun:"tenant_id" json:"tenantId"`
	PoolID       string `bun:"pool_id" json:"poolId"`
	BootstrapID  string `bun:"bootstrap_id" json:"bootstrapId"`
	AccountID    string `bun:"account_id" json:"accountId"`
	MachineID    string `bun:"machine_id" json:"machineId"`
	JoinedAt     Time   `bun:"joined_at" json:"joinedAt"`
	LastSeenAt   Time   `bun:"last_seen_at" json:"lastSeenAt"`
	AgentVersion string `bun:"agent_version" json:"agentVersion"`
	// CertificateNotAfter comes from the newest of the host's certificates, not from a column.
	CertificateNotAfter *Time `bun:"certificate_not_after,scanonly" json:"certificateNotAfter"`
	RemovedAt           *Time `bun:"removed_at" json:"removedAt"`
}

// IsNode marks the type for GraphQL.
func (Host) IsNode() {}

// HostConnection is a page of hosts.
type HostConnection = Connection[Host]

// HostEdge is a host in a page.
type HostEdge = Edge[Host]
