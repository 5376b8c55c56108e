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
	var issues problem.Issues
	checkBinding(&issues, "", b)
	roles.checkRole(&issues, "", b.Role)
	if err := issues.Err(); err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, by, grantAction, b, insertBinding)
}

// Revoke removes the binding and reports whether there was one. No decision, as in Grant. INVALID_INPUT as in RevokeRole.
// Idempotent.
func Revoke(ctx context.Context, db *postgres.DB, by string, b model.RoleBinding) (revoked bool, err error) {
	var issues problem.Issues
	checkBinding(&issues, "", b)
	checkRoleForm(&issues, b.Role)
	if err := issues.Err(); err != nil {
		return false, err
	}
	return changeUndecided(ctx, db, by, revokeAction, b, deleteBinding)
}

func changeUndecided(ctx context.Context, db *postgres.DB, by, action string, b model.RoleBinding, write writeBinding) (changed bool, err error) {
	err = db.RunInTx(acrossTenants(ctx), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx); err != nil {
			return err
		}
		at, err := locate(ctx, tx, b.Object)
		if err != nil {
			return err
		}
		changed, err = writeAudited(ctx, tx, by, action, at.named.TenantID(), b, write)
		return err
	})
	return changed, err
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
	return db.RunInTx(acrossTenants(ctx), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx); err != nil {
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

// CheckBindings judges bindings by their form alone, all of them at once. INVALID_INPUT with paths "bindings.<index>.<field>".
func CheckBindings(bindings []model.RoleBinding) error {
	roles, err := loadRoles(policyText)
	if err != nil {
		return err
	}
	var issues problem.Issues
	for i, b := range bindings {
		prefix := fmt.Sprintf("bindings.%d.", i)
		checkBinding(&issues, prefix, b)
		roles.checkRole(&issues, prefix, b.Role)
	}
	return issues.Err()
}

func ensureBinding(ctx context.Context, tx bun.Tx, b model.RoleBinding) error {
	exists, err := tx.NewSelect().Model(&b).WherePK().Exists(ctx)
	if err != nil || exists {
		return err
	}
	at, err := locate(ctx, tx, b.Object)
	if err != nil {
		return err
	}
	_, err = writeAudited(ctx, tx, Configuration, grantAction, at.named.TenantID(), b, insertBinding)
	return err
}
