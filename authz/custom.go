package authz

import (
	"context"

	"better/compute/internal/problem"
	"better/compute/model"
)

// BindingsInput says which bindings to list: those on a tenant and its items, or with nil those on the fleet itself.
type BindingsInput struct {
	TenantID *string
	Subject  *string
	First    *int
	After    *string
}

// Roles lists every role.
func (d *Decider) Roles(_ context.Context) ([]*model.Role, error) {
	return nil, problem.New(problem.Internal, "")
}

// Bindings lists bindings.
func (d *Decider) Bindings(_ context.Context, _ BindingsInput) (*model.RoleBindingConnection, error) {
	return nil, problem.New(problem.Internal, "")
}

// DefineRole defines a role or changes it.
func (d *Decider) DefineRole(_ context.Context, _ model.DefineRoleInput) (*model.Role, error) {
	return nil, problem.New(problem.Internal, "")
}

// DeleteRole deletes a defined role and reports whether there was one.
func (d *Decider) DeleteRole(_ context.Context, _ model.DeleteRoleInput) (bool, error) {
	return false, problem.New(problem.Internal, "")
}
