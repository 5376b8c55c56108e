package provideraccount

import (
	"context"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// GetInput names an account.
type GetInput struct {
	TenantID  string `json:"tenantId"`
	AccountID string `json:"accountId"`
}

// ListInput names a tenant.
type ListInput struct {
	TenantID string `json:"tenantId"`
}

// PageInput asks for one page of a tenant's accounts.
type PageInput struct {
	TenantID string  `json:"tenantId"`
	Provider *string `json:"provider"`
	First    *int    `json:"first"` // 1 to 100; nil: 50
	After    *string `json:"after"`
}

// Get gives the account to a caller who holds compute:providers:read on it. INVALID_INPUT, UNAUTHENTICATED, FORBIDDEN, or NOT_FOUND
// also for another tenant's.
func (s *Service) Get(ctx context.Context, in GetInput) (*model.ProviderAccount, error) {
	if err := s.admit(ctx, in, nil, model.ProvidersRead); err != nil {
		return nil, err
	}
	return readAccount(ctx, s.db, in.TenantID, in.AccountID)
}

// List gives all of the tenant's accounts that the caller holds compute:providers:read on, sorted by name in byte order.
// INVALID_INPUT, also when they are more than listBytes, UNAUTHENTICATED, or FORBIDDEN when there is neither a grant on the tenant nor on a single account.
func (s *Service) List(ctx context.Context, in ListInput) ([]*model.ProviderAccount, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	filter, err := s.authz.Filter(ctx, model.ProvidersRead, in.TenantID, authz.ProviderAccounts)
	if err != nil {
		return nil, err
	}
	return s.listAll(ctx, filter, in.TenantID)
}

const (
	// listBytes is about how much one answer may hold.
	listBytes = 8 << 20
	listPage  = 100
	// besidesConfig is about what an account takes without its config.
	besidesConfig = 500
)

// listAll reads them page by page, so that no more is in memory than may be told.
func (s *Service) listAll(ctx context.Context, f authz.Filter, tenantID string) ([]*model.ProviderAccount, error) {
	all, bytes := []*model.ProviderAccount{}, 0
	for q := (listQuery{tenantID: tenantID, limit: listPage}); ; q.afterName = all[len(all)-1].Name {
		page, err := listAccounts(ctx, s.db, f, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		for _, a := range page {
			bytes += len(a.Config) + besidesConfig
		}
		if bytes > listBytes {
			return nil, problem.New(problem.InvalidInput, "The tenant's accounts are more than one answer holds: read them by pages, with providerAccounts of the GraphQL API.").
				With("rule", "answer_bytes").With("limit", listBytes)
		}
		if len(page) < listPage {
			return all, nil
		}
	}
}

// Page is List by pages.
func (s *Service) Page(ctx context.Context, in PageInput) (*model.ProviderAccountConnection, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.cursors.List(ctx, "providerAccounts", in.TenantID, cursor.Optional(in.Provider))
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	if in.Provider != nil {
		checkProvider(&issues, *in.Provider)
	}
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[string](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	filter, err := s.authz.Filter(ctx, model.ProvidersRead, in.TenantID, authz.ProviderAccounts)
	if err != nil {
		return nil, err
	}
	accounts, err := listAccounts(ctx, s.db, filter, listQuery{
		tenantID: in.TenantID, afterName: p.Place, provider: in.Provider, limit: p.First + 1,
	})
	if err != nil {
		return nil, err
	}
	return model.NewConnection(accounts, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

// ByIDs gives those of the tenant's accounts that the caller holds compute:providers:read on, by id, in one query. What is not
// there or not readable is left out. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) ByIDs(ctx context.Context, tenantID string, ids []string) (map[string]*model.ProviderAccount, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	filter, err := s.authz.Held(ctx, model.ProvidersRead, tenantID, authz.ProviderAccounts)
	if err != nil || filter.None() {
		return nil, err
	}
	accounts, err := accountsByID(ctx, s.db, tenantID, filter.Of(ids))
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*model.ProviderAccount, len(accounts))
	for _, a := range accounts {
		byID[a.ID] = a
	}
	return byID, nil
}

// Node gives the account of that id, whichever tenant's it is, to a caller who holds compute:providers:read on it; nil when it is not
// there, not readable or no account's id. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) Node(ctx context.Context, accountID string) (*model.ProviderAccount, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if !id.Valid(idPrefix, accountID) {
		return nil, nil
	}
	account, err := oneAccount(ctx, s.db.DB, `SELECT `+columns+` FROM provider_accounts WHERE id = ?`, accountID)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if held, err := s.authz.Holds(ctx, model.ProvidersRead, authz.ProviderAccount(account.TenantID, account.ID)); !held {
		return nil, err
	}
	return account, nil
}

// admit lets a caller through who is one, asks properly, and may do it to the account.
func (s *Service) admit(ctx context.Context, at GetInput, more problem.Issues, p authz.Permission) error {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return err
	}
	var issues problem.Issues
	checkPlace(&issues, at.TenantID, at.AccountID)
	if err := append(issues, more...).Err(); err != nil {
		return err
	}
	return s.authz.Check(ctx, p, authz.ProviderAccount(at.TenantID, at.AccountID))
}
