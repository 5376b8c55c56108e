// Package journal owns how a row gets into the audit log.
//
// It refuses to know who asks and why: package audit takes the actor from the context, package authz writes denials. It stands
// below both so that neither imports the other for it. The invariant: rows are added, never changed.
package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"
)

// Outcome is how an action ended.
type Outcome string

// The outcomes.
const (
	Allowed  Outcome = "allowed"
	Denied   Outcome = "denied"
	Replayed Outcome = "replayed" // asked for again, nothing changed
)

// Entry is what happened. Details never hold the value of a config or a secret, only names and numbers.
type Entry struct {
	TenantID string // empty for what belongs to no tenant
	Action   string
	Object   string
	Outcome  Outcome
	Details  map[string]any
}

// Write adds a row. In a transaction it stands or falls with what it tells of.
func Write(ctx context.Context, idb bun.IDB, actor, requestID string, e Entry) error {
	details := []byte("{}")
	if len(e.Details) > 0 {
		var err error
		if details, err = json.Marshal(e.Details); err != nil {
			return fmt.Errorf("encoding the details of an audit row: %w", err)
		}
	}
	_, err := idb.NewRaw(`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, details)
		VALUES (?, ?, ?, ?, ?, ?, ?::jsonb)`,
		e.TenantID, actor, e.Action, e.Object, string(e.Outcome), requestID, string(details)).Exec(ctx)
	if err != nil {
		return fmt.Errorf("writing an audit row: %w", err)
	}
	return nil
}
