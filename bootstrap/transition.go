package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/event"
	"better/compute/model"
)

// The types of the events.
const (
	EventStarted    = "provider.bootstrap.started"
	EventProgressed = "provider.bootstrap.progressed"
	EventInstalled  = "provider.bootstrap.installed"
	EventJoined     = "provider.bootstrap.joined"
	EventFailed     = "provider.bootstrap.failed"
)

// change is a step of a run into another state.
type change struct {
	from   *model.BootstrapStatus // nil for the first
	to     model.BootstrapStatus
	limit  time.Duration // how long the run may stay there; zero: for ever
	set    fields
	reason *string
}

// transition writes the new status, its history row and its event, in the caller's transaction. It is the only function that
// writes a status. The query carries the conditions under which it may; errLost when they do not hold.
func transition(ctx context.Context, tx bun.IDB, q *bun.UpdateQuery, c change) (*run, error) {
	if !slices.Contains(Transitions()[*c.from], c.to) {
		return nil, fmt.Errorf("a run cannot go from %s to %s", *c.from, c.to)
	}
	set := fields{
		"status": c.to, "step": "", "wait_reason": nil, "attempt": 0, "last_error": "",
		"state_since": now, "updated_at": now, "next_at": now, "deadline_at": nil, "lease_until": nil,
	}
	if c.limit > 0 {
		set["deadline_at"] = fromNow(c.limit)
	}
	r, err := update(ctx, set.with(c.set).apply(q).Where("status = ?", *c.from))
	if err != nil {
		return nil, err
	}
	if c.to == model.Failed {
		if err := recordFailure(ctx, tx, r); err != nil {
			return nil, err
		}
	}
	return r, announce(ctx, tx, r, c)
}

// failedAction is the action, in the audit log, of a run that failed. One that joined has the row of its host.
const failedAction = "bootstrap.failed"

func recordFailure(ctx context.Context, tx bun.IDB, r *run) error {
	details := map[string]any{"bootstrapId": r.ID}
	if r.Failure != nil {
		details["reason"] = r.Failure.Reason
	}
	return audit.Record(ctx, tx, audit.Entry{
		TenantID: r.TenantID, Action: failedAction, Object: authz.ProviderAccount(r.TenantID, r.AccountID).String(), Outcome: audit.Allowed,
		Details: details,
	})
}

// announce writes the history row and the event of a transition.
func announce(ctx context.Context, tx bun.IDB, r *run, c change) error {
	_, err := tx.NewRaw("INSERT INTO bootstrap_transitions (bootstrap_id, from_status, to_status, at, reason) VALUES (?, ?, ?, ?, ?)",
		r.ID, c.from, c.to, r.StateSince, c.reason).Exec(ctx)
	if err != nil {
		return failed("writing history", err)
	}
	data, err := envelope(r, c)
	if err != nil {
		return err
	}
	return event.Append(ctx, tx, event.Record{
		TenantID: r.TenantID, Type: eventType(c), BootstrapID: r.ID, AccountID: r.AccountID, Data: data,
	})
}

func eventType(c change) string {
	switch {
	case c.from == nil:
		return EventStarted
	case c.to == model.Installed:
		return EventInstalled
	case c.to == model.Joined:
		return EventJoined
	case c.to == model.Failed:
		return EventFailed
	default:
		return EventProgressed
	}
}

// envelope is the CloudEvents 1.0 form. A run enters each state at most once, so run and state are the event's id.
func envelope(r *run, c change) (model.JSON, error) {
	type data struct {
		TenantID    string                 `json:"tenantId"`
		AccountID   string                 `json:"accountId"`
		PoolID      string                 `json:"poolId"`
		BootstrapID string                 `json:"bootstrapId"`
		MachineID   *string                `json:"machineId"`
		OfferID     *string                `json:"offerId"`
		HostID      *string                `json:"hostId"`
		From        *model.BootstrapStatus `json:"from"`
		To          model.BootstrapStatus  `json:"to"`
		Reason      *model.FailureReason   `json:"reason"`
	}
	d := data{
		TenantID: r.TenantID, AccountID: r.AccountID, PoolID: r.PoolID, BootstrapID: r.ID,
		MachineID: r.MachineID, OfferID: r.OfferID, HostID: r.HostID, From: c.from, To: c.to,
	}
	if r.Failure != nil {
		d.Reason = &r.Failure.Reason
	}
	b, err := json.Marshal(map[string]any{
		"specversion":     "1.0",
		"id":              r.ID + "/" + string(c.to),
		"source":          "/tenants/" + r.TenantID + "/bootstraps",
		"subject":         r.ID,
		"type":            eventType(c),
		"time":            model.NewTime(r.StateSince),
		"datacontenttype": "application/json",
		"data":            d,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding an event: %w", err)
	}
	return b, nil
}
