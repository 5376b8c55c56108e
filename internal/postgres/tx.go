package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"
)

const txAttempts = 6

// RunInTx runs fn in a transaction and commits it when fn returns nil. The whole of fn runs again, a few times, when
// the database reports a serialization failure or a deadlock, so fn must not leave anything behind outside the
// transaction. Errors come back through Translate. Not idempotent: a connection lost during the commit gives
// UNAVAILABLE although the transaction may have been committed.
func (db *DB) RunInTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	return db.again(ctx, func() error { return db.DB.RunInTx(ctx, nil, fn) })
}

func (db *DB) again(ctx context.Context, run func() error) error {
	for attempt := 1; ; attempt++ {
		err := run()
		if err == nil || attempt == txAttempts || !retryable(err) {
			return Translate(err)
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// pause waits a random time below 5 ms, 10 ms, 20 ms, ... so that two transactions that met do not meet again.
func pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(5 * time.Millisecond << (attempt - 1))) //nolint:gosec // nothing to be guessed
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
