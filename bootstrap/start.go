package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// errReplay says that a run with the id is there already.
var errReplay = errors.New("the run exists")

// Start starts a run for a machine of the account, or for one to be ordered as an offer, for a caller who holds
// compute:providers:manage on the account. UNAUTHENTICATED, INVALID_INPUT or FORBIDDEN. Idempotent: a repeat of the key by the same
// caller gives the run as it is now, and CONFLICT when it asks for something else.
//
// The other refusals, each only when those before it do not hold: INVALID_CONFIG, NOT_FOUND (account), UNSUPPORTED, NOT_FOUND,
// INVALID_STATE and INVALID_INPUT of the pool, CONFLICT (machine in use). The run is driven by whichever replica gets to it first.
func (s *Service) Start(ctx context.Context, in model.BootstrapMachineInput) (*model.BootstrapMachinePayload, error) {
	actor, err := s.Authz.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if err := StartForm(in).Err(); err != nil {
		return nil, err
	}
	if err := s.Authz.Check(ctx, model.ProvidersManage, authz.ProviderAccount(in.TenantID, in.AccountID)); err != nil {
		return nil, err
	}
	runID := id.Derive("boot", "bootstrap", in.TenantID, actor.Subject, in.IdempotencyKey)
	if p, err := s.replay(ctx, runID, in); p != nil || err != nil {
		return p, err
	}
	plan, err := s.plan(ctx, runID, actor.Subject, in)
	if err != nil {
		return nil, err
	}
	var created *run
	err = s.Authz.Holding(ctx, needs(in.TenantID, in.AccountID), func(ctx context.Context, tx bun.Tx) error {
		created, err = s.create(ctx, tx, plan)
		return err
	})
	if errors.Is(err, errReplay) {
		return s.replay(ctx, runID, in)
	}
	if err != nil {
		return nil, err
	}
	return &model.BootstrapMachinePayload{Bootstrap: &created.Bootstrap}, nil
}

// StartForm lists what is wrong with the form of an input of Start. It decides nothing: Start says the same before it decides.
func StartForm(in model.BootstrapMachineInput) problem.Issues {
	var check checklist
	check.start(in)
	return check.issues
}

// replay finds the run that an earlier call with the key started; nil when there is none.
func (s *Service) replay(ctx context.Context, runID string, in model.BootstrapMachineInput) (*model.BootstrapMachinePayload, error) {
	r, err := load(ctx, s.DB.DB, in.TenantID, runID)
	if r == nil || err != nil {
		return nil, err
	}
	if r.AccountID != in.AccountID || r.PoolID != in.PoolID || !r.asks(in) {
		return nil, problem.New(problem.Conflict, "The idempotency key was used for another bootstrap.").With("idempotencyKey", in.IdempotencyKey)
	}
	if err := record(ctx, s.DB.DB, startAction, audit.Replayed, r); err != nil {
		return nil, postgres.Translate(err)
	}
	return &model.BootstrapMachinePayload{Bootstrap: &r.Bootstrap, Replayed: true}, nil
}

// asks reports whether the input names the machine or the offer that the run was started for. An ordered run has a machine too, later.
func (r *run) asks(in model.BootstrapMachineInput) bool {
	if in.OfferID != nil {
		return r.OfferID != nil && *r.OfferID == *in.OfferID
	}
	return r.OfferID == nil && *r.MachineID == *in.MachineID
}

// plan is a run that is about to be created.
type plan struct {
	run        *run
	change     change
	machineKey string // empty for a machine that is yet to be ordered
	machineErr error  // why the machine has no key: said after what is wrong with the pool
	contested  bool   // whoever has the machine yields to who reaches it first
}

// plan checks what the deployment and the provider can do. It makes no call to the provider.
func (s *Service) plan(ctx context.Context, runID, subject string, in model.BootstrapMachineInput) (*plan, error) {
	if s.Options == nil {
		return nil, notSetUp()
	}
	account, err := s.Accounts.Account(ctx, s.DB.DB, in.TenantID, in.AccountID)
	if err != nil {
		return nil, err
	}
	manifest, ok := s.Accounts.Manifest(account.Provider)
	if !ok {
		return nil, noProvider(account.Provider)
	}
	if err := supports(manifest, in.OfferID != nil); err != nil {
		return nil, err
	}
	operation, err := s.operationID(ctx, runID)
	if err != nil {
		return nil, err
	}
	p := &plan{
		run: &run{
			Bootstrap: model.Bootstrap{
				ID: runID, TenantID: in.TenantID, AccountID: in.AccountID, PoolID: in.PoolID,
				MachineID: in.MachineID, OfferID: in.OfferID,
			},
			CreatedBy: subject, OperationID: operation,
		},
		change: change{to: model.Identifying, limit: s.Timing.Identifying},
	}
	if in.OfferID != nil {
		p.change = change{to: model.Claiming, limit: s.Timing.claim(manifest, "")}
		return p, nil
	}
	p.machineKey, p.machineErr = s.machineKey(ctx, account, *in.MachineID)
	p.contested, err = s.contested(ctx, p.machineKey, in.TenantID)
	return p, err
}

const (
	// graceUnproved is how long a run keeps all others from a machine that it has not reached yet.
	graceUnproved = time.Minute
	// rememberUnproved is for how long its tenant has no such time once it failed without having reached the machine.
	rememberUnproved = time.Hour
)

