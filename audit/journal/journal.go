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

	"better/compute/internal/postgres"
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
	row, err := rowOf(c, e)
	if err != nil {
		return err
	}
	if _, err = idb.NewRaw(insert+" (?, ?, ?, ?, ?, ?, ?::jsonb)", row...).Exec(ctx); err != nil {
		return fmt.Errorf("writing an audit row: %w", err)
	}
	return nil
}

// Queue is Write as a statement of a batch.
func Queue(b *postgres.Batch, c Caller, e Entry) error {
	row, err := rowOf(c, e)
	if err != nil {
		return err
	}
	b.Queue(insert+" ($1, $2, $3, $4, $5, $6, $7)", row...)
	return nil
}

const insert = "INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, details) VALUES"

func rowOf(c Caller, e Entry) ([]any, error) {
	details, err := json.Marshal(detailsOf(c, e))
	if err != nil {
		return nil, fmt.Errorf("encoding the details of an audit row: %w", err)
	}
	return []any{e.TenantID, c.Actor, e.Action, e.Object, string(e.Outcome), c.RequestID, string(details)}, nil
}

func detailsOf(c Caller, e Entry) map[string]any {
	details := map[string]any{}
	maps.Copy(details, e.Details)
	if c.APIToken != "" {
		details["apiToken"] = c.APIToken
	}
	return details
}
