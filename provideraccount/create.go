package provideraccount

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Actions of this package in the audit log.
const (
	createAction = "createProviderAccount"
	updateAction = "updateProviderAccount"
	deleteAction = "deleteProviderAccount"
)

// createAttempts bounds how often a create that met another one, which was gone when it looked, begins again.
const createAttempts = 5

// Create stores an account for a caller who holds compute:providers:manage on the tenant. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, or
// CONFLICT for a name in use. Idempotent with a key: a repeat by the same caller gives the stored account as it is now, without a
// second decision, and CONFLICT when it names another provider or name; to a caller without the right it costs a denial, RATE_LIMITED
// beyond their limit. A create that is refused stores nothing.
func (s *Service) Create(ctx context.Context, in model.CreateProviderAccountInput) (*model.CreateProviderAccountPayload, error) {
	actor, err := s.authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if err := CreateForm(in).Err(); err != nil {
		return nil, err
	}
	c := creation{in: in, account: model.ProviderAccount{
		ID: id.New(idPrefix), TenantID: in.TenantID, Provider: in.Provider, Name: in.Name,
		Config: configOrEmpty(in.Config), Version: 1, CreatedBy: actor.Subject,
	}}
	if in.IdempotencyKey != nil {
		c.account.ID = id.Derive(idPrefix, createAction, in.TenantID, actor.Subject, *in.IdempotencyKey)
		// The id is of this caller's own call, which it may repeat also when it has no right in the tenant any more.
		if replay, err := s.replay(postgres.WithScope(ctx, postgres.Tenants(in.TenantID)), c); replay != nil || err != nil {
			return replay, err
		}
	}
	if err := s.authz.Check(ctx, model.ProvidersManage, authz.Tenant(in.TenantID)); err != nil {
		return nil, err
	}
	if err := s.checkConfig(in.Provider, c.account.Config); err != nil {
		return nil, err
	}
	return s.store(ctx, c)
}

// creation is an account that is to be, with what was asked for.
type creation struct {
	in      model.CreateProviderAccountInput
	account model.ProviderAccount
}

// checkConfig gives INVALID_INPUT for a provider that is not registered (details.known) and for a config that breaks its rules.
func (s *Service) checkConfig(providerName string, config model.JSON) error {
	if _, known := s.registry.Lookup(providerName); !known {
		issues := problem.Issues{{Path: "provider", Message: "is not registered here"}}
		return problem.New(problem.InvalidInput, "The provider is not registered; details.known lists those that are.").
			With("issues", []problem.Issue(issues)).With("known", s.registry.Names())
	}
	return s.registry.ValidateConfig(providerName, []byte(config)).Err()
}

// replay answers a repeat of a stored create; nil when there is none.
func (s *Service) replay(ctx context.Context, c creation) (payload *model.CreateProviderAccountPayload, err error) {
	// Most creates are no repeats, and a look without a transaction costs them one statement.
	if _, err := readAccount(ctx, s.db, c.account.TenantID, c.account.ID); err != nil {
		if problem.Is(err, problem.NotFound) {
			return nil, nil
		}
		return nil, err
	}
	if err := s.authz.CheckRepeat(ctx, model.ProvidersManage, authz.Tenant(c.in.TenantID)); err != nil {
		return nil, err
	}
	err = s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		payload, err = replayIn(ctx, tx, c)
		return err
	})
	if problem.Is(err, problem.NotFound) {
		return nil, nil // deleted since the look
	}
	return payload, err
}

// replayIn gives NOT_FOUND when nothing is stored under the id, and CONFLICT when it was asked for with other words.
func replayIn(ctx context.Context, tx bun.Tx, c creation) (*model.CreateProviderAccountPayload, error) {
	stored, err := selectAccount(ctx, tx, c.account.TenantID, c.account.ID)
	if err != nil {
		return nil, err
	}
	if stored.Provider != c.in.Provider || stored.Name != c.in.Name {
		return nil, problem.New(problem.Conflict, "The idempotency key was used for another provider or name.")
	}
	if err := record(ctx, tx, createAction, audit.Replayed, stored); err != nil {
		return nil, err
	}
	return &model.CreateProviderAccountPayload{ProviderAccount: stored, Replayed: true}, nil
}

