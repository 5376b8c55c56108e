package authz

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"better/compute/audit/journal"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// readPolicy reads all that answers the question in one statement, so that it is of one moment. A subject without any binding gets an
// entry too, so that it is not asked for again.
func (d *Decider) readPolicy(ctx context.Context, idb bun.IDB, q question) (snapshot, error) {
	now := d.now()
	var rows []policyRow
	err := idb.NewRaw(`SELECT v.version,
			(SELECT coalesce(extract(epoch FROM expires_at)::float8 - extract(epoch FROM clock_timestamp())::float8, 'Infinity')
				FROM api_tokens WHERE id = ? AND revoked_at IS NULL) AS token_seconds,
			coalesce(b.subject, '') AS subject, coalesce(b.role, '') AS role, coalesce(b.object, '') AS object, coalesce(b.effect, '') AS effect,
			r.permissions, coalesce(CASE split_part(b.object, '/', 1)
				WHEN ? THEN (SELECT tenant_id FROM provider_accounts WHERE id = split_part(b.object, '/', 2))
				WHEN ? THEN (SELECT tenant_id FROM pools WHERE id = split_part(b.object, '/', 2)) END, '') AS item_tenant
		FROM (SELECT version FROM policy_version LIMIT 1) v
		LEFT JOIN role_bindings b ON b.subject IN (?)
		LEFT JOIN roles r ON r.name = b.role`,
		q.credential, string(ProviderAccounts), string(Pools), bun.List(q.subjects)).Scan(ctx, &rows)
	if err != nil {
		return snapshot{}, fmt.Errorf("reading role bindings: %w", err)
	}
	if len(rows) == 0 {
		return snapshot{}, errors.New("reading role bindings: the policy has no version")
	}
	bindings, err := d.roles.bySubject(q.subjects, rows)
	return snapshot{version: rows[0].Version, bindings: bindings, token: newToken(now, rows[0].TokenSeconds)}, err
}

// policyRow is a binding with the definition of its role, nil for one that is not defined, and the tenant of its object when that is an
// item that exists. Where no binding was found there is one row without a subject.
type policyRow struct {
	Version      int64
	TokenSeconds *float64 // until the token expires; nil: there is none that counts
	model.RoleBinding
	Permissions []string `bun:",array"`
	ItemTenant  string
}

func (r *roles) bySubject(subjects []Subject, rows []policyRow) (map[Subject]bindingsOf, error) {
	sorted := make(map[Subject]bindingsOf, len(subjects))
	for _, s := range subjects {
		sorted[s] = bindingsOf{grants: map[string][]grant{}}
	}
	for _, row := range rows {
		of, asked := sorted[row.Subject]
		if !asked {
			continue
		}
		found, err := r.find(row.Role, row.Permissions)
		if err != nil {
			return nil, err
		}
		of.grants[row.Object] = append(of.grants[row.Object], grant{found, row.Effect, row.ItemTenant})
		if row.Effect == model.Allow {
			of.places.add(row.Object, row.ItemTenant)
		}
		sorted[row.Subject] = of
	}
	return sorted, nil
}

// place is the object of a binding: as it is named, with its tenant when it has one, and what rights on it are decided on.
type place struct {
	named   Object
	decided Object
}

// placed is the place of an object whose tenant is known, or empty for an item that is not there.
func placed(o Object, itemTenant string) place {
	switch {
	case tableOf(o.kind) == "":
		return place{named: o, decided: o}
	case itemTenant == "":
		return place{named: o, decided: Fleet()}
	default:
		o.tenantID = itemTenant
		return place{named: o, decided: o}
	}
}

// tableOf is where items of the kind are; empty for what has no table.
func tableOf(k Kind) string {
	return map[Kind]string{ProviderAccounts: "provider_accounts", Pools: "pools"}[k]
}

func holdObject(ctx context.Context, tx bun.Tx, name string) error {
	o, _ := parseObject(name)
	table := tableOf(o.kind)
	if table == "" {
		return nil
	}
	if _, err := tx.NewRaw("SELECT FROM ? WHERE id = ? FOR KEY SHARE", bun.Ident(table), o.id).Exec(ctx); err != nil {
		return fmt.Errorf("holding the object of a binding: %w", err)
	}
	return nil
}

func locate(ctx context.Context, idb bun.IDB, name string) (place, error) {
	o, _ := parseObject(name)
	table := tableOf(o.kind)
	if table == "" {
		return placed(o, ""), nil
	}
	var tenantID string
	err := idb.NewRaw("SELECT tenant_id FROM ? WHERE id = ?", bun.Ident(table), o.id).Scan(ctx, &tenantID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return place{}, postgres.Translate(fmt.Errorf("finding the tenant of an object: %w", err))
	}
	return placed(o, tenantID), nil
}

