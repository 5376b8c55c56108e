package model

// ProviderAccount connects a tenant to a provider. Config holds secret references, never values.
type ProviderAccount struct {
	ID        string `bun:"id,pk" json:"id"`
	TenantID  string `bun:"tenant_id" json:"tenantId"`
	Provider  string `bun:"provider" json:"provider"`
	Name      string `bun:"name" json:"name"`
	Config    JSON   `bun:"config,type:jsonb" json:"config"`
	Version   int64  `bun:"version" json:"version"`
	CreatedBy string `bun:"created_by" json:"-"`
	CreatedAt Time   `bun:"created_at" json:"createdAt"`
	UpdatedAt Time   `bun:"updated_at" json:"updatedAt"`

	Check *ProviderAccountCheck `bun:"last_check,type:jsonb" json:"-"` // not on REST; nil until somebody checks
}

// ProviderAccountCheck says how a check of an account's credentials ended.
type ProviderAccountCheck struct {
	OK      bool    `json:"ok"`
	Reason  *string `json:"reason"`
	Message string  `json:"message"`
	At      Time    `json:"at"`
}

// IsNode marks the type for GraphQL.
func (ProviderAccount) IsNode() {}

// ProviderAccountConnection is a page of accounts.
type ProviderAccountConnection = Connection[ProviderAccount]

// ProviderAccountEdge is an account in a page.
type ProviderAccountEdge = Edge[ProviderAccount]
