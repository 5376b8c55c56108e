package authz

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit/journal"
	"better/compute/internal/problem"
	"better/compute/model"
)

const (
	// A list of roles is not paged.
	maxDefinedRoles = 100
	maxBlockers     = 20
)

// Roles lists every role, the built-in ones first, each by name. Any caller may read them. UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Roles(ctx context.Context) ([]*model.Role, error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return nil, err
	}
	return d.roles.list(ctx, d.db.DB)
}

func (r *roles) list(ctx context.Context, idb bun.IDB) ([]*model.Role, error) {
	var all []*model.Role
	for _, name := range r.builtInNames() {
		all = append(all, &model.Role{Name: name, Description: descriptions[name], Permissions: r.builtIn[name].permissions(), BuiltIn: true})
	}
	defined, err := selectRoles(ctx, idb)
	return append(all, defined...), err
}

// descriptions are those of the built-in roles.
var descriptions = map[string]string{
	"fleet-admin":      "Everything, on the fleet.",
	"tenant-admin":     "Everything, within a tenant.",
	"provider-manager": "Manages accounts and bootstraps; reads pools.",
	"provider-viewer":  "Reads accounts, bootstraps and pools.",
}

// DefineRole defines a role, or changes one for everybody who is bound to it, for a caller who holds compute:iam:manage on the
// fleet and, on the fleet and everywhere below it, each permission that the change gives to somebody: one more, to whom the role is
// given; one less, to whom it is held back from. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, INVALID_STATE when there
// are too many roles, or UNAVAILABLE. Idempotent.
func (d *Decider) DefineRole(ctx context.Context, in model.DefineRoleInput) (*model.Role, error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return nil, err
	}
	role, err := d.roles.checkDefinition(in)
	if err != nil {
		return nil, err
	}
	_, err = d.change(ctx, policyChange{
		lacks: func(ctx context.Context, idb bun.IDB, held []bindingsOf) (*shortfall, error) {
			return lacksToDefine(ctx, idb, held, role)
		},
		write: func(ctx context.Context, tx bun.Tx, actor Actor) (bool, error) {
			return define(ctx, tx, actor.Subject, role)
		},
	})
	if err != nil {
		return nil, err
	}
	return &role, nil
}

// DeleteRole deletes a defined role and reports whether there was one, for a caller who holds compute:iam:manage on the fleet.
// INVALID_INPUT (also for a built-in role), UNAUTHENTICATED, FORBIDDEN, INVALID_STATE while somebody is bound to it
// (details.blockers lists up to 20), or UNAVAILABLE. Idempotent.
func (d *Decider) DeleteRole(ctx context.Context, in model.DeleteRoleInput) (deleted bool, err error) {
	if _, err := d.Authenticated(ctx); err != nil {
		return false, err
	}
	var issues problem.Issues
	d.roles.checkDefinable(&issues, in.Name)
	if err := issues.Err(); err != nil {
		return false, err
	}
	return d.change(ctx, policyChange{
		lacks: func(_ context.Context, _ bun.IDB, held []bindingsOf) (*shortfall, error) {
			return lacksOnFleet(held, IAMManage), nil
		},
		write: func(ctx context.Context, tx bun.Tx, actor Actor) (bool, error) {
			return undefine(ctx, tx, actor.Subject, in.Name)
		},
	})
}

func lacksOnFleet(held []bindingsOf, p Permission) *shortfall {
	if decide(held, p, Fleet()) != granted {
		return &shortfall{p, Fleet()}
	}
	return nil
}

func lacksToDefine(ctx context.Context, idb bun.IDB, held []bindingsOf, role model.Role) (*shortfall, error) {
	if lack := lacksOnFleet(held, IAMManage); lack != nil {
		return lack, nil
	}
	given, err := selectGiven(ctx, idb, role)
	if err != nil {
		return nil, err
	}
	return newCeiling(held).lacks(placed(Fleet(), ""), given), nil
}

// define writes the role and its audit row, under the lock.
func define(ctx context.Context, tx bun.Tx, by string, role model.Role) (changed bool, err error) {
	changed, err = upsertRole(ctx, tx, by, role)
	if err != nil {
		return false, err
	}
	return changed, writeRoleDown(ctx, tx, by, defineAction, role.Name, changed, map[string]any{"permissions": texts(role.Permissions)})
}

// undefine removes the role and writes that down, under the lock.
func undefine(ctx context.Context, tx bun.Tx, by, name string) (deleted bool, err error) {
	blockers, err := selectRoleBlockers(ctx, tx, name, maxBlockers)
	if err != nil {
		return false, err
	}
	if len(blockers) > 0 {
		return false, problem.New(problem.InvalidState, "Somebody is bound to the role.").With("blockers", blockers)
	}
	deleted, err = deleteRole(ctx, tx, name)
	if err != nil {
		return false, err
	}
	return deleted, writeRoleDown(ctx, tx, by, undefineAction, name, deleted, nil)
}

func writeRoleDown(ctx context.Context, tx bun.Tx, by, action, name string, changed bool, details map[string]any) error {
	return journal.Write(ctx, tx, Caller(ctx, by), journal.Entry{
		Action: action, Object: "compute-role/" + name, Outcome: outcomeOf(changed), Details: details,
	})
}
