package bootstrap

import (
	"testing"

	"better/compute/model"
	"better/compute/provider"
)

// What no caller asked for is in the audit log too: a run that fails has a row of the system's, with the reason and nothing else.
func TestAFailedRunIsAudited(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	runID := b.start(b.offer("k"))
	b.cloud.next("order", failsWith(provider.Quota))
	b.driveToEnd(runID)
	var rows []string
	err := b.db.NewRaw(`SELECT actor || ' ' || outcome || ' ' || (details->>'bootstrapId') || ' ' || (details->>'reason') FROM audit_log
		WHERE action = 'bootstrap.failed'`).Scan(t.Context(), &rows)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%v, %v", rows, err)
	}
	equal(t, "row", rows[0], "system allowed "+runID+" QUOTA_EXCEEDED")
}
