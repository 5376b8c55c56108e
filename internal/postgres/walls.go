package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"better/compute/internal/problem"
)

// CheckWalls is UNAVAILABLE when the database would show a tenant's rows to another: because the connections work as somebody whom
// row-level security does not hold, or because a table with the column tenant_id does not have its policy.
func (db *DB) CheckWalls(ctx context.Context) error {
	var holes []string
	err := db.NewRaw(`
		SELECT 'the role ' || rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls OR rolname <> ?0)
		UNION ALL
		SELECT 'the table ' || t.relname FROM pg_class t
		JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
		WHERE t.relkind IN ('r', 'p') AND t.relnamespace = current_schema()::regnamespace
		AND NOT (t.relrowsecurity AND t.relforcerowsecurity AND EXISTS (
			SELECT FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles) WHERE p.polrelid = t.oid AND r.rolname = ?0))`,
		Role).Scan(ctx, &holes)
	if err != nil {
		return Translate(fmt.Errorf("looking whether tenants are kept apart: %w", err))
	}
	if len(holes) > 0 {
		return problem.New(problem.Unavailable, "The database does not keep tenants apart.").
			Because(errors.New("not confined: " + strings.Join(holes, ", ")))
	}
	return nil
}
