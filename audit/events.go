package audit

import (
	"context"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Deps is what a Service needs.
type Deps struct {
	DB      *postgres.DB
	Authz   *authz.Decider
	Cursors *cursor.Sealer
}

// Service reads the audit log.
type Service struct{ Deps }

// New makes a Service.
func New(d Deps) *Service { return &Service{d} }

// EventsInput says which events to list: those of a tenant, or with nil those that belong to none.
type EventsInput struct {
	TenantID *string
	Filter   *model.AuditEventFilter // times in their instants; nil: all
	First    *int                    // 1 to 100; nil: 50
	After    *string
}

// Events lists what was done and refused, newest first, to a caller who holds compute:audit:read on the tenant, or without one on
// the fleet; those about an account or a pool on which the caller is denied it are left out. INVALID_INPUT, UNAUTHENTICATED or FORBIDDEN; UNAVAILABLE. To read leaves no row.
func (s *Service) Events(ctx context.Context, in EventsInput) (*model.AuditEventConnection, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.Cursors.List(ctx, "auditEvents", cursor.Optional(in.TenantID), filterParts(in.Filter)...)
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	about, tenantID := authz.Fleet(), ""
	if in.TenantID != nil {
		input.Tenant(&issues, *in.TenantID)
		about, tenantID = authz.Tenant(*in.TenantID), *in.TenantID
	}
	checkFilter(&issues, in.Filter)
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[eventPlace](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := s.Authz.Check(ctx, authz.AuditRead, about); err != nil {
		return nil, err
	}
	hidden, err := s.Authz.Hidden(ctx, authz.AuditRead, tenantID)
	if err != nil {
		return nil, err
	}
	events, err := selectEvents(ctx, s.DB.DB, eventsQuery{tenantID, in.Filter, hidden}, p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(events, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

// eventPlace is where an event stands in a list.
type eventPlace struct {
	At int64  `json:"at"` // microseconds since 1970
	ID string `json:"id"`
}

func placeOf(e *model.AuditEvent) eventPlace { return eventPlace{e.At.UnixMicro(), e.ID} }

func filterParts(f *model.AuditEventFilter) []string {
	if f == nil {
		f = new(model.AuditEventFilter)
	}
	parts := []string{cursor.Optional(f.Actor), cursor.Optional(f.Action), cursor.Optional(f.Object), cursor.Optional(f.RequestID)}
	outcome := ""
	if f.Outcome != nil {
		outcome = string(*f.Outcome)
	}
	for _, t := range []*model.Time{f.Since, f.Until} {
		at := ""
		if t != nil {
			at = t.UTC().Format(time.RFC3339Nano)
		}
		parts = append(parts, at)
	}
	return append(parts, outcome)
}

// maxFilterText is more than any text of a row that is filtered by has.
const maxFilterText = 512

func checkFilter(issues *problem.Issues, f *model.AuditEventFilter) {
	if f == nil {
		return
	}
	for _, t := range []struct {
		path string
		v    *string
	}{{"filter.actor", f.Actor}, {"filter.action", f.Action}, {"filter.object", f.Object}, {"filter.requestId", f.RequestID}} {
		if t.v != nil && !validText(*t.v) {
			issues.Add(t.path, "must be 1 to %d characters, and none a control character", maxFilterText)
		}
	}
	if f.Outcome != nil && *f.Outcome != model.AuditAllowed && *f.Outcome != model.AuditDenied && *f.Outcome != model.AuditReplayed {
		issues.Add("filter.outcome", "must be ALLOWED, DENIED or REPLAYED")
	}
	checkTime(issues, "filter.since", f.Since)
	checkTime(issues, "filter.until", f.Until)
	if f.Since != nil && f.Until != nil && !f.Since.Before(f.Until.Time) {
		issues.Add("filter.until", "must be after since")
	}
}

func validText(s string) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxFilterText {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// checkTime refuses the year 0, which Go has and PostgreSQL has not.
func checkTime(issues *problem.Issues, path string, t *model.Time) {
	if t != nil && (t.UTC().Year() < 1 || t.UTC().Year() > 9999) {
		issues.Add(path, "must be in the years 1 to 9999")
	}
}

// eventsQuery says which events of a tenant a caller asks for and may see.
type eventsQuery struct {
	tenantID string
	filter   *model.AuditEventFilter
	hidden   []string // the objects about which nothing is told
}

// selectEvents reads one event more than the page has.
func selectEvents(ctx context.Context, idb bun.IDB, q eventsQuery, p input.Page[eventPlace]) ([]*model.AuditEvent, error) {
	events := []*model.AuditEvent{}
	if err := q.page(idb, p).Scan(ctx, &events); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing audit events: %w", err))
	}
	return events, nil
}

// page finds the page first and then looks up its places in the chain.
func (q eventsQuery) page(idb bun.IDB, p input.Page[eventPlace]) *bun.SelectQuery {
	page := idb.NewSelect().TableExpr("audit_log").ColumnExpr("*").Where("tenant_id = ?", q.tenantID).
		OrderExpr("at DESC, id DESC").Limit(int64(p.First + 1))
	if p.After != "" {
		page.Where("(at, id) < (?, ?::bigint)", time.UnixMicro(p.Place.At), p.Place.ID)
	}
	if len(q.hidden) > 0 {
		page.Where("object NOT IN (?)", bun.List(q.hidden))
	}
	if q.filter != nil {
		narrow(page, q.filter)
	}
	return idb.NewSelect().TableExpr("(?) AS l", page).Join("LEFT JOIN audit_chain AS c ON c.audit_id = l.id").
		ColumnExpr("l.id::text AS id, l.at, nullif(l.tenant_id, '') AS tenant_id, l.actor, l.action, l.object, l.outcome, l.request_id, l.details").
		ColumnExpr("c.seq, encode(c.hash, 'hex') AS hash").
		OrderExpr("l.at DESC, l.id DESC")
}

func narrow(q *bun.SelectQuery, f *model.AuditEventFilter) {
	for column, v := range map[string]*string{"actor": f.Actor, "action": f.Action, "object": f.Object, "request_id": f.RequestID} {
		if v != nil {
			q.Where("? = ?", bun.Ident(column), *v)
		}
	}
	if f.Outcome != nil {
		q.Where("outcome = ?", string(*f.Outcome))
	}
	if f.Since != nil {
		q.Where("at >= ?", f.Since.UTC())
	}
	if f.Until != nil {
		q.Where("at < ?", f.Until.UTC())
	}
}
