package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// columns are those of a run that callers see.
const columns = "b.id, b.tenant_id, b.account_id, b.pool_id, b.machine_id, b.offer_id, b.status, b.step, b.wait_reason, b.failure, " +
	"b.cleanup, b.attempt, b.host_id, b.created_at, b.updated_at, b.deadline_at, b.joined_at, b.retry_of"

// Get gives the run to a caller who holds compute:providers:read on its account. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, or NOT_FOUND
// also for another tenant's.
func (s *Service) Get(ctx context.Context, tenantID, bootstrapID string) (*model.Bootstrap, error) {
	r, err := s.find(ctx, model.ProvidersRead, tenantID, bootstrapID)
	if err != nil {
		return nil, err
	}
	return &r.Bootstrap, nil
}

// find checks the ids, reads the run and decides. The right is judged on the account, which the caller does not name: so a run
// that is not there, or whose account the caller may not touch, gets the answer that the tenant gets, and nobody learns which
// runs exist. Only when that is yes, it is NOT_FOUND.
func (s *Service) find(ctx context.Context, p model.Permission, tenantID, bootstrapID string) (*run, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var check checklist
	check.tenant(tenantID)
	check.id("bootstrapId", "boot", bootstrapID)
	if err := check.err(); err != nil {
		return nil, err
	}
	r, err := load(ctx, s.DB.DB, tenantID, bootstrapID)
	if err != nil {
		return nil, err
	}
	if r != nil {
		held, err := s.Authz.Holds(ctx, p, authz.ProviderAccount(tenantID, r.AccountID))
		if err != nil {
			return nil, err
		}
		if held {
			return r, nil
		}
	}
	if err := s.Authz.Check(ctx, p, authz.Tenant(tenantID)); err != nil {
		return nil, err
	}
	return nil, noRun()
}

func noRun() error { return problem.New(problem.NotFound, "There is no such bootstrap.") }

// PageQuery says which runs to list, those of all tenants without a TenantID; AccountID and PoolID, which take one, and the others narrow
// it. First is 1 to 100, by default 50.
type PageQuery struct {
	TenantID    *string
	AccountID   *string
	PoolID      *string
	Statuses    []model.BootstrapStatus
	WaitReasons []string
	Cleanups    []model.CleanupStatus
	First       *int
	After       *string
}

// Page lists the tenant's runs whose accounts the caller holds compute:providers:read on, newest first. INVALID_INPUT, UNAUTHENTICATED,
// or FORBIDDEN when there is no such account, when AccountID names one that the caller may not read, or without a tenant to who does
// not hold it on the fleet.
func (s *Service) Page(ctx context.Context, q PageQuery) (*model.BootstrapConnection, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.Cursors.List(ctx, "bootstraps", deref(q.TenantID), cursor.Optional(q.AccountID), cursor.Optional(q.PoolID),
		setOf(q.Statuses), setOf(q.WaitReasons), setOf(q.Cleanups))
	if err != nil {
		return nil, err
	}
	var check checklist
	check.optionalTenant(q.TenantID)
	check.inTenant("accountId", "pacct", q.TenantID, q.AccountID)
	check.inTenant("poolId", "pool", q.TenantID, q.PoolID)
	check.statuses(q.Statuses)
	check.waitReasons(q.WaitReasons)
	check.cleanups(q.Cleanups)
	p := input.CheckPage(&check.issues, q.First, q.After, cursor.Decode[*place](list))
	if err := check.err(); err != nil {
		return nil, err
	}
	visible, err := s.readable(ctx, q.TenantID, q.AccountID)
	if err != nil {
		return nil, err
	}
	var items []*model.Bootstrap
	if err := pageOf(s.DB.NewSelect().Model(&items), visible, q, p).Scan(ctx); err != nil {
		return nil, failed("listing runs", err)
	}
	return model.NewConnection(items, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

func pageOf(query *bun.SelectQuery, visible visible, q PageQuery, p input.Page[*place]) *bun.SelectQuery {
	query = visible(query.ModelTableExpr("bootstraps AS b").ColumnExpr(columns), "b")
	return newest(p, narrow(query, q))
}

// setOf names a set, in whatever order and how often its members were given.
func setOf[T ~string](members []T) string {
	return fmt.Sprintf("%q", distinct(members))
}

func distinct[T ~string](members []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(members)))
}

