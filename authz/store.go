package authz

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/audit/journal"
	"better/compute/internal/postgres"
	"better/compute/model"
)

// loadBindings reads the bindings of all the subjects in one query. A subject without any gets an entry too, so that it is not asked
// for again.
func loadBindings(ctx context.Context, idb bun.IDB, subjects []Subject) (map[Subject]bindingsOf, error) {
	var rows []placedBinding
	err := idb.NewRaw(`SELECT b.subject, b.role, b.object, b.effect, coalesce(a.tenant_id, p.tenant_id, '') AS item_tenant
		FROM role_bindings b
		LEFT JOIN provider_accounts a ON split_part(b.object, '/', 1) = ? AND a.id = split_part(b.object, '/', 2)
		LEFT JOIN pools p ON split_part(b.object, '/', 1) = ? AND p.id = split_part(b.object, '/', 2)
		WHERE b.subject IN (?)`, string(ProviderAccounts), string(Pools), bun.List(subjects)).
		Scan(ctx, &rows)
	if err != nil {
		return nil, fmt.Errorf("reading role bindings: %w", err)
	}
	return bySubject(subjects, rows), nil
}

// placedBinding is a binding with the tenant of its object when that is an item that exists.
type placedBinding struct {
	model.RoleBinding
	ItemTenant string `bun:"item_tenant"`
}

func bySubject(subjects []Subject, rows []placedBinding) map[Subject]bindingsOf {
	sorted := make(map[Subject]bindingsOf, len(subjects))
	for _, s := range subjects {
		sorted[s] = bindingsOf{grants: map[string][]grant{}}
	}
	for _, r := range rows {
		of := sorted[r.Subject]
		of.grants[r.Object] = append(of.grants[r.Object], grant{role: r.Role, effect: r.Effect})
		if r.Effect == model.Allow {
			of.places.add(r.Object, r.ItemTenant)
		}
		sorted[r.Subject] = of
	}
	return sorted
}

// place is the object of a binding: as it is named, with its tenant when it has one, and what rights on it are decided on.
type place struct {
	named   Object
	decided Object
}

func locate(ctx context.Context, idb bun.IDB, name string) (place, error) {
	o, _ := parseObject(name)
	table := map[Kind]string{ProviderAccounts: "provider_accounts", Pools: "pools"}[o.kind]
	if table == "" {
		return place{named: o, decided: o}, nil
	}
	err := idb.NewRaw("SELECT tenant_id FROM ? WHERE id = ?", bun.Ident(table), o.id).Scan(ctx, &o.tenantID)
	if errors.Is(err, sql.ErrNoRows) {
		return place{named: o, decided: Fleet()}, nil
	}
	if err != nil {
		return place{}, postgres.Translate(fmt.Errorf("finding the tenant of an object: %w", err))
	}
	return place{named: o, decided: o}, nil
}

// lockPolicy makes changes of bindings take turns. Every change moves the version anyway, through a trigger; taking the row first
// keeps two of them from waiting for each other, and what is read under it stays true until the commit.
func lockPolicy(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.NewRaw("SELECT version FROM policy_version FOR UPDATE").Exec(ctx); err != nil {
		return fmt.Errorf("locking the role bindings: %w", err)
	}
	return nil
}

// writeBinding changes one row and reports whether there was anything to change.
type writeBinding func(ctx context.Context, tx bun.Tx, by string, b model.RoleBinding) (changed bool, err error)

func insertBinding(ctx context.Context, tx bun.Tx, by string, b model.RoleBinding) (bool, error) {
	return affects(tx.NewRaw(`INSERT INTO role_bindings (subject, role, object, effect, created_by) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, b.Subject, b.Role, b.Object, string(b.Effect), by).Exec(ctx))
}

func deleteBinding(ctx context.Context, tx bun.Tx, _ string, b model.RoleBinding) (bool, error) {
	return affects(tx.NewRaw("DELETE FROM role_bindings WHERE subject = ? AND role = ? AND object = ? AND effect = ?",
		b.Subject, b.Role, b.Object, string(b.Effect)).Exec(ctx))
}

func affects(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, fmt.Errorf("changing a role binding: %w", err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// writeAudited changes the binding and writes that down, as a replay when there was nothing to change.
func writeAudited(ctx context.Context, tx bun.Tx, by, action, tenantID string, b model.RoleBinding, write writeBinding) (bool, error) {
	changed, err := write(ctx, tx, by, b)
	if err != nil {
		return false, err
	}
	outcome := journal.Allowed
	if !changed {
		outcome = journal.Replayed
	}
	return changed, journal.Write(ctx, tx, by, RequestID(ctx), journal.Entry{
		TenantID: tenantID, Action: action, Object: b.Object, Outcome: outcome,
		Details: map[string]any{"subject": b.Subject, "role": b.Role, "effect": string(b.Effect)},
	})
}

// Forget removes, in the caller's transaction, every binding on an object that is going away: an object that gets the same id later must
// not get the rights too.
func Forget(ctx context.Context, tx bun.Tx, o Object) error {
	var bound bool
	err := tx.NewRaw("SELECT EXISTS (SELECT FROM role_bindings WHERE object = ?)", o.String()).Scan(ctx, &bound)
	if err != nil {
		return fmt.Errorf("looking for role bindings: %w", err)
	}
	if !bound {
		return nil // the lock is one for all tenants
	}
	if err := lockPolicy(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.NewRaw("DELETE FROM role_bindings WHERE object = ?", o.String()).Exec(ctx); err != nil {
		return fmt.Errorf("removing role bindings: %w", err)
	}
	return nil
}
