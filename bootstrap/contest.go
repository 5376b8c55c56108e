package bootstrap

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"better/compute/model"
)

// MarkContested fails a run that has joined, in the transaction that ends the trust in its host: a second agent has shown its token, and nobody can
// tell which of the two is the machine's. The machine is kept, whoever ordered it: it is what can tell how the token got out, and the sweep shows
// it as one without an owner. Idempotent; it changes nothing for a run that has failed.
func MarkContested(ctx context.Context, tx bun.IDB, bootstrapID string) error {
	joined, reason := model.Joined, string(model.IdentityMismatch)
	failure := &model.BootstrapFailure{
		Reason: model.IdentityMismatch, LogTail: []string{},
		Message: "A second agent came with the join token. Which of the two is the machine's cannot be told, so the host of the first was removed.",
	}
	_, err := transition(ctx, tx, tx.NewUpdate().Model((*run)(nil)).Where("id = ?", bootstrapID), change{
		from: &joined, to: model.Failed, reason: &reason, set: fields{"failure": failure, "cleanup": model.CleanupKept},
	})
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}
