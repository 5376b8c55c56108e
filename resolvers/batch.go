package resolvers

import (
	"context"

	"better/compute/model"
)

// accountsOf finds the account of each run; nil where it is gone or the caller may not read it.
func (r *Resolver) accountsOf(ctx context.Context, runs []*model.Bootstrap) ([]*model.ProviderAccount, error) {
	return lookUp(ctx, runs, func(b *model.Bootstrap) (tenantID, id string) { return b.TenantID, b.AccountID }, r.Accounts.ByIDs)
}

// poolsOf finds the pool of each run.
func (r *Resolver) poolsOf(ctx context.Context, runs []*model.Bootstrap) ([]*model.Pool, error) {
	return lookUp(ctx, runs, func(b *model.Bootstrap) (tenantID, id string) { return b.TenantID, b.PoolID }, r.Pools.ByIDs)
}

// accountsOfPools finds the account of each pool; nil where it has none or the caller may not read it.
func (r *Resolver) accountsOfPools(ctx context.Context, pools []*model.Pool) ([]*model.ProviderAccount, error) {
	return lookUp(ctx, pools, func(p *model.Pool) (tenantID, id string) {
		if p.AccountID == nil {
			return p.TenantID, ""
		}
		return p.TenantID, *p.AccountID
	}, r.Accounts.ByIDs)
}

// lookUp finds what each parent refers to, with one call for each tenant that the parents belong to.
func lookUp[P, T any](ctx context.Context, parents []*P, key func(*P) (tenantID, id string),
	byIDs func(ctx context.Context, tenantID string, ids []string) (map[string]*T, error),
) ([]*T, error) {
	wanted := map[string][]string{}
	for _, p := range parents {
		if tenantID, id := key(p); id != "" {
			wanted[tenantID] = append(wanted[tenantID], id)
		}
	}
	found := map[string]map[string]*T{}
	for tenantID, ids := range wanted {
		var err error
		if found[tenantID], err = byIDs(ctx, tenantID, ids); err != nil {
			return nil, err
		}
	}
	children := make([]*T, len(parents))
	for i, p := range parents {
		tenantID, id := key(p)
		children[i] = found[tenantID][id]
	}
	return children, nil
}
