package provideraccount

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/internal/serverkey"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
)

// Stamp names what the account is at its provider: it changes with the account's version, with every write of a secret in the built-in
// store that the config refers to, and with the value of every variable, and of every field in the vault, that it does. With another stamp
// the account may be another project, in which nobody knows what was ordered in this one. For other services; it decides nothing.
// While the vault does not say it fails with a provider.Error of class Unavailable, which names the reference.
func (s *Service) Stamp(ctx context.Context, idb bun.IDB, a *model.ProviderAccount) (string, error) {
	return s.clients.stamps.of(ctx, idb, a, resolved{})
}

// stamps makes the stamps. Values that are not in the database are in them as a keyed hash: stamps are stored, and what is stored tells
// nothing of a secret.
type stamps struct {
	secrets *secret.Service
	key     *serverkey.Key
}

type stampKey struct{}

// AtStamp makes a provider call with the context fail as Unavailable, before anything is sent, when the account has not that stamp any
// more at the time its secrets are resolved: so the call goes to the project that the stamp names, or nowhere.
func AtStamp(ctx context.Context, stamp string) context.Context {
	return context.WithValue(ctx, stampKey{}, stamp)
}

// resolved is a reference with the value that was just found for it; none when it is empty.
type resolved struct {
	reference string
	value     secret.Value
}

// keeps holds a call to the stamp of its context, if there is one. It is asked after a secret was resolved, for the value that is to be sent.
func (s stamps) keeps(ctx context.Context, idb bun.IDB, a *model.ProviderAccount, sent resolved) error {
	want, ok := ctx.Value(stampKey{}).(string)
	if !ok {
		return nil
	}
	got, err := s.of(ctx, idb, a, sent)
	if err != nil {
		return provider.Errorf(provider.Unavailable, "Whether the account was changed cannot be told now.").Because(err)
	}
	if got != want {
		return provider.Errorf(provider.Unavailable, "The account was changed just now.")
	}
	return nil
}

func (s stamps) of(ctx context.Context, idb bun.IDB, a *model.ProviderAccount, known resolved) (string, error) {
	stored, elsewhere := references(a.Config)
	written, err := whenWritten(ctx, idb, a.TenantID, stored)
	if err != nil {
		return "", err
	}
	values, err := s.hash(ctx, a.TenantID, elsewhere, known)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d%s%s", a.CreatedAt.UnixMicro(), a.Version, written, values), nil
}

// whenWritten tells the present values of stored secrets from others by when they were written; empty where there are none.
func whenWritten(ctx context.Context, idb bun.IDB, tenantID string, names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	var stored struct {
		Count  int        `bun:"count"`
		Newest *time.Time `bun:"newest"`
	}
	err := idb.NewRaw("SELECT count(*) AS count, max(updated_at) AS newest FROM secrets WHERE tenant_id = ? AND name IN (?)",
		tenantID, bun.List(names)).Scan(ctx, &stored)
	if err != nil {
		return "", postgres.Translate(fmt.Errorf("reading when secrets were written: %w", err))
	}
	if stored.Newest == nil {
		return "", nil
	}
	return fmt.Sprintf(".%d.%d", stored.Count, stored.Newest.UnixMicro()), nil
}

// hash tells the values of references in this process, at this moment, from others; empty where there are none. That there is none counts
// as a value; that nobody can say does not.
func (s stamps) hash(ctx context.Context, tenantID string, references []string, known resolved) (string, error) {
	if len(references) == 0 {
		return "", nil
	}
	key, err := s.key.Get(ctx)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	for _, reference := range references {
		text, err := s.valueOf(ctx, tenantID, reference, known)
		if err != nil {
			return "", err
		}
		mac.Write(binary.AppendUvarint(nil, uint64(len(reference))))
		mac.Write([]byte(reference))
		mac.Write(binary.AppendUvarint(nil, uint64(len(text))))
		mac.Write([]byte(text))
	}
	return "." + hex.EncodeToString(mac.Sum(nil)[:hashSize]), nil
}

func (s stamps) valueOf(ctx context.Context, tenantID, reference string, known resolved) (string, error) {
	if reference == known.reference {
		return known.value.Reveal(), nil
	}
	value, err := s.secrets.Resolve(ctx, tenantID, reference)
	if err != nil && provider.ClassOf(err) != provider.SecretUnresolved {
		return "", err
	}
	return value.Reveal(), nil
}

// hashSize is enough for no two values to be taken for one.
const hashSize = 16

// references are what a config refers to, wherever it stands: the names of the built-in store's secrets, and what is elsewhere, sorted.
func references(config model.JSON) (stored, elsewhere []string) {
	var root any
	if json.Unmarshal(config, &root) != nil {
		return nil, nil // no config that is stored is like that
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			switch ref, err := provider.ParseReference(v); {
			case err != nil:
			case ref.Scheme == provider.SecretScheme:
				stored = append(stored, ref.Name)
			default:
				elsewhere = append(elsewhere, v)
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
	slices.Sort(elsewhere) // the members of an object come in any order
	return stored, elsewhere
}
