package provideraccount

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// Actions of checks in the audit log.
const (
	checkAction       = "checkProviderAccount"
	checkConfigAction = "checkProviderConfig"
)

// Check asks the provider whether it takes the account's credentials, for a caller who holds compute:providers:manage on the account, and
// keeps the answer with the account until its next update. It is the one call that goes out although the provider has refused before;
// when it passes, all others do again. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, NOT_FOUND, INVALID_CONFIG without a driver,
// RATE_LIMITED when too many calls wait, or CONFLICT when the account was changed meanwhile. That the provider refuses or cannot be
// reached is an answer and no error. Each call asks anew.
func (s *Service) Check(ctx context.Context, in model.CheckProviderAccountInput) (*model.ProviderAccount, error) {
	at := GetInput(in)
	if err := s.admit(ctx, at, nil, model.ProvidersManage); err != nil {
		return nil, err
	}
	account, err := readAccount(ctx, s.db, at.TenantID, at.AccountID)
	if err != nil {
		return nil, err
	}
	stamp, err := s.Stamp(ctx, s.db.DB, account)
	_, unknown := errors.AsType[*provider.Error](err)
	if err != nil && !unknown {
		return nil, err
	}
	answer := err
	if !unknown {
		answer = s.check(ctx, account, stamp)
	}
	s.reach("checking.answered")
	object := authz.ProviderAccount(at.TenantID, at.AccountID)
	result, err := checkResult(account.Provider, answer)
	if err != nil {
		return nil, s.authz.ErrorFor(ctx, model.ProvidersManage, object, err)
	}
	var checked *model.ProviderAccount
	err = s.authz.Holding(ctx, authz.Need(model.ProvidersManage, object), func(ctx context.Context, tx bun.Tx) error {
		if checked, err = storeCheck(ctx, tx, account, result); err != nil {
			return err
		}
		return record(ctx, tx, checkAction, audit.Allowed, checked)
	})
	if err != nil {
		return nil, err
	}
	s.reach("checking.committed")
	return checked, nil
}

// check makes the call, at the project that the stamp names or not at all.
func (s *Service) check(ctx context.Context, account *model.ProviderAccount, stamp string) error {
	return s.waitedFor(AtStamp(ctx, stamp), account, func(ctx context.Context) error {
		e, err := s.clients.begin(ctx, account)
		if err != nil {
			return err
		}
		err = e.client.Check(ctx)
		e.end(ctx, stamp, err)
		return err
	})
}

// CheckConfig asks the provider whether it takes the credentials of a config that no account has yet, for a caller who holds
// compute:providers:manage on the tenant. Nothing of it is kept but that it was asked, in the audit log. UNAUTHENTICATED, INVALID_INPUT
// as in Create, FORBIDDEN, or RATE_LIMITED when too many calls wait. That the provider refuses or cannot be reached is an answer and no
// error. Each call asks anew.
func (s *Service) CheckConfig(ctx context.Context, in model.CheckProviderConfigInput) (*model.ProviderAccountCheck, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	checkProvider(&issues, in.Provider)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := s.authz.Check(ctx, model.ProvidersManage, authz.Tenant(in.TenantID)); err != nil {
		return nil, err
	}
	config := configOrEmpty(in.Config)
	if err := s.checkConfig(in.Provider, config); err != nil {
		return nil, err
	}
	result, err := checkResult(in.Provider, s.try(ctx, &model.ProviderAccount{TenantID: in.TenantID, Provider: in.Provider, Config: config}))
	if err != nil {
		return nil, s.authz.ErrorFor(ctx, model.ProvidersManage, authz.Tenant(in.TenantID), err)
	}
	needs := authz.Need(model.ProvidersManage, authz.Tenant(in.TenantID))
	err = s.authz.Holding(ctx, needs, func(ctx context.Context, tx bun.Tx) error {
		if err := tx.NewRaw("SELECT clock_timestamp()").Scan(ctx, &result.At.Time); err != nil {
			return fmt.Errorf("reading the time: %w", err)
		}
		return audit.Record(ctx, tx, audit.Entry{
			TenantID: in.TenantID, Action: checkConfigAction, Object: authz.Tenant(in.TenantID).String(), Outcome: audit.Allowed,
			Details: map[string]any{"provider": in.Provider, "ok": result.OK},
		})
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// try makes the call with a client that is for it alone. The tenant's tries share the places of one account.
func (s *Service) try(ctx context.Context, unsaved *model.ProviderAccount) error {
	place := &model.ProviderAccount{ID: "config of " + unsaved.TenantID, TenantID: unsaved.TenantID, Provider: unsaved.Provider}
	return s.waitedFor(ctx, place, func(ctx context.Context) error {
		client, err := s.clients.open(ctx, unsaved)
		if err != nil {
			return err
		}
		return errors.Join(client.Check(ctx), client.Close())
	})
}

// checkResult is what is kept of a provider's answer; the time is the database's. What is not the provider's doing is an error.
func checkResult(name string, answer error) (*model.ProviderAccountCheck, error) {
	if answer == nil {
		return &model.ProviderAccountCheck{OK: true}, nil
	}
	err := provider.Problem(name, answer)
	p := problem.From(err)
	if p.Code != problem.ProviderError {
		return nil, err
	}
	reason, _ := p.Details["reason"].(string)
	return &model.ProviderAccountCheck{Reason: &reason, Message: p.Message}, nil
}

// storeCheck keeps the result, and opens the way for other calls when the provider took the credentials.
func storeCheck(ctx context.Context, tx bun.IDB, a *model.ProviderAccount, c *model.ProviderAccountCheck) (*model.ProviderAccount, error) {
	checked, err := oneAccount(ctx, tx, `UPDATE provider_accounts SET
			last_check = jsonb_build_object('ok', ?0::boolean, 'reason', ?1::text, 'message', ?2::text, 'at', clock_timestamp()),
			refused_stamp = CASE WHEN ?0 THEN NULL ELSE refused_stamp END,
			refused_at = CASE WHEN ?0 THEN NULL ELSE refused_at END
		WHERE id = ?3 AND tenant_id = ?4 AND version = ?5 RETURNING `+columns,
		c.OK, c.Reason, c.Message, a.ID, a.TenantID, a.Version)
	if problem.Is(err, problem.NotFound) {
		return nil, problem.New(problem.Conflict, "The account was changed while it was being checked; check it again.")
	}
	if err != nil {
		return nil, fmt.Errorf("keeping a check: %w", err)
	}
	return checked, nil
}
