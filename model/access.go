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
