package authz

import (
	"context"

	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Viewer tells the caller who it is. UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Viewer(ctx context.Context) (*model.Viewer, error) {
	actor, err := d.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	groups := actor.Groups
	if groups == nil {
		groups = []string{}
	}
	return &model.Viewer{Subject: actor.Subject, Groups: groups}, nil
}

// ViewerTenants tells the caller in which tenants it has any right, sorted; nil for one with a right on the fleet, who may name any.
// UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) ViewerTenants(ctx context.Context) ([]string, error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return nil, err
	}
	held, err := d.located(ctx)
	if err != nil {
		return nil, err
	}
	fleet, tenants := reach(held)
	if fleet {
		return nil, nil
	}
	return append([]string{}, tenants...), nil
}

// ViewerPermissions tells the caller what it may do: on the fleet, on a tenant, or on an account or pool of the tenant. The answer
// says nothing about whether any of them exists. INVALID_INPUT, UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) ViewerPermissions(ctx context.Context, tenantID, objectID *string) ([]Permission, error) {
	object, err := viewedObject(tenantID, objectID)
	if err != nil {
		return nil, err
	}
	return d.Permissions(ctx, object)
}

func viewedObject(tenantID, objectID *string) (Object, error) {
	var issues problem.Issues
	if tenantID != nil {
		input.Tenant(&issues, *tenantID)
	}
	if objectID != nil && tenantID == nil {
		issues.Add("tenantId", "is needed with objectId")
	}
	if objectID != nil && !id.Valid("pacct", *objectID) && !id.Valid("pool", *objectID) {
		issues.Add("objectId", "must be the id of a provider account or a pool")
	}
	switch err := issues.Err(); {
	case err != nil:
		return Object{}, err
	case tenantID == nil:
		return Fleet(), nil
	case objectID == nil:
		return Tenant(*tenantID), nil
	case id.Valid("pool", *objectID):
		return Pool(*tenantID, *objectID), nil
	default:
		return ProviderAccount(*tenantID, *objectID), nil
	}
}
