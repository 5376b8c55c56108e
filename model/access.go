package model

// BindingEffect says whether a binding gives or takes.
type BindingEffect string

// The effects.
const (
	Allow BindingEffect = "allow"
	Deny  BindingEffect = "deny"
)

// RoleBinding is one role given to, or held back from, one subject on one object and everything below it.
type RoleBinding struct {
	Subject string        `bun:"subject,pk" json:"subject"`
	Role    string        `bun:"role,pk" json:"role"`
	Object  string        `bun:"object,pk" json:"object"`
	Effect  BindingEffect `bun:"effect,pk" json:"effect"`
}

// RoleBindingConnection is a page of bindings.
type RoleBindingConnection = Connection[RoleBinding]

// RoleBindingEdge is a binding in a page.
type RoleBindingEdge = Edge[RoleBinding]

// Role is a set of permissions with a name.
type Role struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Permissions []Permission `json:"permissions"`
	BuiltIn     bool         `json:"builtIn"`
}

// APIToken is a credential for a program, without the token itself. TenantID is nil for one of the fleet.
type APIToken struct {
	ID          string  `bun:"id,pk" json:"id"`
	TenantID    *string `bun:"tenant_id" json:"tenantId"`
	Name        string  `bun:"name" json:"name"`
	Subject     string  `bun:"subject" json:"subject"`
	Description string  `bun:"description" json:"description"`
	CreatedBy   string  `bun:"created_by" json:"createdBy"`
	CreatedAt   Time    `bun:"created_at" json:"createdAt"`
	ExpiresAt   *Time   `bun:"expires_at" json:"expiresAt"`
	LastUsedAt  *Time   `bun:"last_used_at" json:"lastUsedAt"`
	RevokedAt   *Time   `bun:"revoked_at" json:"revokedAt"`
}

// APITokenConnection is a page of API tokens.
type APITokenConnection = Connection[APIToken]

// APITokenEdge is an API token in a page.
type APITokenEdge = Edge[APIToken]

// Viewer is the caller of a request.
type Viewer struct {
	Subject string   `json:"subject"`
	Groups  []string `json:"groups"`
}

// Secret is a secret of the built-in store without its value.
type Secret struct {
	Name      string `bun:"name" json:"name"`
	CreatedAt Time   `bun:"created_at" json:"createdAt"`
	UpdatedAt Time   `bun:"updated_at" json:"updatedAt"`
}

// Permission is something that a caller may be allowed to do.
type Permission string

// The permissions.
const (
	ProvidersRead   Permission = "compute:providers:read"
	ProvidersManage Permission = "compute:providers:manage"
	PoolsRead       Permission = "compute:pools:read"
	PoolsManage     Permission = "compute:pools:manage"
	IAMManage       Permission = "compute:iam:manage"
	AuditRead       Permission = "compute:audit:read"
)