// lockPolicy makes changes of the policy take turns. Every change moves the version anyway, through a trigger; taking the row first
// keeps two of them from waiting for each other, and what is read under it stays true until the commit.
//
// Items that the change is about cannot be deleted either until the transaction ends: else a binding could be made on one that is just
// going away, which Forget would not see. They come first, since who deletes one takes the two in that order.
func lockPolicy(ctx context.Context, tx bun.Tx, about ...string) error {
	for _, name := range about {
		if err := holdObject(ctx, tx, name); err != nil {
			return err
		}
	}
	if _, err := tx.NewRaw("SELECT version FROM policy_version FOR UPDATE").Exec(ctx); err != nil {
		return fmt.Errorf("locking the policy: %w", err)
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
		return false, fmt.Errorf("changing the policy: %w", err)
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
	return changed, journal.Write(ctx, tx, Caller(ctx, by), journal.Entry{
		TenantID: tenantID, Action: action, Object: b.Object, Outcome: outcomeOf(changed),
		Details: map[string]any{"subject": b.Subject, "role": b.Role, "effect": string(b.Effect)},
	})
}

// selectBindings reads one binding more than the page has: those on the tenant and its items, or without a tenant those on the fleet.
func selectBindings(ctx context.Context, idb bun.IDB, at Object, subject *Subject, hidden []string, p input.Page[model.RoleBinding]) ([]*model.RoleBinding, error) {
	bindings := []*model.RoleBinding{}
	q := bindingsOn(idb, at).Model(&bindings).OrderExpr("object, subject, role, effect").Limit(int64(p.First + 1))
	if subject != nil {
		q.Where("subject = ?", *subject)
	}
	if len(hidden) > 0 {
		q.Where("object NOT IN (?)", bun.List(hidden))
	}
	if p.After != "" {
		q.Where("(object, subject, role, effect) > (?, ?, ?, ?)", p.Place.Object, p.Place.Subject, p.Place.Role, string(p.Place.Effect))
	}
	if err := q.Scan(ctx); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing role bindings: %w", err))
	}
	return bindings, nil
}

// checkBindings refuses what gave the subject more than maxBindings on items of the object's tenant. Those on the tenant itself are few, one for
// each role and effect, and never refused: a denial there is what shuts somebody out, however many bindings on items were made before.
func checkBindings(ctx context.Context, tx bun.Tx, subject Subject, on Object) error {
	tenantID := on.TenantID()
	if tenantID == "" || tableOf(on.kind) == "" {
		return nil
	}
	n, err := bindingsOn(tx, Tenant(tenantID)).Model((*model.RoleBinding)(nil)).Where("subject = ?", subject).
		Where("object <> ?", Tenant(tenantID).String()).Count(ctx)
	if err != nil {
		return postgres.Translate(fmt.Errorf("counting role bindings: %w", err))
	}
	if n > maxBindings {
		return problem.New(problem.InvalidState, "The subject has %d bindings on items of this tenant already; revoke one first, or bind it, or a group, on the tenant.", maxBindings)
	}
	return nil
}

// checkGroups refuses a binding that is one more than maxGroupBindings of groups on items of the object's tenant. Changes that are made at
// the same moment do not see each other, so there may be a few more.
func checkGroups(ctx context.Context, idb bun.IDB, b model.RoleBinding, on Object) error {
	tenantID := on.TenantID()
	if tenantID == "" || tableOf(on.kind) == "" || !strings.HasPrefix(b.Subject, groupPrefix) {
		return nil
	}
	n, err := bindingsOn(idb, Tenant(tenantID)).Model((*model.RoleBinding)(nil)).Where("starts_with(subject, ?)", groupPrefix).
		Where("object <> ?", Tenant(tenantID).String()).
		Where("(subject, role, object, effect) <> (?, ?, ?, ?)", b.Subject, b.Role, b.Object, string(b.Effect)).Count(ctx)
	if err != nil {
		return postgres.Translate(fmt.Errorf("counting role bindings of groups: %w", err))
	}
	if n >= maxGroupBindings {
		return problem.New(problem.InvalidState, "Groups have %d bindings on items of this tenant already; revoke one first, or bind a group on the tenant.", maxGroupBindings)
	}
	return nil
}

func bindingsOn(idb bun.IDB, at Object) *bun.SelectQuery {
	tenantID := at.TenantID()
	if tenantID == "" {
		return idb.NewSelect().Where("object = ?", at.String())
	}
	return idb.NewSelect().Where(`object IN (SELECT ?::text UNION ALL SELECT ? || id FROM provider_accounts WHERE tenant_id = ?
		UNION ALL SELECT ? || id FROM pools WHERE tenant_id = ?)`,
		at.String(), itemName(ProviderAccounts, ""), tenantID, itemName(Pools, ""), tenantID)
}

func outcomeOf(changed bool) journal.Outcome {
	if changed {
		return journal.Allowed
	}
	return journal.Replayed
}

// Forget removes, in the caller's transaction, every binding on an object that is going away: an object that gets the same id later must
// not get the rights too. The caller has deleted or locked the object's row before.
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
