package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provideraccount"
)

// Claims gives what is known of the order of each run, in one statement; nil for a run that named a machine. The runs are ones that this
// Service returned to the caller, so nothing is decided again.
func (s *Service) Claims(ctx context.Context, runs []*model.Bootstrap) ([]*model.BootstrapClaim, error) {
	rows, err := postgres.Read(ctx, s.DB, scanOrder, getOrders, idsOfRuns(runs))
	if err != nil {
		return nil, failed("reading orders", err)
	}
	byID := make(map[string]*run, len(rows))
	for _, row := range rows {
		byID[row.ID] = row
	}
	claims := make([]*model.BootstrapClaim, len(runs))
	for i, r := range runs {
		if row := byID[r.ID]; row != nil && r.OfferID != nil {
			claims[i] = row.claim(r)
		}
	}
	return claims, nil
}

const getOrders = `SELECT id, operation_id, order_intent, order_intent_at, order_attempt_at, order_ref, last_error
	FROM bootstraps WHERE id = ANY ($1)`

func scanOrder(row postgres.Row) (*run, error) {
	r := new(run)
	return r, row.Scan(&r.ID, &r.OperationID, &r.OrderIntent, &r.OrderIntentAt, &r.OrderAttemptAt, &r.OrderRef, &r.LastError)
}

// claim is what people see of the order. A run whose order another one took over shows what it sent.
func (r *run) claim(of *model.Bootstrap) *model.BootstrapClaim {
	c := &model.BootstrapClaim{
		OperationID: r.OperationID, OfferID: *of.OfferID, IntendedAt: at(r.OrderIntentAt), AttemptedAt: at(r.OrderAttemptAt),
		OrderRef: r.OrderRef, LastError: r.LastError, Run: of,
	}
	if r.OrderIntent != nil {
		c.OperationID, c.Price = r.OrderIntent.OperationID, r.OrderIntent.Price
	}
	return c
}

func at(t *time.Time) *model.Time {
	if t == nil {
		return nil
	}
	return &model.Time{Time: *t}
}

// Candidates lists those of the account's machines that no run and no host of anybody has, and no other order brought, for whoever has to say
// what became of an order; none unless the run waits for that. It asks the provider, for a caller who holds compute:providers:read on the account: errors as those of
// the account's machines.
func (s *Service) Candidates(ctx context.Context, c *model.BootstrapClaim) ([]*model.Machine, error) {
	if deref(c.Run.WaitReason) != model.ClaimUncertain {
		return []*model.Machine{}, nil
	}
	free, err := s.candidates(ctx, c)
	if err := s.Authz.ErrorFor(ctx, model.ProvidersRead, authz.ProviderAccount(c.Run.TenantID, c.Run.AccountID), err); err != nil {
		return nil, err
	}
	return free, nil
}

func (s *Service) candidates(ctx context.Context, c *model.BootstrapClaim) ([]*model.Machine, error) {
	machines, err := s.Accounts.Machines(ctx, provideraccount.GetInput{TenantID: c.Run.TenantID, AccountID: c.Run.AccountID})
	if err != nil {
		return nil, err
	}
	there, err := s.atProvider(ctx, c.Run)
	if err != nil {
		return nil, err
	}
	keys, err := s.keysOf(ctx, c.Run, machines)
	if err != nil {
		return nil, err
	}
	all := make([]string, 0, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	taken, err := reserved(ctx, s.DB.DB, all...)
	if err != nil {
		return nil, err
	}
	free := []*model.Machine{}
	for _, m := range machines {
		if !taken[keys[m.ID]] && (there.orders[m.ID] == "" || there.orders[m.ID] == c.OperationID) {
			free = append(free, m)
		}
	}
	return free, nil
}

// listing is what a provider says that the account has.
type listing struct {
	machines []*model.Machine  // nil where it cannot tell
	orders   map[string]string // the operation ids that machines carry, by machine; empty where it cannot tell
}

func (l listing) lists(machineID string) bool {
	return slices.ContainsFunc(l.machines, func(m *model.Machine) bool { return m.ID == machineID })
}

// atProvider asks the provider what the account of a run has.
func (s *Service) atProvider(ctx context.Context, r *model.Bootstrap) (l listing, err error) {
	account, err := s.Accounts.Account(ctx, s.DB.DB, r.TenantID, r.AccountID)
	if err != nil {
		return l, err
	}
	manifest, _ := s.Accounts.Manifest(account.Provider)
	var owned []provider.OwnedMachine
	err = s.Accounts.Live(ctx, account, func(ctx context.Context, c provider.Client) (err error) {
		if manifest.Capabilities.Machines {
			if l.machines, err = c.Machines(ctx); err != nil {
				return err
			}
			if l.machines == nil {
				l.machines = []*model.Machine{} // that there are none is told
			}
		}
		if claimant, ok := c.(provider.Claimant); ok {
			owned, err = claimant.Claims(ctx)
		}
		return err
	})
	if err != nil {
		return l, provider.Problem(account.Provider, err)
	}
	l.orders = make(map[string]string, len(owned))
	for _, m := range owned {
		l.orders[m.MachineID] = m.OperationID
	}
	return l, nil
}

// keysOf names the machines as reservations do. One that has no key cannot be reserved.
func (s *Service) keysOf(ctx context.Context, r *model.Bootstrap, machines []*model.Machine) (map[string]string, error) {
	account, err := s.Accounts.Account(ctx, s.DB.DB, r.TenantID, r.AccountID)
	if err != nil {
		return nil, err
	}
	client, err := s.Accounts.Open(ctx, account)
	if err != nil {
		return nil, provider.Problem(account.Provider, err)
	}
	b, ok := client.(provider.Bootstrapper)
	if !ok {
		return nil, fmt.Errorf("the client of %s is no Bootstrapper although its manifest says so", account.Provider)
	}
	keys := make(map[string]string, len(machines))
	for _, m := range machines {
		if key, err := b.MachineKey(m.ID); err == nil {
			keys[m.ID] = key
		}
	}
	return keys, nil
}
