package authz

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
)

// Effect is whether a binding gives or takes.
type Effect string

// The effects. A deny beats every allow for the permissions of its role.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Binding gives a role to a subject on an object and all below it, or takes it away.
type Binding struct {
	Subject Subject `bun:"subject"`
	Role    string  `bun:"role"`
	Object  string  `bun:"object"`
	Effect  Effect  `bun:"effect"`
}

// GrantRoleInput names a binding to make. An empty Effect is Allow.
type GrantRoleInput struct {
	Subject Subject
	Role    string
	Object  string
	Effect  Effect
}

// RevokeRoleInput names a binding to remove. An empty Effect is Allow.
type RevokeRoleInput struct {
	Subject Subject
	Role    string
	Object  string
	Effect  Effect
}

// GrantRole makes the binding, for a caller who holds compute:iam:manage and every permission of the role on the object.
// INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
func (d *Decider) GrantRole(ctx context.Context, in GrantRoleInput) (Binding, error) {
	return Binding{}, errors.ErrUnsupported
}

// RevokeRole removes the binding and reports whether there was one, for a caller who holds compute:iam:manage on the object.
// INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN or UNAVAILABLE. Idempotent.
func (d *Decider) RevokeRole(ctx context.Context, in RevokeRoleInput) (bool, error) {
	return false, errors.ErrUnsupported
}

var _ = bun.Ident("")
