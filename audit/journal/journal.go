// Package journal owns how a row gets into the audit log.
//
// It refuses to know who asks and why: package audit takes the actor from the context, package authz writes denials. It stands
// below both so that neither imports the other for it. The invariant: rows are added, never changed.
package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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

// Caller is who did it, and how it came.
type Caller struct {
	Actor     string
	APIToken  string // the id of the one that it came with, which becomes details.apiToken; empty: another kind of credential, or none
	RequestID string
}

// Write adds a row. In a transaction it stands or falls with what it tells of.
func Write(ctx context.Context, idb bun.IDB, c Caller, e Entry) error {
	details, err := json.Marshal(detailsOf(c, e))
	if err != nil {
		return fmt.Errorf("encoding the details of an audit row: %w", err)
	}
	_, err = idb.NewRaw(`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, details)
		VALUES (?, ?, ?, ?, ?, ?, ?::jsonb)`,
		e.TenantID, c.Actor, e.Action, e.Object, string(e.Outcome), c.RequestID, string(details)).Exec(ctx)
	if err != nil {
		return fmt.Errorf("writing an audit row: %w", err)
	}
	return nil
}

func detailsOf(c Caller, e Entry) map[string]any {
	details := map[string]any{}
	maps.Copy(details, e.Details)
	if c.APIToken != "" {
		details["apiToken"] = c.APIToken
	}
	return details
}
