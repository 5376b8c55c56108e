package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provideraccount"
)

// sweepAccounts compares each account that is due with what its provider says it has. Any number of replicas may do so: each account
// is taken by one of them, and one whose provider hangs delays no other tenant's.
func (r *Reconciler) sweepAccounts(ctx context.Context) error {
	return doAll(ctx, lookTime, func(ctx context.Context, busy []string) (*piece, error) {
		account, err := r.Accounts.TakeDue(ctx, r.Timing.Sweep, busy)
		if err != nil || account == nil {
			return nil, err
		}
		return &piece{account.TenantID, func(ctx context.Context) error { return r.sweepAccount(ctx, account) }}, nil
	})
}

// sweepAccount finds the machines of an account that one side has and the other does not know. It only reports. What is
// listed was there when the provider was asked; who owns what is looked up afterwards, so a run that began meanwhile counts.
func (r *Reconciler) sweepAccount(ctx context.Context, account *model.ProviderAccount) error {
	at := sweptAt{AccountID: account.ID}
	if err := r.DB.NewRaw("SELECT now()").Scan(ctx, &at.Began); err != nil {
		return failed("reading the time", err)
	}
	var err error
	if at.Stamp, err = r.Accounts.Stamp(ctx, r.DB.DB, account); err != nil {
		return r.unswept(ctx, account, err)
	}
	manifest, _ := r.Accounts.Manifest(account.Provider)
	at.Lag = manifest.ListLag + r.Timing.ListMargin
	seen, err := r.survey(provideraccount.AtStamp(ctx, at.Stamp), account)
	if err != nil || seen == nil {
		return r.unswept(ctx, account, err)
	}
	r.fault("sweeping.surveyed")
	err = r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		ordered, err := orderedOf(ctx, tx, account, seen.unmarked)
		if err != nil {
			return err
		}
		machines := slices.Concat(seen.marked, ordered)
		notOurs, err := r.unowned(ctx, tx, at, machines)
		if err != nil {
			return err
		}
		notThere, err := vanished(ctx, tx, at, seen.listed)
		if err != nil {
			return err
		}
		if err := keepOrphans(ctx, tx, at, account.TenantID, append(notOurs, notThere...), machines, seen.listed); err != nil {
			return err
		}
		r.fault("sweeping.kept")
		return nil
	})
	if _, unknown := asProviderError(err); unknown {
		return r.unswept(ctx, account, err)
	}
	return err
}

// surveyed is what a provider says that an account has: the machines that carry an operation, those that carry none, and the ids of all.
type surveyed struct {
	marked, unmarked []claimedMachine
	listed           []string
}

// survey asks the provider for all machines; nil when it cannot tell which carry an operation.
func (r *Reconciler) survey(ctx context.Context, account *model.ProviderAccount) (seen *surveyed, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.Timing.Call)
	defer cancel()
	err = r.Accounts.Background(ctx, account, func(ctx context.Context, c provider.Client) error {
		claimant, ok := c.(provider.Claimant)
		if !ok {
			return nil
		}
		all, err := c.Machines(ctx)
		if err != nil {
			return err
		}
		claims, err := claimant.Claims(ctx)
		if err != nil {
			return err
		}
		seen = &surveyed{unmarked: unmarkedOf(c, all, claims)}
		for _, m := range all {
			seen.listed = append(seen.listed, m.ID)
		}
		for _, claim := range claims {
			if !namePattern.MatchString(claim.MachineID) || !provider.IsOperationID(claim.OperationID) {
				continue // no order of ours could have brought it
			}
			seen.marked = append(seen.marked, claimedMachine{OwnedMachine: claim, Key: keyOf(c, claim.MachineID)})
			seen.listed = append(seen.listed, claim.MachineID)
		}
		return nil
	})
	return seen, err
}

func keyOf(c provider.Client, machineID string) string {
	b, ok := c.(provider.Bootstrapper)
	if !ok {
		return ""
	}
	key, err := b.MachineKey(machineID)
	if err != nil {
		return "" // nobody can have reserved it
	}
	return key
}

// unswept leaves an account whose provider does not answer to its next turn. What keeps all accounts from being swept is an error.
func (r *Reconciler) unswept(ctx context.Context, account *model.ProviderAccount, err error) error {
	if err == nil || problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
		return err
	}
	r.Log.DebugContext(ctx, "an account could not be swept", "account", account.ID, "error", err)
	return nil
}

