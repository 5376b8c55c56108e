package authz

import (
	"context"
	"errors"

	"better/compute/internal/postgres"
)

// Grant makes the binding and reports whether it is new. There is no decision: it is for the operator at the machine,
// whom by names in the audit log. INVALID_INPUT as in GrantRole. Idempotent.
func Grant(ctx context.Context, db *postgres.DB, by string, b Binding) (bool, error) {
	return false, errors.ErrUnsupported
}

// Revoke removes the binding and reports whether there was one. No decision, as in Grant. Idempotent.
func Revoke(ctx context.Context, db *postgres.DB, by string, b Binding) (bool, error) {
	return false, errors.ErrUnsupported
}

// List gives every binding, or those of one subject, sorted by subject, object, role and effect. No decision, as in Grant.
func List(ctx context.Context, db *postgres.DB, subject Subject) ([]Binding, error) {
	return nil, errors.ErrUnsupported
}

// EnsureBindings makes those of the bindings that are not there, such as the ones of the configuration, all or none. No decision,
// as in Grant. INVALID_INPUT with the path "<index>.<field>". Idempotent.
func EnsureBindings(ctx context.Context, db *postgres.DB, bindings []Binding) error {
	return errors.ErrUnsupported
}
