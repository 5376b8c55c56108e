package model

// AuditOutcome is how an action ended.
type AuditOutcome string

// The outcomes.
const (
	AuditAllowed  AuditOutcome = "allowed"
	AuditDenied   AuditOutcome = "denied"
	AuditReplayed AuditOutcome = "replayed" // asked for again, nothing changed
)

// AuditEvent is one row of the audit log. TenantID is nil for what belongs to no tenant; Sequence and Hash are nil until the row is chained.
type AuditEvent struct {
	ID        string       `bun:"id" json:"id"`
	At        Time         `bun:"at" json:"at"`
	TenantID  *string      `bun:"tenant_id" json:"tenantId"`
	Actor     string       `bun:"actor" json:"actor"`
	Action    string       `bun:"action" json:"action"`
	Object    string       `bun:"object" json:"object"`
	Outcome   AuditOutcome `bun:"outcome" json:"outcome"`
	RequestID string       `bun:"request_id" json:"requestId"`
	Details   JSON         `bun:"details" json:"details"`
	Sequence  *int64       `bun:"seq" json:"sequence"`
	Hash      *string      `bun:"hash" json:"hash"`
}

// AuditEventConnection is a page of audit events.
type AuditEventConnection = Connection[AuditEvent]

// AuditEventEdge is an audit event in a page.
type AuditEventEdge = Edge[AuditEvent]
