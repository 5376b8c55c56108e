package provideraccount

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/model"
	"better/compute/provider"
)

// Stamp names what the account is at its provider: it changes with the account's version, and with every write of a secret in the built-in
// store that the config refers to. With another stamp the account may be another project, in which nobody knows what was ordered
// in this one. For other services; it decides nothing.
func (s *Service) Stamp(ctx context.Context, idb bun.IDB, a *model.ProviderAccount) (string, error) {
	return stampOf(ctx, idb, a)
}

type stampKey struct{}

// AtStamp makes a provider call with the context fail as Unavailable, before anything is sent, when the account has not that stamp any
// more at the time its secrets are resolved: so the call goes to the project that the stamp names, or nowhere.
func AtStamp(ctx context.Context, stamp string) context.Context {
	return context.WithValue(ctx, stampKey{}, stamp)
}

// keepsStamp holds a call to the stamp of its context, if there is one. It is asked after a secret was resolved.
func keepsStamp(ctx context.Context, idb bun.IDB, a *model.ProviderAccount) error {
	want, ok := ctx.Value(stampKey{}).(string)
	if !ok {
		return nil
	}
	got, err := stampOf(ctx, idb, a)
	if err != nil {
		return provider.Errorf(provider.Unavailable, "Whether the account was changed cannot be told now.").Because(err)
	}
	if got != want {
		return provider.Errorf(provider.Unavailable, "The account was changed just now.")
	}
	return nil
}

func stampOf(ctx context.Context, idb bun.IDB, a *model.ProviderAccount) (string, error) {
	stamp := fmt.Sprintf("%d.%d", a.CreatedAt.UnixMicro(), a.Version)
	names := storedSecrets(a.Config)
	if len(names) == 0 {
		return stamp, nil
	}
	var stored struct {
		Count  int        `bun:"count"`
		Newest *time.Time `bun:"newest"`
	}
	err := idb.NewRaw("SELECT count(*) AS count, max(updated_at) AS newest FROM secrets WHERE tenant_id = ? AND name IN (?)",
		a.TenantID, bun.List(names)).Scan(ctx, &stored)
	if err != nil {
		return "", postgres.Translate(fmt.Errorf("reading when secrets were written: %w", err))
	}
	if stored.Newest == nil {
		return stamp, nil
	}
	return fmt.Sprintf("%s.%d.%d", stamp, stored.Count, stored.Newest.UnixMicro()), nil
}

// storedSecrets are the names of the built-in store's secrets that a config refers to, wherever they stand.
func storedSecrets(config model.JSON) []string {
	var root any
	if json.Unmarshal(config, &root) != nil {
		return nil // no config that is stored is like that
	}
	var names []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if ref, err := provider.ParseReference(v); err == nil && ref.Scheme == provider.SecretScheme {
				names = append(names, ref.Name)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(root)
	return names
}
