package model

// PoolClass says what a pool is made of.
type PoolClass string

// The pool classes.
const (
	ClassVPSHost   PoolClass = "vps-host"
	ClassMetalHost PoolClass = "metal-host"
	ClassVPS       PoolClass = "vps"
	ClassMetal     PoolClass = "metal"
	ClassContainer PoolClass = "container"
)

// PoolAgent says what runs on a pool's machines.
type PoolAgent string

// The agents.
const (
	AgentBCD  PoolAgent = "bcd"
	AgentNone PoolAgent = "none"
)

// Pool is a tenant's group of hosts.
type Pool struct {
	ID         string    `bun:"id,pk" json:"id"`
	TenantID   string    `bun:"tenant_id" json:"tenantId"`
	Name       string    `bun:"name" json:"name"`
	Class      PoolClass `bun:"class" json:"class"`
	Agent      PoolAgent `bun:"agent" json:"agent"`
	AccountID  *string   `bun:"account_id" json:"accountId"`
	ArchivedAt *Time     `bun:"archived_at" json:"archivedAt"`
	CreatedAt  Time      `bun:"created_at" json:"createdAt"`

	Siblings *Siblings[Pool] `bun:"-" json:"-"` // nil for one that was read alone
}

// IsNode marks the type for GraphQL.
func (Pool) IsNode() {}

// PoolConnection is a page of pools.
type PoolConnection = Connection[Pool]

// PoolEdge is a pool in a page.
type PoolEdge = Edge[Pool]

// Instance is a machine of a pool, made through the pool's account. A deleted one keeps its history and drops the account.
type Instance struct {
	ID        string  `bun:"id,pk" json:"id"`
	TenantID  string  `bun:"tenant_id" json:"tenantId"`
	PoolID    string  `bun:"pool_id" json:"poolId"`
	AccountID *string `bun:"account_id" json:"accountId"`
	Name      string  `bun:"name" json:"name"`
	CreatedAt Time    `bun:"created_at" json:"createdAt"`
	DeletedAt *Time   `bun:"deleted_at" json:"deletedAt"`
}
