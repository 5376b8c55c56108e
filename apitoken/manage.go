package apitoken

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Actions of this package in the audit log.
const (
	createAction = "createApiToken"
	revokeAction = "revokeApiToken"
)

// PageInput says which tokens to list: those of a tenant, or with nil those of the fleet.
type PageInput struct {
	TenantID *string
	First    *int // 1 to 100; nil: 50
	After    *string
}

// Create makes a token, for a caller who holds compute:iam:manage on the tenant, or on the fleet, and everything that its subject is
// allowed anywhere. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN or UNAVAILABLE. Not idempotent.
func (s *Service) Create(ctx context.Context, in model.CreateAPITokenInput) (*model.CreateAPITokenPayload, error) {
	actor, err := s.authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	d := draft{tenantID: in.TenantID, name: in.Name, expiresAt: in.ExpiresAt}
	if in.Description != nil {
		d.description = *in.Description
	}
	if err := s.check(ctx, d); err != nil {
		return nil, err
	}
	created := &model.CreateAPITokenPayload{Token: newToken()}
	err = s.authz.Covering(ctx, owner(d.tenantID), subjectOf(d.tenantID, d.name), func(ctx context.Context, tx bun.Tx) (err error) {
		if created.APIToken, err = insert(ctx, tx, actor.Subject, created.Token, d); err != nil {
			return err
		}
		return audit.Record(ctx, tx, entry(createAction, audit.Allowed, created.APIToken))
	})
	if err != nil {
		return nil, err
	}
	return created, nil
}

func (s *Service) check(ctx context.Context, d draft) error {
	var issues problem.Issues
	checkNew(&issues, d.tenantID, d.name, d.description)
	if d.expiresAt != nil {
		past, err := isPast(ctx, s.db, d.expiresAt.Time)
		if err != nil {
			return err
		}
		if past {
			issues.Add("expiresAt", "must be in the future")
		}
	}
	return issues.Err()
}

// Revoke ends a token, in every replica within a second, for a caller who holds compute:iam:manage on the tenant, or on the
// fleet. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, NOT_FOUND also for another owner's, or UNAVAILABLE. Idempotent.
func (s *Service) Revoke(ctx context.Context, in model.RevokeAPITokenInput) (*model.RevokeAPITokenPayload, error) {
	actor, err := s.authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	checkOwner(&issues, in.TenantID)
	input.ID(&issues, "tokenId", idPrefix, in.TokenID)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := s.authz.Check(ctx, model.IAMManage, owner(in.TenantID)); err != nil {
		return nil, err
	}
	revoked := new(model.RevokeAPITokenPayload)
	find := func(ctx context.Context, tx bun.Tx) (err error) {
		*revoked = model.RevokeAPITokenPayload{}
		revoked.APIToken, err = lock(ctx, tx, in.TenantID, in.TokenID)
		return err
	}
	// It may be the very token that the caller came with.
	err = s.authz.Ending(ctx, authz.Need(model.IAMManage, owner(in.TenantID)), find, func(ctx context.Context, tx bun.Tx) (err error) {
		if revoked.APIToken.RevokedAt != nil {
			return audit.Record(ctx, tx, entry(revokeAction, audit.Replayed, revoked.APIToken))
		}
		if revoked.APIToken, err = revoke(ctx, tx, actor.Subject, in.TokenID); err != nil {
			return err
		}
		revoked.Revoked = true
		return audit.Record(ctx, tx, entry(revokeAction, audit.Allowed, revoked.APIToken))
	})
	if err != nil {
		return nil, err
	}
	return revoked, nil
}

// Page gives tokens, newest first, those that do not count any more included, to a caller who holds compute:iam:manage on the tenant, or
// on the fleet. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN or UNAVAILABLE.
func (s *Service) Page(ctx context.Context, in PageInput) (*model.APITokenConnection, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.cursors.List(ctx, "apiTokens", stored(in.TenantID))
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	checkOwner(&issues, in.TenantID)
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[place](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := s.authz.Check(ctx, model.IAMManage, owner(in.TenantID)); err != nil {
		return nil, err
	}
	tokens, err := selectPage(ctx, s.db.DB, in.TenantID, p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(tokens, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

// entry names the token by its id, which gives nobody anything.
func entry(action string, outcome audit.Outcome, t *model.APIToken) audit.Entry {
	details := map[string]any{"tokenId": t.ID, "subject": t.Subject}
	if t.ExpiresAt != nil {
		details["expiresAt"] = *t.ExpiresAt
	}
	return audit.Entry{TenantID: stored(t.TenantID), Action: action, Object: owner(t.TenantID).String(), Outcome: outcome, Details: details}
}
