// Package audit owns the log of who did what to what, and how it ended.
//
// It refuses to know what an action means. The invariant: the row of a mutation is written in the transaction of the
// mutation, so there is never one without the other.
package audit

import (
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit/journal"
	"better/compute/authz"
	"better/compute/internal/postgres"
)

// Outcome is how an action ended.
type Outcome = journal.Outcome

// The outcomes.
const (
	Allowed  = journal.Allowed
	Denied   = journal.Denied
	Replayed = journal.Replayed
)

// Entry is what happened. Details never hold the value of a config or a secret, only names and numbers.
type Entry = journal.Entry

// system is the actor where there is no caller: an agent that joins or renews has none.
const system = "system"

// Record adds a row with the caller, its API token and the request id of the context; without a caller the actor is "system". Give it the
// transaction of the mutation. Not idempotent.
func Record(ctx context.Context, idb bun.IDB, e Entry) error {
	return journal.Write(ctx, idb, caller(ctx), e)
}

// Queue is Record as a statement of a batch, which has to be of the mutation.
func Queue(ctx context.Context, b *postgres.Batch, e Entry) error {
	return journal.Queue(b, caller(ctx), e)
}

func caller(ctx context.Context) journal.Caller {
	who := system
	if actor, ok := authz.ActorFrom(ctx); ok {
		who = actor.Subject
	}
	return authz.Caller(ctx, who)
}