// visible keeps a query to the rows that the caller may see of the table, which has the columns tenant_id and account_id.
type visible func(query *bun.SelectQuery, table string) *bun.SelectQuery

// readable decides which accounts' rows the caller may see: of one, of all of a tenant, or without a tenant of all there are.
func (s *Service) readable(ctx context.Context, tenantID, accountID *string) (visible, error) {
	if tenantID == nil {
		f, err := s.Authz.FilterFleet(ctx, model.ProvidersRead, authz.ProviderAccounts)
		return func(q *bun.SelectQuery, table string) *bun.SelectQuery {
			return f.Where(q, table+".tenant_id", table+".account_id")
		}, err
	}
	f := authz.Filter{All: true}
	var err error
	if accountID == nil {
		f, err = s.Authz.Filter(ctx, model.ProvidersRead, *tenantID, authz.ProviderAccounts)
	} else {
		err = s.Authz.Check(ctx, model.ProvidersRead, authz.ProviderAccount(*tenantID, *accountID))
	}
	return func(q *bun.SelectQuery, table string) *bun.SelectQuery {
		return f.Where(q, table+".account_id").Where("?.tenant_id = ?", bun.Ident(table), *tenantID)
	}, err
}

func narrow(query *bun.SelectQuery, q PageQuery) *bun.SelectQuery {
	if q.AccountID != nil {
		query = query.Where("b.account_id = ?", *q.AccountID)
	}
	if q.PoolID != nil {
		query = query.Where("b.pool_id = ?", *q.PoolID)
	}
	if len(q.WaitReasons) > 0 {
		query = query.Where("b.wait_reason IN (?)", bun.List(distinct(q.WaitReasons)))
	}
	if len(q.Cleanups) > 0 {
		query = query.Where("b.cleanup IN (?)", bun.List(distinct(q.Cleanups)))
	}
	return ofStatuses(query, q.Statuses)
}

func ofStatuses(query *bun.SelectQuery, statuses []model.BootstrapStatus) *bun.SelectQuery {
	if len(statuses) > 0 {
		query = query.Where("b.status IN (?)", bun.List(distinct(statuses)))
	}
	return query
}

// newest orders and cuts the query to the page and the one run after it.
func newest(p input.Page[*place], query *bun.SelectQuery) *bun.SelectQuery {
	if p.Place != nil {
		query = query.Where("(b.created_at, b.id) < (?, ?)", p.Place.createdAt(), p.Place.ID)
	}
	return query.OrderExpr("b.created_at DESC, b.id DESC").Limit(int64(p.First + 1))
}

// ByAccounts reads the newest runs of each account, in one statement however many there are: the answer has one page for each
// account, in the order given. A cursor is of the list of one account, so there is no next page of several at once. INVALID_INPUT, or
// FORBIDDEN when there is one among them that the caller does not hold compute:providers:read on.
func (s *Service) ByAccounts(ctx context.Context, accounts []*model.ProviderAccount, statuses []model.BootstrapStatus, first *int,
	after *string,
) ([]*model.BootstrapConnection, error) {
	lists := make([]cursor.List, len(accounts))
	for i, a := range accounts {
		var err error
		if lists[i], err = s.Cursors.List(ctx, "ProviderAccount.bootstraps", a.TenantID, a.ID, setOf(statuses)); err != nil {
			return nil, err
		}
	}
	var check checklist
	check.statuses(statuses)
	p := input.CheckPage(&check.issues, first, after, ofAll(lists))
	if err := check.err(); err != nil {
		return nil, err
	}
	if err := s.mayReadAll(ctx, accounts); err != nil {
		return nil, err
	}
	text, args := lastOfEach(accounts, statuses, p)
	items, err := postgres.Read(ctx, s.DB, scanBootstrap, text, args...)
	if err != nil {
		return nil, failed("listing runs of accounts", err)
	}
	byAccount := map[string][]*model.Bootstrap{}
	for _, b := range items {
		byAccount[b.AccountID] = append(byAccount[b.AccountID], b)
	}
	pages := make([]*model.BootstrapConnection, len(accounts))
	for i, a := range accounts {
		pages[i] = model.NewConnection(byAccount[a.ID], p.First, p.After, cursor.Encode(lists[i], placeOf))
	}
	return pages, nil
}

