package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"better/compute/model"
)

const (
	// orderWindow is the time over which a tenant's orders are counted.
	orderWindow = time.Hour
	// maxOrderWait bounds how long a run waits for its tenant's limit before the time for claiming counts again.
	maxOrderWait = 24 * time.Hour
)

// waitsForOrderLimit is the code of a run that waits until its tenant may order again.
const waitsForOrderLimit = "ORDER_LIMIT"

// attempt commits that the order is about to be sent, unless that would be one more than the tenant may send within an hour. Then it gives
// how long that stays so. The orders of one tenant are counted one after the other, whichever replicas send them. What is sent once more
// under the same operation id is no further order.
func (r *Reconciler) attempt(ctx context.Context, w *work) (wait time.Duration, err error) {
	in := *w.OrderIntent
	in.AccountStamp = w.stamp
	set := fields{"order_attempt_at": now, "order_intent": &in}
	if r.OrdersPerHour == 0 || w.ordered() {
		return 0, r.write(ctx, w, set)
	}
	var after *run
	err = r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		after = nil // of a run of this function that was undone
		if _, err := tx.NewRaw("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", "orders of "+w.TenantID).Exec(ctx); err != nil {
			return failed("waiting for the orders of a tenant", err)
		}
		if wait, err = untilOrder(ctx, tx, w.TenantID, r.OrdersPerHour); err != nil || wait > 0 {
			return err
		}
		after, err = update(ctx, set.apply(guarded(tx, w.run)))
		return err
	})
	if err == nil && after != nil {
		w.run = after
	}
	return wait, err
}

// untilOrder is how long the tenant has to wait until it may order a machine; zero when it may now, or there is no limit.
func untilOrder(ctx context.Context, idb bun.IDB, tenantID string, perHour int) (time.Duration, error) {
	if perHour == 0 {
		return 0, nil
	}
	var last struct {
		Sent int   `bun:"sent"`
		Wait int64 `bun:"wait"`
	}
	err := idb.NewRaw(`SELECT count(*) AS sent, coalesce(extract(epoch FROM min(at) - now()) * 1000000, 0)::bigint AS wait
		FROM (SELECT order_attempt_at + ?0 * interval '1 microsecond' AS at FROM bootstraps
			WHERE tenant_id = ?1 AND retry_of IS NULL AND order_attempt_at > now() - ?0 * interval '1 microsecond'
			ORDER BY order_attempt_at DESC LIMIT ?2) AS newest`,
		orderWindow.Microseconds(), tenantID, perHour).Scan(ctx, &last)
	if err != nil {
		return 0, failed("counting orders", err)
	}
	if last.Sent < perHour {
		return 0, nil
	}
	return max(time.Duration(last.Wait)*time.Microsecond, time.Millisecond), nil
}

// overOrderLimit waits, and costs neither an attempt nor the time that the provider has to deliver: that begins anew with each wait. So that no
// run waits for ever, it does not after a day.
func (r *Reconciler) overOrderLimit(w *work, d time.Duration) outcome {
	d = min(d, r.Timing.Uncertain) + jitter(0, r.Timing.Poll)
	out := outcome{kind: waits, pause: pause{
		d: d, step: "waiting until the tenant may order again", reason: waitsForOrderLimit,
		err: fmt.Sprintf("The tenant has sent %d orders within an hour, which is the limit.", r.OrdersPerHour),
	}}
	if w.Now.Sub(w.StateSince) > maxOrderWait {
		return out
	}
	return out.with(fields{"deadline_at": fromNow(d + r.Timing.claim(w.manifest, w.kind()))})
}

// claimDeadline is when claiming is given up once the kind of machine is known: until then the longest of the limits counts.
func (r *Reconciler) claimDeadline(w *work, kind model.MachineKind) time.Duration {
	unknown, known := r.Timing.claim(w.manifest, ""), r.Timing.claim(w.manifest, kind)
	if w.DeadlineAt == nil {
		return known
	}
	return w.DeadlineAt.Sub(w.Now) - (unknown - known)
}
