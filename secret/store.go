package secret

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

const maxValueBytes = 64 << 10

// Actions of this package in the audit log.
const (
	putAction    = "putSecret"
	deleteAction = "deleteSecret"
)

// Put writes a secret of the tenant, over an older value if there is one, for a caller who holds compute:providers:manage on the
// tenant. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, or INVALID_CONFIG without a key. Idempotent.
func (s *Service) Put(ctx context.Context, in model.PutSecretInput) (*model.PutSecretPayload, error) {
	var issues problem.Issues
	checkPlace(&issues, in.TenantID, in.Name)
	checkValue(&issues, in.Value)
	if err := s.admit(ctx, issues, model.ProvidersManage, in.TenantID); err != nil {
		return nil, err
	}
	if s.key == nil {
		return nil, problem.New(problem.InvalidConfig, "This server has no key for its secret store: set secrets.store.keyFile.")
	}
	row := s.key.seal(in.TenantID, in.Name, in.Value)
	var written model.Secret
	err := s.authz.Holding(ctx, authz.Need(model.ProvidersManage, authz.Tenant(in.TenantID)), func(ctx context.Context, tx bun.Tx) error {
		err := tx.NewRaw(`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant_id, name) DO UPDATE
			SET key_id = excluded.key_id, sealed = excluded.sealed, updated_at = clock_timestamp()
			RETURNING name, created_at, updated_at`,
			in.TenantID, in.Name, row.KeyID, row.Sealed).Scan(ctx, &written)
		if err != nil {
			return fmt.Errorf("writing a secret: %w", err)
		}
		return record(ctx, tx, putAction, audit.Allowed, in.TenantID, in.Name)
	})
	if err != nil {
		return nil, err
	}
	return &model.PutSecretPayload{Secret: &written}, nil
}

// Delete removes a secret of the tenant and reports whether there was one, for a caller who holds compute:providers:manage on the
// tenant. INVALID_INPUT, UNAUTHENTICATED or FORBIDDEN. Idempotent.
func (s *Service) Delete(ctx context.Context, in model.DeleteSecretInput) (*model.DeleteSecretPayload, error) {
	var issues problem.Issues
	checkPlace(&issues, in.TenantID, in.Name)
	if err := s.admit(ctx, issues, model.ProvidersManage, in.TenantID); err != nil {
		return nil, err
	}
	var deleted bool
	err := s.authz.Holding(ctx, authz.Need(model.ProvidersManage, authz.Tenant(in.TenantID)), func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.NewRaw(`DELETE FROM secrets WHERE tenant_id = ? AND name = ?`, in.TenantID, in.Name).Exec(ctx)
		if err != nil {
			return fmt.Errorf("deleting a secret: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return fmt.Errorf("deleting a secret: %w", err)
		}
		outcome := audit.Allowed
		if deleted = n > 0; !deleted {
			outcome = audit.Replayed
		}
		return record(ctx, tx, deleteAction, outcome, in.TenantID, in.Name)
	})
	if err != nil {
		return nil, err
	}
	return &model.DeleteSecretPayload{Deleted: deleted}, nil
}

// List gives the tenant's secrets without their values, sorted by name, to a caller who holds compute:providers:read on the tenant.
// INVALID_INPUT, UNAUTHENTICATED or FORBIDDEN.
func (s *Service) List(ctx context.Context, tenantID string) ([]*model.Secret, error) {
	var issues problem.Issues
	input.Tenant(&issues, tenantID)
	if err := s.admit(ctx, issues, model.ProvidersRead, tenantID); err != nil {
		return nil, err
	}
	secrets := []*model.Secret{}
	err := s.db.NewRaw(`SELECT name, created_at, updated_at FROM secrets WHERE tenant_id = ? ORDER BY name`, tenantID).
		Scan(ctx, &secrets)
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing secrets: %w", err))
	}
	return secrets, nil
}

// admit lets a caller through who is one, asks properly, and may.
func (s *Service) admit(ctx context.Context, issues problem.Issues, p authz.Permission, tenantID string) error {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return err
	}
	if err := issues.Err(); err != nil {
		return err
	}
	return s.authz.Check(ctx, p, authz.Tenant(tenantID))
}

func checkPlace(issues *problem.Issues, tenantID, name string) {
	input.Tenant(issues, tenantID)
	if !provider.ValidSecretName(name) {
		issues.Add("name", "must match ^[a-z0-9][a-z0-9._-]{0,62}$")
	}
}

// checkValue refuses at the door what Resolve would refuse later.
func checkValue(issues *problem.Issues, text string) {
	switch trimmed := strings.Trim(text, asciiSpace); {
	case len(text) > maxValueBytes:
		issues.Add("value", "must not be larger than %d KiB", maxValueBytes>>10)
	case trimmed == "":
		issues.Add("value", "must not be empty")
	case !isPlainText(trimmed):
		issues.Add("value", "must be printable ASCII text; new lines and tabs may part it")
	}
}

func record(ctx context.Context, tx bun.Tx, action string, outcome audit.Outcome, tenantID, name string) error {
	return audit.Record(ctx, tx, audit.Entry{
		TenantID: tenantID, Action: action, Object: authz.Tenant(tenantID).String(), Outcome: outcome,
		Details: map[string]any{"secret": name},
	})
}

func readSealed(ctx context.Context, db *postgres.DB, tenantID, name string) (row sealedRow, found bool, err error) {
	err = db.NewRaw(`SELECT key_id, sealed FROM secrets WHERE tenant_id = ? AND name = ?`, tenantID, name).Scan(ctx, &row)
	if errors.Is(err, sql.ErrNoRows) {
		return sealedRow{}, false, nil
	}
	if err != nil {
		return sealedRow{}, false, fmt.Errorf("reading a secret: %w", err)
	}
	return row, true, nil
}

// placedRow is a sealed value with its place.
type placedRow struct {
	place
	sealedRow
}

// lockSealedByOthers reads some secrets after a place, in order, that another key than that one has sealed.
func lockSealedByOthers(ctx context.Context, tx bun.Tx, keyID string, after place) (rows []placedRow, err error) {
	err = tx.NewRaw(`SELECT tenant_id, name, key_id, sealed FROM secrets
		WHERE (tenant_id, name) > (?, ?) AND key_id <> ? ORDER BY tenant_id, name LIMIT ? FOR UPDATE`,
		after.TenantID, after.Name, keyID, resealedAtOnce).Scan(ctx, &rows)
	if err != nil {
		return nil, fmt.Errorf("reading secrets: %w", err)
	}
	return rows, nil
}

// replaceSealed leaves the time of the last change alone: the value is the same.
func replaceSealed(ctx context.Context, tx bun.Tx, at place, row sealedRow) error {
	_, err := tx.NewRaw(`UPDATE secrets SET key_id = ?, sealed = ? WHERE tenant_id = ? AND name = ?`, row.KeyID, row.Sealed, at.TenantID, at.Name).Exec(ctx)
	if err != nil {
		return fmt.Errorf("writing a secret: %w", err)
	}
	return nil
}
