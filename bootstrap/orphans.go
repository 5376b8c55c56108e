package bootstrap

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

const (
	orphanPrefix  = "orph"
	releaseAction = "releaseMachine"
)

// OrphansInput says which orphans to list, those of all tenants without a TenantID; AccountID takes one.
type OrphansInput struct {
	TenantID  *string
	AccountID *string
	First     *int
	After     *string
}

// Orphans lists the machines that the sweep found without an owner, those that have one again included, newest first, of the accounts that
// the caller holds compute:providers:read on. INVALID_INPUT, UNAUTHENTICATED, or FORBIDDEN when there is no such account, when
// AccountID names one that the caller may not read, or without a tenant to who does not hold it on the fleet.
func (s *Service) Orphans(ctx context.Context, in OrphansInput) (*model.OrphanConnection, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	list, err := s.Cursors.List(ctx, "orphans", deref(in.TenantID), cursor.Optional(in.AccountID))
	if err != nil {
		return nil, err
	}
	var check checklist
	check.optionalTenant(in.TenantID)
	check.inTenant("accountId", "pacct", in.TenantID, in.AccountID)
	p := input.CheckPage(&check.issues, in.First, in.After, cursor.Decode[*place](list))
	if err := check.err(); err != nil {
		return nil, err
	}
	visible, err := s.readable(ctx, in.TenantID, in.AccountID)
	if err != nil {
		return nil, err
	}
	items, err := selectOrphans(ctx, s.DB.DB, visible, in, p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(items, p.First, p.After, cursor.Encode(list, placeOfOrphan)), nil
}

func placeOfOrphan(o *model.Orphan) place {
	return place{CreatedMicro: o.FirstSeenAt.UnixMicro(), ID: o.ID}
}

// ReleaseMachine has an orphan given back to its provider, on the word of a caller who holds compute:providers:manage on its account. The
// machine is reserved from then on, so that nobody makes it a host meanwhile; it is given back within seconds, or as soon as the provider
// lets it. UNAUTHENTICATED, INVALID_INPUT (also when the machine is not the orphan's), FORBIDDEN, NOT_FOUND, or INVALID_STATE when it is
// not at the provider, has an owner again, or was seen when the account may have been another project. Idempotent.
func (s *Service) ReleaseMachine(ctx context.Context, in model.ReleaseMachineInput) (*model.ReleaseMachinePayload, error) {
	actor, err := s.Authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	var check checklist
	check.tenant(in.TenantID)
	check.id("orphanId", orphanPrefix, in.OrphanID)
	check.name("machineId", in.MachineID)
	if err := check.err(); err != nil {
		return nil, err
	}
	found, err := s.findOrphan(ctx, in.TenantID, in.OrphanID)
	if err != nil {
		return nil, err
	}
	if found.MachineID != in.MachineID {
		check.issues.Add("machineId", "must be the orphan's machine")
		return nil, check.err()
	}
	// Whether somebody owns the machine does not stop at the tenants that the caller sees.
	all := postgres.WithScope(ctx, postgres.AllTenants())
	at, known, err := s.orphanNow(all, found)
	if err != nil {
		return nil, s.Authz.ErrorFor(ctx, model.ProvidersManage, authz.ProviderAccount(found.TenantID, found.AccountID), err)
	}
	var after *orphan
	err = s.Authz.Holding(all, needs(found.TenantID, found.AccountID), func(ctx context.Context, tx bun.Tx) (err error) {
		after, err = s.askRelease(ctx, tx, at, found.ID, known, actor.Subject)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.fault("releasing.committed")
	return &model.ReleaseMachinePayload{Orphan: &after.Orphan}, nil
}

// findOrphan decides as find does: what the caller may not touch is answered like what is not there.
func (s *Service) findOrphan(ctx context.Context, tenantID, orphanID string) (*orphan, error) {
	o, err := loadOrphan(ctx, s.DB.DB, tenantID, orphanID)
	if err != nil {
		return nil, err
	}
	if o != nil {
		held, err := s.Authz.Holds(ctx, model.ProvidersManage, authz.ProviderAccount(tenantID, o.AccountID))
		if held || err != nil {
			return o, err
		}
	}
	if err := s.Authz.Check(ctx, model.ProvidersManage, authz.Tenant(tenantID)); err != nil {
		return nil, err
	}
	return nil, noOrphan()
}

func noOrphan() error { return problem.New(problem.NotFound, "There is no such orphan.") }

// orphanNow gives what the orphan's account is now, and what the machine is known by.
func (s *Service) orphanNow(ctx context.Context, o *orphan) (at sweptAt, known knownBy, err error) {
	at.AccountID = o.AccountID
	account, err := s.Accounts.Account(ctx, s.DB.DB, o.TenantID, o.AccountID)
	if err != nil {
		return at, known, err
	}
	at.Stamp, err = s.Accounts.Stamp(ctx, s.DB.DB, account)
	if _, unknown := asProviderError(err); unknown {
		return at, known, provider.Problem(account.Provider, err)
	}
	if err != nil {
		return at, known, err
	}
	client, err := s.Accounts.Open(ctx, account)
	if err != nil {
		return at, known, provider.Problem(account.Provider, err)
	}
	known, err = orphanKnownBy(ctx, s.DB.DB, client, o)
	return at, known, err
}

// knownBy is what owners of an orphan's machine would know it by: the account's name for it and what it said of itself to the run that ordered it, as
// reservations name both, and its serial number. One that cannot be reserved has no keys.
type knownBy struct {
	keys   []string
	serial string
}

func orphanKnownBy(ctx context.Context, idb bun.IDB, c provider.Client, o *orphan) (known knownBy, err error) {
	if key := keyOf(c, o.MachineID); key != "" {
		known.keys = append(known.keys, key)
	}
	identity, err := identityOf(ctx, idb, o)
	if identity != nil {
		known.keys, known.serial = append(known.keys, identityKeys(*identity)...), identity.Serial
	}
	return known, err
}

// askRelease writes the person's word down, unless the machine has an owner by now.
func (s *Service) askRelease(ctx context.Context, tx bun.Tx, at sweptAt, orphanID string, known knownBy, subject string) (*orphan, error) {
	o, err := lockOrphan(ctx, tx, orphanID)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, noOrphan()
	}
	if o.asked() {
		return o, recordRelease(ctx, tx, audit.Replayed, o)
	}
	switch {
	case o.Kind != model.OrphanNotOurs:
		return nil, problem.New(problem.InvalidState, "The provider does not have the machine.").With("kind", o.Kind)
	case o.ResolvedAt != nil:
		return nil, owned()
	case !o.seenAs(at.Stamp):
		return nil, problem.New(problem.InvalidState, "%s", messageOf(errElsewhere))
	}
	free, err := s.unowned(ctx, tx, at, []claimedMachine{{OwnedMachine: provider.OwnedMachine{
		OperationID: deref(o.OperationID), MachineID: o.MachineID,
	}}}) // whether somebody has reserved it shows when it is reserved
	if _, unknown := asProviderError(err); unknown {
		return nil, problem.New(problem.Unavailable, "%s", messageOf(err)).Because(err)
	}
	if err != nil {
		return nil, err
	}
	if len(free) == 0 {
		return nil, owned()
	}
	isHost, err := hostSays(ctx, tx, o.TenantID, known.serial)
	if err != nil {
		return nil, err
	}
	if isHost {
		return nil, owned()
	}
	for _, key := range known.keys {
		got, err := reserveForOrphan(ctx, tx, key, o.ID)
		if err != nil {
			return nil, err
		}
		if !got {
			return nil, owned()
		}
	}
	if o, err = markReleased(ctx, tx, o.ID, subject); err != nil {
		return nil, err
	}
	s.fault("releasing.written")
	return o, recordRelease(ctx, tx, audit.Allowed, o)
}

func owned() error {
	return problem.New(problem.InvalidState, "The machine has an owner again, or is gone.")
}

func recordRelease(ctx context.Context, tx bun.Tx, outcome audit.Outcome, o *orphan) error {
	err := audit.Record(ctx, tx, audit.Entry{
		TenantID: o.TenantID, Action: releaseAction, Object: authz.ProviderAccount(o.TenantID, o.AccountID).String(), Outcome: outcome,
		Details: map[string]any{"orphanId": o.ID, "machineId": o.MachineID, "operationId": deref(o.OperationID), "bootstrapId": deref(o.BootstrapID)},
	})
	if err != nil {
		return fmt.Errorf("recording a release: %w", err)
	}
	return nil
}
