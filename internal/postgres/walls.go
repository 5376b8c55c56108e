package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"better/compute/internal/problem"
)

// CheckWalls is UNAVAILABLE when the database would show a tenant's rows to another: because the connections work as somebody whom
// row-level security does not hold, because something that they may read has no policy, or because it has one more than ours. Few tables
// belong to no tenant; every other one must be walled, so must one that is yet to come.
func (db *DB) CheckWalls(ctx context.Context) error {
	var holes []string
	err := db.NewRaw(`
		SELECT 'the role ' || rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls OR rolname <> ?0)
		UNION ALL
		SELECT 'the table ' || t.relname FROM pg_class t
		WHERE t.relkind IN ('r', 'p', 'v', 'm', 'f') AND t.relnamespace = current_schema()::regnamespace
		AND t.relname NOT IN ('bun_migration_locks', 'bun_migrations', 'machine_reservations', 'policy_version', 'roles', 'server_keys')
		AND t.relname NOT LIKE 'river\_%' AND has_table_privilege(?0, t.oid, 'SELECT')
		AND NOT (t.relrowsecurity AND t.relforcerowsecurity AND EXISTS (
			SELECT FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles) WHERE p.polrelid = t.oid AND r.rolname = ?0))
		UNION ALL
		SELECT 'the policy ' || p.polname || ' of ' || t.relname FROM pg_policy p JOIN pg_class t ON t.oid = p.polrelid
		WHERE t.relnamespace = current_schema()::regnamespace AND p.polname NOT IN ('owner', 'tenants', 'anybody_adds')`,
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