// releaseOrphans gives back what a person said, until nothing is due. One whose provider hangs delays no other tenant's. What a replica has taken
// another one tries once its calls are surely over, and a lease besides.
func (r *Reconciler) releaseOrphans(ctx context.Context) error {
	return doAll(ctx, lookTime, func(ctx context.Context, busy []string) (*piece, error) {
		o, err := dueRelease(ctx, r.DB.DB, r.Timing.Lease+2*r.Timing.Call, busy)
		if err != nil || o == nil {
			return nil, err
		}
		r.fault("releasing.taken")
		return &piece{o.TenantID, func(ctx context.Context) error { return r.releaseOrphan(ctx, o) }}, nil
	})
}

func (r *Reconciler) releaseOrphan(ctx context.Context, o *orphan) error {
	account, err := r.Accounts.Account(ctx, r.DB.DB, o.TenantID, o.AccountID)
	if problem.Is(err, problem.NotFound) {
		return nil // the orphan went with it
	}
	if err != nil {
		return fmt.Errorf("reading the account of an orphan: %w", err)
	}
	stamp, err := r.Accounts.Stamp(ctx, r.DB.DB, account)
	_, unknown := asProviderError(err)
	switch {
	case unknown:
	case err != nil:
		return err
	case o.seenAs(stamp):
		err = r.giveOrphanBack(provideraccount.AtStamp(ctx, stamp), account, o)
	default:
		err = errElsewhere
	}
	r.fault("releasing.released")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.afterRelease(ctx, o, err); !errors.Is(err, errLost) {
		return err
	}
	r.Log.InfoContext(ctx, "the giving back of a machine went to another replica, or is over", "orphan", o.ID, "attempt", o.ReleaseAttempt)
	return nil
}

// afterRelease writes down what came of an attempt; errLost when it is not this one's to write.
func (r *Reconciler) afterRelease(ctx context.Context, o *orphan, err error) error {
	switch {
	case err == nil:
		return r.endRelease(ctx, o, fields{"resolved_at": now, "release_error": ""})
	case errors.Is(err, errLost), problem.Is(err, problem.Unavailable):
		return err
	}
	r.Log.WarnContext(ctx, "a machine without an owner could not be given back",
		"account", o.AccountID, "orphan", o.ID, "machine", o.MachineID, "attempt", o.ReleaseAttempt, "error", classed(err).Message)
	set := fields{"release_error": printable(classed(err).Message, maxMessage)}
	if classed(err).Class == provider.IdentityChanged {
		// The provider has another machine of that id, or somebody has it: the word was about one that is not there.
		return r.endRelease(ctx, o, set.with(fields{"release_dropped_at": now}))
	}
	wait := backoff(r.Timing.Cleanup, r.Timing.CleanupMax, o.ReleaseAttempt)
	_, err = writeOrphan(ctx, set.with(fields{"release_at": fromNow(wait)}).apply(guardedOrphan(r.DB.DB, o)))
	return err
}

// errElsewhere ends with the account's way back to the project of the machine, where the sweep sees it again.
var errElsewhere error = provider.Errorf(provider.Conflict, "The account was changed since it showed the machine, and may be another project now.")

// errOwned ends the word to give the machine back: it was about one that nobody has.
var errOwned error = provider.Errorf(provider.IdentityChanged, "The machine has an owner again.")

var errStillThere error = provider.Errorf(provider.Conflict, "The provider still shows the machine.")

// giveOrphanBack releases the machine by its operation, and believes it when the provider does not show it any more.
func (r *Reconciler) giveOrphanBack(ctx context.Context, account *model.ProviderAccount, o *orphan) error {
	ctx, cancel := context.WithTimeout(ctx, 2*r.Timing.Call)
	defer cancel()
	return r.Accounts.Background(ctx, account, func(ctx context.Context, c provider.Client) error {
		orderer, ok := c.(provider.Orderer)
		if !ok || o.OperationID == nil {
			return errors.New("an orphan without an order")
		}
		known, err := orphanKnownBy(ctx, r.DB.DB, c, o)
		if err != nil {
			return err
		}
		if err := confirmRelease(ctx, r.DB.DB, o, known); err != nil {
			return err
		}
		if err := orderer.Release(ctx, *o.OperationID, o.MachineID); err != nil && classed(err).Class != provider.NotFound {
			return err
		}
		claim, err := orderer.FindClaim(ctx, *o.OperationID)
		if err == nil && claim != nil && claim.MachineID == o.MachineID {
			return errStillThere
		}
		if err != nil && classed(err).Class != provider.NotFound {
			return err
		}
		return nil
	})
}

func (r *Reconciler) endRelease(ctx context.Context, o *orphan, set fields) error {
	return r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error { return endRelease(ctx, tx, o, set) })
}

// everyTenant is the context of work that is nobody's in particular.
func everyTenant(ctx context.Context) context.Context {
	return postgres.WithScope(ctx, postgres.AllTenants())
}