// lastOfEach has one of four texts.
func lastOfEach(accounts []*model.ProviderAccount, statuses []model.BootstrapStatus, p input.Page[*place]) (text string, args []any) {
	tenants, ids := make([]string, len(accounts)), make([]string, len(accounts))
	for i, a := range accounts {
		tenants[i], ids[i] = a.TenantID, a.ID
	}
	args = []any{tenants, ids, p.First + 1}
	narrowed := ""
	if len(statuses) > 0 {
		args = append(args, distinct(statuses))
		narrowed += fmt.Sprintf(" AND b.status = ANY ($%d)", len(args))
	}
	if p.Place != nil {
		args = append(args, p.Place.createdAt(), p.Place.ID)
		narrowed += fmt.Sprintf(" AND (b.created_at, b.id) < ($%d, $%d)", len(args)-1, len(args))
	}
	return `SELECT ` + columns + ` FROM unnest($1::text[], $2::text[]) AS a (tenant_id, id) CROSS JOIN LATERAL (
			SELECT b.* FROM bootstraps AS b WHERE b.tenant_id = a.tenant_id AND b.account_id = a.id` + narrowed + `
			ORDER BY b.created_at DESC, b.id DESC LIMIT $3) AS b
		ORDER BY b.created_at DESC, b.id DESC`, args
}

// ofAll reads a cursor that is one of each list.
func ofAll(lists []cursor.List) func(string) (*place, bool) {
	return func(text string) (at *place, ok bool) {
		for _, l := range lists {
			if at, ok = cursor.Decode[*place](l)(text); !ok {
				return nil, false
			}
		}
		return at, true
	}
}

// mayReadAll decides once for each tenant.
func (s *Service) mayReadAll(ctx context.Context, accounts []*model.ProviderAccount) error {
	filters := map[string]authz.Filter{}
	for _, a := range accounts {
		f, ok := filters[a.TenantID]
		if !ok {
			var err error
			if f, err = s.Authz.Filter(ctx, model.ProvidersRead, a.TenantID, authz.ProviderAccounts); err != nil {
				return err
			}
			filters[a.TenantID] = f
		}
		if !f.Allows(a.ID) {
			return s.Authz.Check(ctx, model.ProvidersRead, authz.ProviderAccount(a.TenantID, a.ID))
		}
	}
	return nil
}

// Histories reads the history of each run, oldest step first, in one statement. The runs are ones that this Service returned to
// the caller, so nothing is decided again.
func (s *Service) Histories(ctx context.Context, runs []*model.Bootstrap) ([][]*model.BootstrapTransition, error) {
	steps, err := postgres.Read(ctx, s.DB, scanStep, getHistories, idsOfRuns(runs))
	if err != nil {
		return nil, failed("reading histories", err)
	}
	byRun := map[string][]*model.BootstrapTransition{}
	for _, s := range steps {
		byRun[s.runID] = append(byRun[s.runID], &s.BootstrapTransition)
	}
	histories := make([][]*model.BootstrapTransition, len(runs))
	for i, r := range runs {
		histories[i] = byRun[r.ID]
	}
	return histories, nil
}

const getHistories = `SELECT bootstrap_id, from_status, to_status, at, reason, lead(at) OVER (PARTITION BY bootstrap_id ORDER BY id)
	FROM bootstrap_transitions WHERE bootstrap_id = ANY ($1) ORDER BY bootstrap_id, id`

// step is a transition, with the run that made it.
type step struct {
	runID string
	model.BootstrapTransition
}

func scanStep(row postgres.Row) (*step, error) {
	s := new(step)
	return s, row.Scan(&s.runID, &s.From, (*string)(&s.To), &s.At.Time, &s.Reason, &s.Until)
}
