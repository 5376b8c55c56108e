package provideraccount

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"better/compute/internal/problem"
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
		machines, err := c.Machines(ctx)
		if err != nil {
			return nil, err
		}
		return provider.CheckMachines(machines)
	})
}

// callLimits bounds the calls in flight. A call takes its account's slot first, then its tenant's, its provider's and the replica's, so what
// waits for a narrow limit never holds a wide one.
type callLimits struct {
	deadline time.Duration
	replica  *semaphore.Weighted

	mu        sync.Mutex
	accounts  map[string]*slots
	tenants   map[string]*slots
	providers map[string]*slots
}

// slots is one limit, which lives as long as somebody uses or waits for it.
type slots struct {
	*semaphore.Weighted
	users int
}

func newCallLimits() *callLimits {
	return &callLimits{
		deadline:  callDeadline,
		replica:   semaphore.NewWeighted(callsPerReplica),
		accounts:  map[string]*slots{},
		tenants:   map[string]*slots{},
		providers: map[string]*slots{},
	}
}

// take waits for a place. RATE_LIMITED, with details.retryAfterSeconds, when none got free before the deadline.
func (l *callLimits) take(ctx context.Context, a *model.ProviderAccount) (release func(), err error) {
	account, leaveAccount := l.join(l.accounts, a.ID, callsPerAccount)
	tenant, leaveTenant := l.join(l.tenants, a.TenantID, callsPerTenant)
	ofProvider, leaveProvider := l.join(l.providers, a.Provider, callsPerProvider)
	leave := func() { leaveAccount(); leaveTenant(); leaveProvider() }

	taken := make([]*semaphore.Weighted, 0, 4)
	release = func() {
		for _, w := range taken {
			w.Release(1)
		}
		leave()
	}
	for _, w := range []*semaphore.Weighted{account.Weighted, tenant.Weighted, ofProvider.Weighted, l.replica} {
		if err := w.Acquire(ctx, 1); err != nil {
			release()
			if errors.Is(err, context.Canceled) {
				return nil, err
			}
			return nil, problem.New(problem.RateLimited, "Too many calls to the provider are waiting; try again later.").
				With("retryAfterSeconds", 1).Because(err)
		}
		taken = append(taken, w)
	}
	return release, nil
}

func (l *callLimits) join(in map[string]*slots, key string, size int64) (s *slots, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = in[key]
	if s == nil {
		s = &slots{Weighted: semaphore.NewWeighted(size)}
		in[key] = s
	}
	s.users++
	return s, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(in, key)
		}
	}
}
