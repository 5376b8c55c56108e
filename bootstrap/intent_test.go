package bootstrap

import (
	"testing"

	"better/compute/model"
)

// What is about to be ordered, and that it is, is on disk before the provider hears of it: a worker that dies over the call leaves an order
// that the next one knows to look for, however long it is not to be seen.
func TestOrderIsWrittenDownBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimLabel)
	runID := b.start(b.offer("k"))
	b.cloud.hook = func(method string) {
		if method != "order" {
			return
		}
		if r := b.row(runID); !r.ordered() || r.OrderIntent == nil || r.OrderIntent.OfferID != "small" || r.OrderIntent.AccountStamp == "" {
			t.Errorf("at the time of the order the row tells of none: %+v", r.OrderIntent)
		}
	}
	for !b.stepOrDie(b.dieAt("claiming.ordered", 1), runID) {
	}
	b.endLease(runID)
	b.cloud.change(func() { b.cloud.machines[b.row(runID).OperationID].hidden = true })
	for range 3 {
		b.step(runID)
	}
	equal(t, "orders", b.cloud.count("order"), 1)
}
