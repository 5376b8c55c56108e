package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"better/compute/model"
)

// Meter counts what the runs do in this process, for people who watch. It does not block.
type Meter interface {
	// Intended and Ordered hear of an order that is meant, and of each time that one is sent and not clearly refused: a second time only after
	// an answer that got lost, under the same operation id.
	Intended()
	Ordered()
	// Left hears of a state that a run has left, for which, for what reason where there is one, and after how long.
	Left(from, to model.BootstrapStatus, reason string, after time.Duration)
}

type noMeter struct{}

func (noMeter) Intended() {}

func (noMeter) Ordered() {}

func (noMeter) Left(model.BootstrapStatus, model.BootstrapStatus, string, time.Duration) {}

func orNoMeter(m Meter) Meter {
	if m == nil {
		return noMeter{}
	}
	return m
}

// Figures is how all runs stand, over all replicas and tenants.
type Figures struct {
	// Live counts the runs that are not over, by state; those that failed are there until they are cleaned up.
	Live map[model.BootstrapStatus]int
	// Uncertain is how many of them wait for somebody to say what became of an order, Limited how many for their tenant's limit, and
	// Blocked how many cleanups cannot go on without somebody.
	Uncertain, Limited, Blocked int
	// Orphans counts machines without an owner, by which side has none.
	Orphans map[model.OrphanKind]int
	// Refused is how many accounts are held back because their credentials were refused.
	Refused int
}

// Figures reads how all runs stand. It decides nothing: it is for operators.
func (s *Service) Figures(ctx context.Context) (*Figures, error) {
	ctx = everyTenant(ctx)
	f := &Figures{
		Live:    map[model.BootstrapStatus]int{},
		Orphans: map[model.OrphanKind]int{model.OrphanNotOurs: 0, model.OrphanNotThere: 0},
	}
	for _, status := range model.BootstrapStatuses() {
		if status != model.Joined {
			f.Live[status] = 0
		}
	}
	var runs []struct {
		Status                            model.BootstrapStatus
		Runs, Uncertain, Limited, Blocked int
	}
	err := s.DB.NewRaw(`SELECT status, count(*) AS runs, count(*) FILTER (WHERE wait_reason = ?) AS uncertain,
			count(*) FILTER (WHERE wait_reason = ?) AS limited, count(*) FILTER (WHERE cleanup = ?) AS blocked
		FROM bootstraps WHERE live_account_id IS NOT NULL GROUP BY status`,
		model.ClaimUncertain, waitsForOrderLimit, model.CleanupBlocked).Scan(ctx, &runs)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("counting runs", err)
	}
	for _, r := range runs {
		f.Live[r.Status] = r.Runs
		f.Uncertain, f.Limited, f.Blocked = f.Uncertain+r.Uncertain, f.Limited+r.Limited, f.Blocked+r.Blocked
	}
	var orphans []struct {
		Kind model.OrphanKind
		Open int
	}
	err = s.DB.NewRaw("SELECT kind, count(*) AS open FROM orphans WHERE resolved_at IS NULL GROUP BY kind").Scan(ctx, &orphans)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, failed("counting orphans", err)
	}
	for _, o := range orphans {
		f.Orphans[o.Kind] = o.Open
	}
	f.Refused, err = s.Accounts.Refused(ctx)
	return f, err
}
