package bootstrap

import (
	"testing"

	"better/compute/internal/postgres/pgtest"
	"better/compute/model"
	"better/compute/provider"
)

// A transaction that the database had to undo runs again, and comes to the same.
func TestChangesMayRunTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimNone)
	b.rec.OrdersPerHour = 100
	b.cloud.next("order", failsWith(provider.UnknownOutcome))
	uncertain, machineID := b.start(b.offer("k1")), b.lose()
	b.driveTo(uncertain, "doubt", (*run).uncertain)
	b.deps.Timing.KeepFailed = 0
	b.sweepNow()
	orphan := release(b.orphan())

	admin := pgtest.Owner(t, b.db)
	for _, statement := range []string{
		"CREATE SEQUENCE undone",
		`CREATE FUNCTION undo() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('undone') % 2 = 1 THEN RAISE EXCEPTION 'undone' USING ERRCODE = 'serialization_failure'; END IF;
			RETURN NULL;
		END $$`,
		"CREATE CONSTRAINT TRIGGER undo AFTER INSERT ON audit_log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION undo()",
	} {
		if _, err := admin.NewRaw(statement).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	started := b.start(b.machine("box", "k2"))
	cancelled, err := b.service.Cancel(b.ctx, model.CancelBootstrapInput{TenantID: tenant, BootstrapID: started})
	if err != nil || cancelled.Bootstrap.ID != started {
		t.Errorf("Cancel = %+v, %v", cancelled, err)
	}
	resolved, err := b.service.ResolveClaim(b.ctx, model.ResolveClaimInput{TenantID: tenant, BootstrapID: uncertain, NothingOrdered: new(true)})
	if err != nil || resolved.Bootstrap.ID != uncertain || resolved.Bootstrap.WaitReason != nil {
		t.Errorf("ResolveClaim = %+v, %v", resolved, err)
	}
	released, err := b.service.ReleaseMachine(b.ctx, orphan)
	if err != nil || released.Orphan.MachineID != machineID || released.Orphan.Release() == nil {
		t.Errorf("ReleaseMachine = %+v, %v", released, err)
	}
	b.driveToEnd(started)
	retried, err := b.service.Retry(b.ctx, model.RetryBootstrapInput{TenantID: tenant, BootstrapID: started, IdempotencyKey: "k3"})
	if err != nil || deref(retried.Bootstrap.RetryOf) != started {
		t.Errorf("Retry = %+v, %v", retried, err)
	}
	var rows, undone int
	err = b.db.NewRaw("SELECT count(*) FROM audit_log WHERE action IN ('bootstrapMachine', 'cancelBootstrap', 'resolveClaim', 'releaseMachine', 'retryBootstrap')").
		Scan(everyTenant(t.Context()), &rows)
	if err == nil {
		err = admin.NewRaw("SELECT last_value FROM undone").Scan(t.Context(), &undone)
	}
	if err != nil || rows != 6 || undone < 10 {
		t.Errorf("%d rows in the audit log, want 6; %d times undone or not (%v)", rows, undone, err)
	}
}
