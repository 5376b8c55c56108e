package provideraccount

import (
	"context"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// Live makes one call to the account's provider that a caller of the API waits for, under the limits of such calls and the breaker of the
// account, for another service that has decided already. The error is the call's own, or a problem. The client is good for that call only.
func (s *Service) Live(ctx context.Context, account *model.ProviderAccount, do func(context.Context, provider.Client) error) error {
	return s.waitedFor(ctx, account, func(ctx context.Context) error { return s.Background(ctx, account, do) })
}

// Peek is Live for a look that must change nothing: while the breaker is open no call goes out either, but it is neither tripped nor closed.
func (s *Service) Peek(ctx context.Context, account *model.ProviderAccount, do func(context.Context, provider.Client) error) error {
	return s.waitedFor(ctx, account, func(ctx context.Context) error {
		e, err := s.clients.begin(ctx, account)
		if err != nil {
			return err
		}
		_, _, err = s.clients.breaker.ask(ctx, e.account)
		if err == nil {
			err = do(ctx, e.client)
		}
		e.end(ctx, "", err)
		return err
	})
}

// waitedFor makes a call under the limits of those that a caller waits for.
func (s *Service) waitedFor(ctx context.Context, account *model.ProviderAccount, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	release, err := s.takeCall(ctx, account)
	if err != nil {
		return err
	}
	defer release()
	return call(ctx)
}

// Background is Live for what nobody waits for: no limit but the breaker holds it back, and ctx bounds it.
func (s *Service) Background(ctx context.Context, account *model.ProviderAccount, do func(context.Context, provider.Client) error) error {
	e, err := s.clients.begin(ctx, account)
	if err != nil {
		return err
	}
	stamp, err := s.clients.breaker.admit(ctx, e.account)
	if err == nil {
		err = do(ctx, e.client)
	}
	e.end(ctx, stamp, err)
	return err
}

// ask makes one live call with an answer, for a caller who holds compute:providers:read on the account when it comes.
func ask[T any](ctx context.Context, s *Service, at GetInput, capability string, do func(context.Context, provider.Client) (T, error)) (T, error) {
	var answer T
	account, err := readAccount(ctx, s.db, at.TenantID, at.AccountID)
	if err != nil {
		return answer, err
	}
	if err := s.supports(account.Provider, capability); err != nil {
		return answer, err
	}
	err = s.Live(ctx, account, func(ctx context.Context, c provider.Client) (err error) {
		answer, err = do(ctx, c)
		return err
	})
	if err != nil {
		err = provider.Problem(account.Provider, err)
	}
	if err := s.authz.ErrorFor(ctx, model.ProvidersRead, authz.ProviderAccount(at.TenantID, at.AccountID), err); err != nil {
		return *new(T), err
	}
	return answer, nil
}

// supports gives UNSUPPORTED, with details.missing, for what the manifest does not promise.
func (s *Service) supports(providerName, capability string) error {
	m, known := s.registry.Manifest(providerName)
	if !known {
		return noDriver(providerName)
	}
	can := map[string]bool{"offers": m.Capabilities.Offers, "machines": m.Capabilities.Machines}
	if can[capability] {
		return nil
	}
	return problem.New(problem.Unsupported, "%s does not list %s.", providerName, capability).
		With("provider", providerName).With("missing", []string{capability})
}
