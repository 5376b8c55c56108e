package apitoken

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Issue makes a token. There is no decision: it is for the operator at the machine, whom by names in the audit log.
// INVALID_INPUT as in Create. Not idempotent.
func Issue(ctx context.Context, db *postgres.DB, by string, in model.CreateAPITokenInput) (*model.CreateAPITokenPayload, error) {
	s := New(Deps{DB: db})
	d := draft{tenantID: in.TenantID, name: in.Name, expiresAt: in.ExpiresAt}
	if in.Description != nil {
		d.description = *in.Description
	}
	if err := s.check(ctx, d); err != nil {
		return nil, err
	}
	created := &model.CreateAPITokenPayload{Token: newToken()}
	ctx = authz.WithActor(ctx, authz.Actor{Subject: by})
	err := db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		if created.APIToken, err = insert(ctx, tx, by, created.Token, d); err != nil {
			return err
		}
		return audit.Record(ctx, tx, entry(createAction, audit.Allowed, created.APIToken))
	})
	if err != nil {
		return nil, err
	}
	return created, nil
}

// End revokes the token, whoever's it is, and reports whether it counted before. No decision, as in Issue. INVALID_INPUT or NOT_FOUND.
// Idempotent.
func End(ctx context.Context, db *postgres.DB, by, tokenID string) (revoked bool, err error) {
	var issues problem.Issues
	input.ID(&issues, "tokenId", idPrefix, tokenID)
	if err := issues.Err(); err != nil {
		return false, err
	}
	ctx = authz.WithActor(ctx, authz.Actor{Subject: by})
	err = db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		t, err := one(ctx, tx, "SELECT "+columns+" FROM api_tokens WHERE id = ? FOR UPDATE", tokenID)
		if err != nil {
			return err
		}
		outcome := audit.Replayed
		if revoked = t.RevokedAt == nil; revoked {
			outcome = audit.Allowed
			if t, err = revoke(ctx, tx, by, tokenID); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, entry(revokeAction, outcome, t))
	})
	return revoked, err
}

// List gives every token, newest first. No decision, as in Issue.
func List(ctx context.Context, db *postgres.DB) ([]*model.APIToken, error) {
	tokens := []*model.APIToken{}
	err := db.NewRaw("SELECT "+columns+" FROM api_tokens ORDER BY created_at DESC, id DESC").Scan(ctx, &tokens)
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing API tokens: %w", err))
	}
	return tokens, nil
}
