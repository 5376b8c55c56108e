// Package bootstrap owns the runs by which machines become hosts of a pool: it starts them, drives them through their states,
// cleans up after those that fail, and tells of each transition.
//
// It refuses to know any provider, how an agent joins and who watches. The invariants: a run orders one machine at most,
// through crashes of anything, because the intent is committed before the provider hears of it and a restart looks before
// it orders; and status, history and event of a transition are written together, by one function, under the lease.
package bootstrap

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
	"better/compute/internal/serverkey"
	"better/compute/pool"
	"better/compute/provideraccount"
)

// Options is what the deployment was set up with for installing agents.
type Options struct {
	// AgentBinary opens the agent for an architecture (amd64, arm64).
	AgentBinary func(arch string) (io.ReadCloser, error)
	// JoinURL is the agent listener as machines reach it; CAPin says what they verify it with now.
	JoinURL string
	CAPin   func() string
	// TokenTTL is how long a join token lives after the install was last seen under way; zero means 15 minutes.
	TokenTTL time.Duration
}

// Deps is what a Service and a Reconciler are made of.
type Deps struct {
	DB       *postgres.DB
	Authz    *authz.Decider
	Accounts *provideraccount.Service
	Pools    *pool.Service
	Cursors  *cursor.Sealer
	// Options is nil in a deployment that is not set up for installing agents.
	Options *Options
	Timing  Timing
	// OrdersPerHour is how many orders of a tenant's go out within an hour; zero: as many as are asked for.
	OrdersPerHour int
	Log           *slog.Logger
	// Meter is told what runs do here; nil: nobody counts.
	Meter Meter
	// Fault, when not nil, is called with a name between any two writes or calls. Tests end the process there.
	Fault func(point string)
}

func (d *Deps) fault(point string) {
	if d.Fault != nil {
		d.Fault(point)
	}
}

// Service is what callers do with runs. Every exported method decides first whether the caller may.
type Service struct {
	Deps
	queue *queue
	// deployment tells this deployment from any other, as long as its database lives.
	deployment *serverkey.Key
}

// New makes a Service. It can start runs; a Worker drives them.
func New(d Deps) (*Service, error) {
	q, err := newQueue(d.DB)
	if err != nil {
		return nil, err
	}
	d.Timing, d.Meter = d.Timing.withDefaults(), orNoMeter(d.Meter)
	return &Service{Deps: d, queue: q, deployment: serverkey.New(d.DB, "deployment")}, nil
}

// job is the work item that drives one run. It says which run to look at, never what changed.
type job struct {
	BootstrapID string `json:"bootstrapId"`
}

// Kind is the name of the job in the queue.
func (job) Kind() string { return "bootstrap" }

const queueName = "bootstrap"

// queue puts jobs into the caller's transaction.
type queue struct {
	client *river.Client[*sql.Tx]
}

func newQueue(db *postgres.DB) (*queue, error) {
	client, err := river.NewClient(riverdatabasesql.New(db.DB.DB), &river.Config{})
	if err != nil {
		return nil, fmt.Errorf("making the job inserter: %w", err)
	}
	return &queue{client: client}, nil
}

func (q *queue) insert(ctx context.Context, tx bun.Tx, runID string) (jobID int64, err error) {
	inserted, err := q.client.InsertTx(ctx, tx.Tx, job{BootstrapID: runID}, &river.InsertOpts{Queue: queueName})
	if err != nil {
		return 0, failed("inserting a job", err)
	}
	// Else it is due when this process's clock says so, however wrong that is.
	_, err = tx.NewRaw("UPDATE river_job SET scheduled_at = now() WHERE id = ?", inserted.Job.ID).Exec(ctx)
	return inserted.Job.ID, failed("dating a job", err)
}

// wake gives the run a new job that is due now. Whatever job drove it before finds itself superseded and ends.
func (q *queue) wake(ctx context.Context, tx bun.Tx, runID string) error {
	jobID, err := q.insert(ctx, tx, runID)
	if err != nil {
		return err
	}
	_, err = tx.NewUpdate().Model((*run)(nil)).Set("job_id = ?", jobID).Set("next_at = now()").Where("id = ?", runID).Exec(ctx)
	return failed("waking a run", err)
}

// The actions of the audit log.
const (
	startAction   = "bootstrapMachine"
	retryAction   = "retryBootstrap"
	cancelAction  = "cancelBootstrap"
	resolveAction = "resolveClaim"
)

// record writes the audit row of what a caller did to a run.
func record(ctx context.Context, idb bun.IDB, action string, outcome audit.Outcome, r *run) error {
	details := map[string]any{"bootstrapId": r.ID, "poolId": r.PoolID, "machineId": r.MachineID, "offerId": r.OfferID}
	if r.RetryOf != nil {
		details["retryOf"] = *r.RetryOf
	}
	if r.ClaimResolution != nil {
		details["claimResolution"] = *r.ClaimResolution
	}
	return audit.Record(ctx, idb, audit.Entry{
		TenantID: r.TenantID, Action: action, Object: authz.ProviderAccount(r.TenantID, r.AccountID).String(), Outcome: outcome,
		Details: details,
	})
}
