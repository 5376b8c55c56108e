package provideraccount

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/model"
	"better/compute/provider"
)

// tripTime bounds the writing of a refusal after the call is over.
const tripTime = 5 * time.Second

// breaker keeps calls from going out through an account whose credentials the provider has refused, so that a revoked token does not
// get the tenant locked out. It is a column of the account's row, so every replica holds to it. It names the stamp that was refused: a new
// config or a rewritten secret is another stamp, and a check by hand that passes clears it.
type breaker struct {
	db     *postgres.DB
	stamps stamps
	log    *slog.Logger
}

// admit is asked right before each call. It gives the account's stamp, or an error of class Auth while the breaker is open.
func (b *breaker) admit(ctx context.Context, a *model.ProviderAccount) (stamp string, err error) {
	stamp, refused, err := b.ask(ctx, a)
	if err != nil {
		return "", err
	}
	if refused != "" { // the config or a secret is another one by now
		if err := forgetRefusal(ctx, b.db.DB, a.ID, refused); err != nil {
			return "", unreadable(err)
		}
	}
	return stamp, nil
}

// ask is admit for who must change nothing: refused is another stamp of the account that was refused, empty where none was.
func (b *breaker) ask(ctx context.Context, a *model.ProviderAccount) (stamp, refused string, err error) {
	stamp, err = b.stamps.of(ctx, b.db.DB, a, resolved{})
	if err != nil {
		return "", "", unreadable(err)
	}
	refused, err = refusedStamp(ctx, b.db.DB, a.ID)
	if err != nil {
		return "", "", unreadable(err)
	}
	if refused == stamp {
		return "", "", provider.Errorf(provider.Auth,
			"The provider has refused these credentials; update the account, or check it once they work again.")
	}
	return stamp, refused, nil
}

// unreadable is a call that was not made, since it may be one that must not be.
func unreadable(err error) error {
	if _, ok := errors.AsType[*provider.Error](err); ok {
		return err // it names what of the account's cannot be read
	}
	return provider.Errorf(provider.Unavailable, "Whether the account may be used cannot be told now.").Because(postgres.Translate(err))
}

// learn trips the breaker when the call's error says that the credentials were refused. The call has had its effect by then, so the end of
// its context does not count.
func (b *breaker) learn(ctx context.Context, a *model.ProviderAccount, stamp string, err error) {
	if err == nil || !refusesCredentials(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tripTime)
	defer cancel()
	if err := refuse(ctx, b.db.DB, a, stamp); err != nil {
		b.log.WarnContext(ctx, "keeping that credentials were refused", "account", a.ID, "error", err) // the next call learns it again
	}
}

func refusesCredentials(err error) bool {
	class := provider.ClassOf(err)
	return class == provider.Auth || class == provider.Forbidden
}

func refusedStamp(ctx context.Context, idb bun.IDB, accountID string) (string, error) {
	var stamp sql.NullString
	err := idb.NewRaw(`SELECT refused_stamp FROM provider_accounts WHERE id = ?`, accountID).Scan(ctx, &stamp)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("reading whether credentials were refused: %w", err)
	}
	return stamp.String, nil
}

func forgetRefusal(ctx context.Context, idb bun.IDB, accountID, stamp string) error {
	_, err := idb.NewRaw(`UPDATE provider_accounts SET refused_stamp = NULL, refused_at = NULL WHERE id = ? AND refused_stamp = ?`,
		accountID, stamp).Exec(ctx)
	return err
}

// Refused counts the accounts, of all tenants that the context sees, whose calls are held back because the provider refused their credentials.
func (s *Service) Refused(ctx context.Context) (n int, err error) {
	err = s.db.NewRaw(`SELECT count(*) FROM provider_accounts WHERE refused_at IS NOT NULL`).Scan(ctx, &n)
	return n, translated(err, "counting accounts with refused credentials")
}

// refuse counts only for the version that was refused: a late answer says nothing about a newer one.
func refuse(ctx context.Context, idb bun.IDB, a *model.ProviderAccount, stamp string) error {
	_, err := idb.NewRaw(`UPDATE provider_accounts SET refused_stamp = ?, refused_at = now() WHERE id = ? AND version = ?`,
		stamp, a.ID, a.Version).Exec(ctx)
	return err
}
