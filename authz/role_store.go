package authz

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// read finds the role of that name as it is now; nil when there is none.
func (r *roles) read(ctx context.Context, idb bun.IDB, name string) (*role, error) {
	if r.builtIn[name] != nil {
		return r.builtIn[name], nil
	}
	definition, err := selectDefinition(ctx, idb, name)
	if err != nil {
		return nil, err
	}
	return r.find(name, definition)
}

// selectDefinition gives nil when there is none.
func selectDefinition(ctx context.Context, idb bun.IDB, name string) (definition []string, err error) {
	err = idb.NewRaw("SELECT permissions FROM roles WHERE name = ?", name).Scan(ctx, pgdialect.Array(&definition))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading a role: %w", err))
	}
	return definition, nil
}

func selectRoleNames(ctx context.Context, idb bun.IDB) (names []string, err error) {
	if err := idb.NewRaw("SELECT name FROM roles ORDER BY name").Scan(ctx, &names); err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading the names of the roles: %w", err))
	}
	return names, nil
}

func selectRoles(ctx context.Context, idb bun.IDB) ([]*model.Role, error) {
	var rows []struct {
		Name, Description string
		Permissions       []string `bun:",array"`
	}
	if err := idb.NewRaw("SELECT name, description, permissions FROM roles ORDER BY name").Scan(ctx, &rows); err != nil {
		return nil, postgres.Translate(fmt.Errorf("reading the roles: %w", err))
	}
	roles := make([]*model.Role, len(rows))
	for i, row := range rows {
		roles[i] = &model.Role{Name: row.Name, Description: row.Description, Permissions: []Permission{}}
		for _, p := range AllPermissions() { // one of a later version has no name in this one's schema
			if slices.Contains(row.Permissions, string(p)) {
				roles[i].Permissions = append(roles[i].Permissions, p)
			}
		}
	}
	return roles, nil
}

// selectGiven gives what somebody would get by that definition: what it adds, when the role is given to anybody, and what it takes
// away, when it is held back from anybody.
func selectGiven(ctx context.Context, idb bun.IDB, role model.Role) (given []Permission, err error) {
	before, err := selectDefinition(ctx, idb, role.Name)
	if err != nil {
		return nil, err
	}
	var allows, denies bool
	err = idb.NewRaw(`SELECT EXISTS (SELECT FROM role_bindings WHERE role = ?0 AND effect = 'allow'),
		EXISTS (SELECT FROM role_bindings WHERE role = ?0 AND effect = 'deny')`, role.Name).Scan(ctx, &allows, &denies)
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("asking who is bound to a role: %w", err))
	}
	for _, p := range AllPermissions() {
		had, has := slices.Contains(before, string(p)), slices.Contains(role.Permissions, p)
		if allows && has && !had || denies && had && !has {
			given = append(given, p)
		}
	}
	return given, nil
}

// upsertRole reports false when the role was defined like that already. INVALID_STATE when there are too many.
func upsertRole(ctx context.Context, tx bun.Tx, by string, role model.Role) (bool, error) {
	changed, err := affects(tx.NewRaw(`UPDATE roles SET description = ?1, permissions = ?2, updated_at = now(), updated_by = ?3
		WHERE name = ?0 AND (description, permissions) IS DISTINCT FROM (?1, ?2)`,
		role.Name, role.Description, pgdialect.Array(texts(role.Permissions)), by).Exec(ctx))
	if err != nil || changed {
		return changed, err
	}
	names, err := selectRoleNames(ctx, tx)
	if err != nil || slices.Contains(names, role.Name) {
		return false, err
	}
	if len(names) >= maxDefinedRoles {
		return false, problem.New(problem.InvalidState, "There are %d roles already; delete one first.", maxDefinedRoles)
	}
	return affects(tx.NewRaw("INSERT INTO roles (name, description, permissions, created_by, updated_by) VALUES (?0, ?1, ?2, ?3, ?3)",
		role.Name, role.Description, pgdialect.Array(texts(role.Permissions)), by).Exec(ctx))
}

func deleteRole(ctx context.Context, tx bun.Tx, name string) (bool, error) {
	return affects(tx.NewRaw("DELETE FROM roles WHERE name = ?", name).Exec(ctx))
}

// blocker is a binding that keeps its role from being deleted: its object, and whom it is for.
type blocker struct {
	Type string `bun:"type" json:"type"`
	ID   string `bun:"id" json:"id"`
	Name string `bun:"name" json:"name"`
}

func selectRoleBlockers(ctx context.Context, tx bun.Tx, name string, limit int) (blockers []blocker, err error) {
	err = tx.NewRaw(`SELECT 'role-binding' AS type, object AS id, subject AS name FROM role_bindings
		WHERE role = ? ORDER BY object, subject LIMIT ?`, name, limit).Scan(ctx, &blockers)
	if err != nil {
		return nil, fmt.Errorf("asking who is bound to a role: %w", err)
	}
	return blockers, nil
}
