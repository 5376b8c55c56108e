package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/uptrace/bun"

	"better/compute/internal/problem"
)

const (
	// A step mostly waits for a provider or a machine, so there are many more workers than processors or connections.
	defaultWorkers = 64
	fetchCooldown  = 10 * time.Millisecond
	fetchPoll      = 250 * time.Millisecond

	// lookTime is the most time that one look for work may take.
	lookTime   = 2 * time.Second
	sweepBatch = 100
	// scheduleGrace is how late the queue's own scheduler may be with a job that waits.
	scheduleGrace = 15 * time.Second

	errorPause = 2 * time.Second
)

// Worker drives runs from the queue: one job at a time for each run, and none of them longer than a step. Any number of
// processes may have one on the same database.
type Worker struct {
	reconciler *Reconciler
	queue      *queue
	jobs       jobs
	clock      *clock
	log        *slog.Logger
	stop       context.CancelFunc
	sweeping   sync.WaitGroup
}

// jobs is River's client. Its type has the database driver in its name, which is no business of this package.
type jobs interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	StopAndCancel(ctx context.Context) error
}

// NewWorker makes a Worker with so many runs at a time; zero means 64.
func NewWorker(r *Reconciler, workers int) (*Worker, error) {
	if workers == 0 {
		workers = defaultWorkers
	}
	q, err := newQueue(r.DB)
	if err != nil {
		return nil, err
	}
	r.steps = newSteps(workers)
	w := &Worker{reconciler: r, queue: q, log: r.Log, clock: &clock{own: time.Now}}
	kinds := river.NewWorkers()
	river.AddWorker(kinds, &driver{worker: w})
	w.jobs, err = river.NewClient(riverpgxv5.New(r.DB.Pool), &river.Config{
		Queues:            map[string]river.QueueConfig{queueName: {MaxWorkers: workers}},
		Workers:           kinds,
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPoll,
		JobTimeout:        -1,                    // every call within a step has its own
		ReindexerSchedule: river.NeverSchedule(), // takes the owner of the tables, whom a server does not work as
		Logger:            r.Log,
		Test:              river.TestConfig{Time: w.clock}, // named for tests, and the only way to give the queue a clock
	})
	if err != nil {
		return nil, fmt.Errorf("making the job worker: %w", err)
	}
	return w, nil
}

// Start takes up work until Stop; a database that is away is waited for until ctx ends. Call it once.
func (w *Worker) Start(ctx context.Context) error {
	life, stop := context.WithCancel(everyTenant(context.WithoutCancel(ctx)))
	w.stop = stop
	for {
		err := w.clock.set(life, w.reconciler.DB.DB)
		if err == nil {
			err = failed("starting the job worker", w.jobs.Start(life))
		}
		if err == nil {
			w.sweeping.Go(func() { w.loop(life, "looking for bootstraps without a job", w.sweepRuns) })
			w.sweeping.Go(func() { w.loop(life, "giving machines back on somebody's word", w.reconciler.releaseOrphans) })
			w.sweeping.Go(func() { w.loop(life, "looking for machines without an owner", w.reconciler.sweepAccounts) })
			return nil
		}
		if !problem.Is(err, problem.Unavailable) {
			stop()
			return err
		}
		w.log.WarnContext(ctx, "the job worker waits for the database", "error", err)
		if err := w.jobs.Stop(life); err != nil { // until then it takes itself for started
			return fmt.Errorf("starting the job worker again: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(errorPause):
		}
	}
}

// Stop takes up nothing new and waits for the steps that go on; those that are not done when ctx ends are cancelled.
func (w *Worker) Stop(ctx context.Context) error {
	defer w.sweeping.Wait()
	defer w.stop()
	err := w.jobs.Stop(ctx)
	if err == nil || ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return w.jobs.StopAndCancel(last)
}

// driver is the River worker.
type driver struct {
	river.WorkerDefaults[job]
	worker *Worker
}

// NextRetry is for a step that panicked: the lease has to end first, whatever the attempt.
func (d *driver) NextRetry(*river.Job[job]) time.Time {
	return d.worker.clock.Now().Add(d.worker.reconciler.Timing.Lease)
}

// Work steps the run until there is something to wait for. A job that the run does not name is superseded and ends.
func (d *driver) Work(ctx context.Context, j *river.Job[job]) error {
	for {
		mine, err := d.worker.drives(ctx, j)
		var next Next
		if err == nil && mine {
			next, err = d.worker.reconciler.Step(ctx, j.Args.BootstrapID)
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				d.worker.log.WarnContext(ctx, "a step of a bootstrap was not done", "bootstrapId", j.Args.BootstrapID, "error", err)
			}
			return river.JobSnooze(errorPause)
		case !mine || next.Done:
			return nil
		case next.After > 0:
			return river.JobSnooze(next.After)
		}
	}
}

func (w *Worker) drives(ctx context.Context, j *river.Job[job]) (bool, error) {
	mine, err := w.reconciler.DB.NewSelect().Model((*run)(nil)).Where("id = ?", j.Args.BootstrapID).Where("job_id = ?", j.ID).Exists(ctx)
	if err != nil {
		return false, failed("reading which job drives a run", err)
	}
	return mine, nil
}

// loop does something at once, and then again and again, and says when it could not. A server that starts has often come back from a
// crash, so what the crash left behind does not wait; servers that crash sooner than the first tick would never come to it.
func (w *Worker) loop(ctx context.Context, what string, do func(context.Context) error) {
	every := w.reconciler.Timing.Unattended
	tick := time.NewTicker(jitter(every, every/4))
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			w.log.WarnContext(ctx, "something that is done again and again could not be done", "what", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Worker) sweepRuns(ctx context.Context) error {
	if err := w.clock.set(ctx, w.reconciler.DB.DB); err != nil {
		return err
	}
	_, err := w.sweep(ctx)
	return err
}

// waiting are the states of a job that the queue will still take up by itself.
var waiting = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateScheduled,
}

// sweep gives a new job to each run that is due, has nobody working on it and no job that would come to it: its job was lost, or
// counts as running in a process that died, or comes too late, since it was put off by a wrong clock.
func (w *Worker) sweep(ctx context.Context) (found int, err error) {
	err = w.reconciler.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		var ids []string
		err := tx.NewSelect().Model((*run)(nil)).Column("b.id").
			Join("LEFT JOIN river_job AS j").JoinOn("j.id = b.job_id").JoinOn("j.state IN (?)", bun.List(waiting)).
			JoinOn("j.state = ? OR j.scheduled_at > now() - ? * interval '1 microsecond'", rivertype.JobStateAvailable, scheduleGrace.Microseconds()).
			JoinOn("j.scheduled_at <= now() + ? * interval '1 microsecond'", errorPause.Microseconds()).
			Where("b.live_account_id IS NOT NULL").Where("j.id IS NULL").
			Where("b.next_at < now() - ? * interval '1 microsecond'", w.reconciler.Timing.Unattended.Microseconds()).
			Where("b.lease_until IS NULL OR b.lease_until <= now()").
			OrderExpr("b.next_at").Limit(sweepBatch).For("NO KEY UPDATE OF b SKIP LOCKED").Scan(ctx, &ids)
		if err != nil {
			return failed("looking for runs without a job", err)
		}
		for _, id := range ids {
			if err := w.queue.wake(ctx, tx, id); err != nil {
				return err
			}
			w.reconciler.fault("waking.woken")
		}
		found = len(ids)
		return nil
	})
	return found, err
}
