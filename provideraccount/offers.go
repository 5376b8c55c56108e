package provideraccount

import (
	"context"
	"errors"
	"time"

	"better/compute/internal/problem"
	"better/compute/internal/slots"
	"better/compute/model"
	"better/compute/provider"
)

// Limits of the calls that callers of the API wait for. One provider that hangs never takes every slot of the replica, nor does one tenant
// with accounts that do.
const (
	callsPerAccount  = 4
	callsPerTenant   = 5
	callsPerProvider = 12
	callsPerReplica  = 16
	callDeadline     = 30 * time.Second
)

// OffersInput asks for an account's offers.
type OffersInput struct {
	TenantID  string            `json:"tenantId"`
	AccountID string            `json:"accountId"`
	Query     *model.OfferQuery `json:"query"`
}

// Offers lists what the provider has to offer at this moment, for a caller who holds compute:providers:read on the account.
// Sorted by hourly price, then by monthly price those that have no hourly one, then those without, then by id. UNAUTHENTICATED,
// INVALID_INPUT, FORBIDDEN, NOT_FOUND, UNSUPPORTED, RATE_LIMITED when too many calls wait, or PROVIDER_ERROR.
func (s *Service) Offers(ctx context.Context, in OffersInput) ([]*model.Offer, error) {
	var issues problem.Issues
	checkQuery(&issues, in.Query)
	at := GetInput{TenantID: in.TenantID, AccountID: in.AccountID}
	if err := s.admit(ctx, at, issues, model.ProvidersRead); err != nil {
		return nil, err
	}
	offers, err := ask(ctx, s, at, "offers", func(ctx context.Context, c provider.Client) ([]*model.Offer, error) {
		offers, err := c.Offers(ctx)
		if err != nil {
			return nil, err
		}
		return provider.CheckOffers(offers)
	})
	if err != nil {
		return nil, err
	}
	offers = provider.FilterOffers(offers, in.Query)
	provider.SortOffers(offers)
	return offers, nil
}

// Machines asks the provider for the account's machines, sorted by id, for a caller who holds compute:providers:read on the account.
// Errors as in Offers.
func (s *Service) Machines(ctx context.Context, in GetInput) ([]*model.Machine, error) {
	if err := s.admit(ctx, in, nil, model.ProvidersRead); err != nil {
		return nil, err
	}
	return ask(ctx, s, in, "machines", func(ctx context.Context, c provider.Client) ([]*model.Machine, error) {
		listed, err := c.Machines(ctx)
		if err != nil {
			return nil, err
		}
		machines, err := provider.CheckMachines(listed)
		if err != nil {
			return nil, err
		}
		return machines, markInUse(ctx, &inventory{db: s.db, accountID: in.AccountID}, c, machines)
	})
}

// markInUse says of each machine of the account whether it could be bootstrapped.
func markInUse(ctx context.Context, book *inventory, c provider.Client, machines []*model.Machine) error {
	var keyed []provider.KeyedMachine
	if b, ok := c.(provider.Bootstrapper); ok {
		for _, m := range machines {
			if key, err := b.MachineKey(m.ID); err == nil { // one without a key is found by its account
				keyed = append(keyed, provider.KeyedMachine{MachineID: m.ID, Key: key})
			}
		}
	}
	taken, err := book.Taken(ctx, keyed)
	for _, m := range machines {
		m.InUse = taken[m.ID]
	}
	return err
}

// The levels of the slots of calls.
const (
	perAccount  = "account"
	perTenant   = "tenant"
	perProvider = "provider"
	perReplica  = "replica"
)

// newCalls gives the slots that a call takes: its account's, its tenant's, its provider's and then the replica's.
func newCalls() *slots.Set {
	return slots.New(
		slots.Level{Name: perAccount, PerKey: callsPerAccount}, slots.Level{Name: perTenant, PerKey: callsPerTenant},
		slots.Level{Name: perProvider, PerKey: callsPerProvider}, slots.Level{Name: perReplica, PerKey: callsPerReplica},
	)
}

// takeCall waits for a call's slots. RATE_LIMITED, with details.retryAfterSeconds, when they did not get free before the end of ctx.
func (s *Service) takeCall(ctx context.Context, a *model.ProviderAccount) (release func(), err error) {
	release, err = s.calls.Take(ctx,
		slots.Key{Level: perAccount, Name: a.ID}, slots.Key{Level: perTenant, Name: a.TenantID},
		slots.Key{Level: perProvider, Name: a.Provider}, slots.Key{Level: perReplica},
	)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, problem.New(problem.RateLimited, "Too many calls to the provider are waiting; try again later.").
			With("retryAfterSeconds", 1).Because(err)
	}
	return release, err
}
