package authz

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Actions of this package in the audit log.
const (
	grantAction  = "grantRole"
	revokeAction = "revokeRole"

	defineAction   = "defineRole"
	undefineAction = "deleteRole"
)

// Configuration is the actor, in the audit log, of the bindings that the configuration asks for.
const Configuration = "system:configuration"

// Grant makes the binding and reports whether it is new. There is no decision: it is for the operator at the machine,
// whom by names in the audit log. INVALID_INPUT as in GrantRole. Idempotent.
func Grant(ctx context.Context, db *postgres.DB, by string, b model.RoleBinding) (added bool, err error) {
	roles, err := loadRoles(policyText)
	if err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, []string{b.Object}, func(ctx context.Context, tx bun.Tx) (bool, error) {
		if err := roles.checkGrant(ctx, tx, b); err != nil {
			return false, err
		}
		return writeLocated(ctx, tx, by, grantAction, b, insertBinding)
	})
}

// Revoke removes the binding and reports whether there was one. No decision, as in Grant. INVALID_INPUT as in RevokeRole.
// Idempotent.
func Revoke(ctx context.Context, db *postgres.DB, by string, b model.RoleBinding) (revoked bool, err error) {
	if err := checkRevoke(b); err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, []string{b.Object}, func(ctx context.Context, tx bun.Tx) (bool, error) {
		return writeLocated(ctx, tx, by, revokeAction, b, deleteBinding)
	})
}

// Define defines a role, or changes it, and reports whether it was not defined like that already. No decision, as in Grant.
// INVALID_INPUT or INVALID_STATE as in DefineRole. Idempotent.
func Define(ctx context.Context, db *postgres.DB, by string, in model.DefineRoleInput) (changed bool, err error) {
	roles, err := loadRoles(policyText)
	if err != nil {
		return false, err
	}
	role, err := roles.checkDefinition(in)
	if err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, nil, func(ctx context.Context, tx bun.Tx) (bool, error) { return define(ctx, tx, by, role) })
}

// Undefine deletes a defined role and reports whether there was one. No decision, as in Grant. INVALID_INPUT or INVALID_STATE as in
// DeleteRole. Idempotent.
func Undefine(ctx context.Context, db *postgres.DB, by, name string) (deleted bool, err error) {
	roles, err := loadRoles(policyText)
	if err != nil {
		return false, err
	}
	var issues problem.Issues
	roles.checkDefinable(&issues, name)
	if err := issues.Err(); err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, nil, func(ctx context.Context, tx bun.Tx) (bool, error) { return undefine(ctx, tx, by, name) })
}

// ListRoles gives every role as Roles does. No decision, as in Grant.
func ListRoles(ctx context.Context, db *postgres.DB) ([]*model.Role, error) {
	roles, err := loadRoles(policyText)
	if err != nil {
		return nil, err
	}
	return roles.list(ctx, db.DB)
}

// changeUndecided makes a change under the lock without asking whether anybody may.
func changeUndecided(ctx context.Context, db *postgres.DB, about []string, write func(ctx context.Context, tx bun.Tx) (bool, error)) (changed bool, err error) {
	err = db.RunInTx(acrossTenants(ctx), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx, about...); err != nil {
			return err
		}
		changed, err = write(ctx, tx)
		return err
	})
	return changed, err
}

func writeLocated(ctx context.Context, tx bun.Tx, by, action string, b model.RoleBinding, write writeBinding) (bool, error) {
	at, err := locate(ctx, tx, b.Object)
	if err != nil {
		return false, err
	}
	return writeAudited(ctx, tx, by, action, at.named.TenantID(), b, write)
}

// List gives every binding, or with a subject those of that one, sorted by subject, object, role and effect. No decision, as in Grant.
func List(ctx context.Context, db *postgres.DB, subject Subject) ([]model.RoleBinding, error) {
	bindings := []model.RoleBinding{}
	q := db.NewSelect().Model(&bindings).
		Order("subject", "object", "role", "effect")
	if subject != "" {
		q.Where("subject = ?", subject)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing role bindings: %w", err))
	}
	return bindings, nil
}

// EnsureBindings makes those of the bindings that are not there, all or none, as Configuration. No decision, as in Grant.
// INVALID_INPUT with paths "bindings.<index>.<field>". Idempotent: what is there already leaves no audit row.
func EnsureBindings(ctx context.Context, db *postgres.DB, bindings []model.RoleBinding) error {
	if err := CheckBindings(bindings); err != nil {
		return err
	}
	about := make([]string, len(bindings))
	for i, b := range bindings {
		about[i] = b.Object
	}
	return db.RunInTx(acrossTenants(ctx), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx, about...); err != nil {
			return err
		}
		for _, b := range bindings {
			if err := ensureBinding(ctx, tx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

// CheckBindings judges bindings of a configuration by their form alone, all of them at once; their roles must be built-in ones, since
// no database is asked. INVALID_INPUT with paths "bindings.<index>.<field>".
func CheckBindings(bindings []model.RoleBinding) error {
	roles, err := loadRoles(policyText)
	if err != nil {
		return err
	}
	var issues problem.Issues
	for i, b := range bindings {
		prefix := fmt.Sprintf("bindings.%d.", i)
		checkBinding(&issues, prefix, b)
		checkRole(&issues, prefix, b.Role, roles.builtInNames())
	}
	return issues.Err()
}

func ensureBinding(ctx context.Context, tx bun.Tx, b model.RoleBinding) error {
	exists, err := tx.NewSelect().Model(&b).WherePK().Exists(ctx)
	if err != nil || exists {
		return err
	}
	_, err = writeLocated(ctx, tx, Configuration, grantAction, b, insertBinding)
	return err
}