var errMetAnother = errors.New("met another create that is gone")

func (s *Service) store(ctx context.Context, c creation) (payload *model.CreateProviderAccountPayload, err error) {
	needs := authz.Need(model.ProvidersManage, authz.Tenant(c.in.TenantID))
	if payload, err := s.storeAtOnce(ctx, needs, c); payload != nil || err != nil {
		return payload, err
	}
	for range createAttempts {
		err = s.authz.Holding(ctx, needs, func(ctx context.Context, tx bun.Tx) error {
			payload, err = insertOrReplay(ctx, tx, c)
			return err
		})
		if !errors.Is(err, errMetAnother) {
			break
		}
	}
	if errors.Is(err, errMetAnother) {
		return nil, problem.New(problem.Conflict, "The name is being taken and freed over and over; try again.").Because(err)
	}
	if err != nil {
		return nil, err
	}
	return payload, nil
}

// storeAtOnce is store for most creates: those with nothing in the way, of a caller whose rights are in memory. It gives nil, and has
// stored nothing, for all others.
func (s *Service) storeAtOnce(ctx context.Context, needs authz.Needs, c creation) (*model.CreateProviderAccountPayload, error) {
	var account model.ProviderAccount
	done, err := s.authz.HoldingAtOnce(ctx, needs, func(b *postgres.Batch) error {
		account = c.account
		queueInsert(b, &account)
		return audit.Queue(ctx, b, entryOf(createAction, audit.Allowed, &account, detailsOf(&account)))
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil || !done {
		return nil, err
	}
	return &model.CreateProviderAccountPayload{ProviderAccount: &account}, nil
}

// insertOrReplay relies on ON CONFLICT DO NOTHING waiting for a create that is still under way: what stood in the way is committed
// when the insert comes back, and the next statement sees it.
func insertOrReplay(ctx context.Context, tx bun.Tx, c creation) (*model.CreateProviderAccountPayload, error) {
	account := c.account
	inserted, err := insertAccount(ctx, tx, &account)
	if err != nil {
		return nil, err
	}
	if inserted {
		if err := record(ctx, tx, createAction, audit.Allowed, &account); err != nil {
			return nil, err
		}
		return &model.CreateProviderAccountPayload{ProviderAccount: &account}, nil
	}
	if c.in.IdempotencyKey != nil {
		payload, err := replayIn(ctx, tx, c)
		if !problem.Is(err, problem.NotFound) {
			return payload, err
		}
	}
	taken, err := nameTaken(ctx, tx, c.account.TenantID, c.account.Name)
	if err != nil {
		return nil, err
	}
	if !taken {
		return nil, errMetAnother
	}
	return nil, problem.New(problem.Conflict, "The tenant has a provider account of that name.")
}

func configOrEmpty(config model.JSON) model.JSON {
	if len(config) == 0 {
		return model.EmptyJSON()
	}
	return config
}

func record(ctx context.Context, tx bun.Tx, action string, outcome audit.Outcome, a *model.ProviderAccount) error {
	return recordWith(ctx, tx, action, outcome, a, detailsOf(a))
}

func recordWith(ctx context.Context, tx bun.Tx, action string, outcome audit.Outcome, a *model.ProviderAccount, details map[string]any) error {
	return audit.Record(ctx, tx, entryOf(action, outcome, a, details))
}

func entryOf(action string, outcome audit.Outcome, a *model.ProviderAccount, details map[string]any) audit.Entry {
	return audit.Entry{
		TenantID: a.TenantID, Action: action, Object: authz.ProviderAccount(a.TenantID, a.ID).String(), Outcome: outcome, Details: details,
	}
}

func detailsOf(a *model.ProviderAccount) map[string]any {
	return map[string]any{"provider": a.Provider, "name": a.Name, "version": a.Version}
}