// contested reports whether the machine is had only by a run of another tenant that had its time to reach it.
func (s *Service) contested(ctx context.Context, key, tenantID string) (bool, error) {
	if key == "" {
		return false, nil
	}
	return yields(everyTenant(ctx), s.DB.DB, key, tenantID, graceUnproved)
}

// supports is UNSUPPORTED with the capabilities that the provider lacks.
func supports(m provider.Manifest, order bool) error {
	var missing []string
	if !m.Capabilities.Bootstrap {
		missing = append(missing, "bootstrap")
	}
	if order && !m.Capabilities.Order {
		missing = append(missing, "order")
	}
	if len(missing) == 0 {
		return nil
	}
	return problem.New(problem.Unsupported, "The provider %s cannot do this: it lacks %s.", m.Name, strings.Join(missing, " and ")).
		With("missing", missing)
}

func notSetUp() error {
	return problem.New(problem.InvalidConfig, "This server is not set up to bootstrap machines.")
}

func noProvider(name string) error {
	return problem.New(problem.InvalidConfig, "This server does not have the provider %s.", name)
}

// machineInUse names nobody: it may be another tenant who has the machine.
func machineInUse(machineID string) error {
	return problem.New(problem.Conflict, "The machine is in another bootstrap, or is a host already.").With("machineId", machineID)
}

func (s *Service) machineKey(ctx context.Context, account *model.ProviderAccount, machineID string) (string, error) {
	client, err := s.Accounts.Open(ctx, account)
	if err != nil {
		return "", err
	}
	b, err := bootstrapper(client, account)
	if err != nil {
		return "", err
	}
	key, err := b.MachineKey(machineID)
	if err != nil {
		return "", problem.New(problem.NotFound, "The account cannot have a machine of this id.").Because(err)
	}
	return key, nil
}

// create writes the run with its history, event, job and audit row; errReplay when it is there already.
func (s *Service) create(ctx context.Context, tx bun.Tx, p *plan) (*run, error) {
	if err := s.Accounts.LockForUse(ctx, tx, p.run.TenantID, p.run.AccountID); err != nil {
		return nil, err
	}
	if err := s.checkPool(ctx, tx, p.run.TenantID, p.run.PoolID); err != nil {
		return nil, err
	}
	if p.machineErr != nil {
		return nil, p.machineErr
	}
	jobID, err := s.queue.insert(ctx, tx, p.run.ID)
	if err != nil {
		return nil, err
	}
	r, err := insert(ctx, tx, p, jobID)
	if err != nil {
		return nil, err
	}
	s.fault("starting.inserted")
	action := startAction
	if r.RetryOf != nil {
		action = retryAction
		if r, err = takeOver(ctx, tx, r); err != nil {
			return nil, err
		}
		s.fault("retrying.took-over")
	}
	if p.machineKey != "" {
		got, err := reserve(ctx, tx, p.machineKey, r.ID)
		if err != nil {
			return nil, err
		}
		if !got && !p.contested {
			return nil, machineInUse(*r.MachineID)
		}
	}
	if err := announce(ctx, tx, r, p.change); err != nil {
		return nil, err
	}
	return r, record(ctx, tx, action, audit.Allowed, r)
}

func (s *Service) checkPool(ctx context.Context, tx bun.IDB, tenantID, poolID string) error {
	pool, err := s.Pools.ForBootstrap(ctx, tx, tenantID, poolID)
	if err != nil {
		return err
	}
	if pool.ArchivedAt != nil {
		return problem.New(problem.InvalidState, "The pool is archived.").With("poolId", pool.ID)
	}
	var issues problem.Issues
	if pool.Class != model.ClassVPSHost && pool.Class != model.ClassMetalHost {
		issues.Add("poolId", "must name a pool of class vps-host or metal-host; this one is %s", pool.Class)
	}
	if pool.Agent != model.AgentBCD {
		issues.Add("poolId", "must name a pool with the agent bcd; this one has %s", pool.Agent)
	}
	return issues.Err()
}

// insert writes the row. It waits for a transaction that is just writing the same one, and is errReplay when that commits. The
// operation id derives from the id and the deployment, so whichever of the two is found taken, it is the same run.
func insert(ctx context.Context, tx bun.IDB, p *plan, jobID int64) (*run, error) {
	created := new(run)
	err := tx.NewRaw(`
		INSERT INTO bootstraps AS b (id, tenant_id, account_id, pool_id, machine_id, offer_id, created_by, operation_id, status,
			deadline_at, job_id, retry_of)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING
		RETURNING `+withNow,
		p.run.ID, p.run.TenantID, p.run.AccountID, p.run.PoolID, p.run.MachineID, p.run.OfferID, p.run.CreatedBy, p.run.OperationID,
		p.change.to, fromNow(p.change.limit), jobID, p.run.RetryOf).Scan(ctx, created)
	return created, replayed(err)
}

// operationID is what a provider sees of a run: a host name, label or client token. Another deployment at the same project, to which the same
// subject of the same tenant says the same idempotency key, has a run of the same id and not of the same operation.
func (s *Service) operationID(ctx context.Context, runID string) (string, error) {
	deployment, err := s.deployment.Get(ctx)
	if err != nil {
		return "", err
	}
	return operationPrefix + strings.TrimPrefix(id.Derive("op", string(deployment), runID), "op_"), nil
}

// operationPrefix is what provider.IsOperationID knows the operation ids of deployments by.
const operationPrefix = "bcd-"

func replayed(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errReplay
	}
	return failed("writing a run", err)
}
