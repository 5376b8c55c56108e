package resolvers

import (
	"context"
	"maps"
	"slices"

	"better/compute/model"
)

// accountsOf finds the account of each run; nil where it is gone or the caller may not read it.
func (r *Resolver) accountsOf(ctx context.Context, runs []*model.Bootstrap) ([]*model.ProviderAccount, error) {
	return together(runs, siblingsOfRun, "accounts", func(runs []*model.Bootstrap) ([]*model.ProviderAccount, error) {
		return lookUp(ctx, runs, func(b *model.Bootstrap) (tenantID, id string) { return b.TenantID, b.AccountID }, r.Accounts.ByIDs)
	})
}

// poolsOf finds the pool of each run; nil where the caller may not read it.
func (r *Resolver) poolsOf(ctx context.Context, runs []*model.Bootstrap) ([]*model.Pool, error) {
	return together(runs, siblingsOfRun, "pools", func(runs []*model.Bootstrap) ([]*model.Pool, error) {
		pools, err := lookUp(ctx, runs, func(b *model.Bootstrap) (tenantID, id string) { return b.TenantID, b.PoolID }, r.Pools.ByIDs)
		return joinPools(pools), err
	})
}

// historiesOf reads the history of each run.
func (r *Resolver) historiesOf(ctx context.Context, runs []*model.Bootstrap) ([][]*model.BootstrapTransition, error) {
	return together(runs, siblingsOfRun, "histories", func(runs []*model.Bootstrap) ([][]*model.BootstrapTransition, error) {
		return r.Bootstraps.Histories(ctx, runs)
	})
}

// claimsOf reads what is known of the order of each run; nil where it named a machine.
func (r *Resolver) claimsOf(ctx context.Context, runs []*model.Bootstrap) ([]*model.BootstrapClaim, error) {
	return together(runs, siblingsOfRun, "claims", func(runs []*model.Bootstrap) ([]*model.BootstrapClaim, error) {
		return r.Bootstraps.Claims(ctx, runs)
	})
}

// accountsOfPools finds the account of each pool; nil where it has none or the caller may not read it.
func (r *Resolver) accountsOfPools(ctx context.Context, pools []*model.Pool) ([]*model.ProviderAccount, error) {
	return together(pools, siblingsOfPool, "accounts", func(pools []*model.Pool) ([]*model.ProviderAccount, error) {
		return lookUp(ctx, pools, func(p *model.Pool) (tenantID, id string) {
			if p.AccountID == nil {
				return p.TenantID, ""
			}
			return p.TenantID, *p.AccountID
		}, r.Accounts.ByIDs)
	})
}

func siblingsOfRun(b *model.Bootstrap) *model.Siblings[model.Bootstrap] { return b.Siblings }
func siblingsOfPool(p *model.Pool) *model.Siblings[model.Pool]          { return p.Siblings }

// joinRuns makes the runs of all pages siblings. The executor asks for what hangs on the runs of one page at a time, so that a list
// of fifty accounts would take fifty times the statements.
func joinRuns(pages ...*model.BootstrapConnection) {
	var runs []*model.Bootstrap
	for _, page := range pages {
		runs = append(runs, page.Nodes()...)
	}
	all := model.NewSiblings(runs)
	for _, b := range runs {
		b.Siblings = all
	}
}

// joinPools makes pools siblings, and gives them back.
func joinPools(pools []*model.Pool) []*model.Pool {
	there := map[*model.Pool]bool{} // runs into one pool share it
	for _, p := range pools {
		if p != nil {
			there[p] = true
		}
	}
	all := model.NewSiblings(slices.Collect(maps.Keys(there)))
	for p := range there {
		p.Siblings = all
	}
	return pools
}

// together reads something for the parents: with that of all their siblings, once, where they have some.
func together[P, V any](parents []*P, siblings func(*P) *model.Siblings[P], name string, read func([]*P) ([]V, error)) ([]V, error) {
	if len(parents) == 0 {
		return nil, nil
	}
	all := siblings(parents[0])
	if all == nil {
		return read(parents)
	}
	found, err := model.ReadTogether(all, name, func(rows []*P) (map[*P]V, error) {
		values, err := read(rows)
		if err != nil {
			return nil, err
		}
		found := make(map[*P]V, len(rows))
		for i, row := range rows {
			found[row] = values[i]
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	values := make([]V, len(parents))
	for i, p := range parents {
		values[i] = found[p]
	}
	return values, nil
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
