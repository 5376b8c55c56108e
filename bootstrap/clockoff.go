package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"better/compute/model"
)

// MarkClockOff notes on a run that its agent asked to join and was refused for its machine's clock. The agent asks again, and a clock that is set right
// meanwhile is forgotten with the join; otherwise it is what the run fails for. Idempotent; it changes nothing for a run that waits for no agent.
func MarkClockOff(ctx context.Context, idb bun.IDB, bootstrapID string, off time.Duration) error {
	set := fields{
		"wait_reason": waitsForClock, "updated_at": now,
		"last_error": fmt.Sprintf("The clock of the machine was off by %s.", off.Round(time.Second)),
	}
	_, err := update(ctx, set.apply(idb.NewUpdate().Model((*run)(nil))).Where("id = ?", bootstrapID).
		Where("status IN (?, ?)", model.Installing, model.Installed).Where("wait_reason IS DISTINCT FROM ?", waitsForClock))
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}
