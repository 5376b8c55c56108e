// Package authz decides whether a caller may do something to an object, and keeps who has which role where.
//
// It owns the permissions, the roles, the bindings and the denials in the audit log; nothing else imports Casbin. It refuses to know
// whether an object exists: it decides on the names that the caller gave, before anything is looked up. The invariant: each
// decision is what the roles, the bindings and the caller's API token said together at one moment, and not a second ago, in
// any replica, whatever happened to the notification of a change, and not of before a version that it was told of; a decision that cannot be made is a denial.
package authz

import (
	"context"
	"log/slog"
	"time"

	"better/compute/audit/journal"
	"better/compute/internal/cursor"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/internal/slots"
)

const (
	loadTimeout   = 2 * time.Second
	denialTimeout = 2 * time.Second
)

// Decider decides, from what it reads of the policy and caches for as long as Run proves it fresh. Without Run it is right all the same
// and reads for each decision. Safe for concurrent use.
type Decider struct {
	// Denials holds back a caller who is denied again and again, on this replica. Set it before the first decision.
	Denials DenialLimits

	db       *postgres.DB
	log      *slog.Logger
	now      func() time.Time
	roles    *roles
	cursors  *cursor.Sealer
	cache    *policyCache
	reads    reads
	watchers watchers
	denials  denials
	turns    *slots.Set
}

// New makes a Decider; Run makes it fast.
func New(db *postgres.DB, log *slog.Logger) (*Decider, error) {
	r, err := loadRoles(policyText)
	if err != nil {
		return nil, err
	}
	return &Decider{
		Denials: defaultDenials, db: db, log: log, now: time.Now, roles: r, cursors: cursor.NewSealer(db), cache: newPolicyCache(cachedSubjects, cachedTokens),
		turns: newTurns(),
	}, nil
}

// Authenticated finds the caller. UNAUTHENTICATED without one, or with one whose credential has ended or was revoked; UNAVAILABLE when
// that cannot be read.
func (d *Decider) Authenticated(ctx context.Context) (Actor, error) {
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil || actor.Credential == "" {
		return actor, err
	}
	actor, _, err = d.caller(ctx)
	return actor, err
}

// Live reports whether the API token of that id is there, not revoked and not expired: as of less than a second ago, as decisions
// are. UNAVAILABLE when that cannot be read.
func (d *Decider) Live(ctx context.Context, credential string) (bool, error) {
	s, err := d.standing(ctx, question{credential: credential})
	return err == nil && s.token.live(d.now()), err
}

// PolicyVersion selects, in whatever statement, the version that the policy has in its snapshot.
const PolicyVersion = "(SELECT version FROM policy_version)"

// Reached tells which PolicyVersion a statement saw: no decision that begins after it is one of an earlier version, even if this replica
// did not hear of the change. Who decides about what a statement read, and tells its version first, shows nothing to anybody from whom the
// right was taken before it was written.
func (d *Decider) Reached(version int64) { d.cache.reach(version, d.now()) }

// Check answers nil when the caller of the context holds the permission on the object. Otherwise UNAUTHENTICATED (no caller, or
// one whose credential has ended or was revoked), FORBIDDEN with details.permission and details.object, which is also written to
// the audit log, RATE_LIMITED instead of a denial to a caller that was denied too often, or UNAVAILABLE when the policy cannot be read.
func (d *Decider) Check(ctx context.Context, p Permission, o Object) error {
	actor, held, err := d.caller(ctx)
	if err != nil {
		return err
	}
	if decide(held, p, o) != granted {
		return d.deny(ctx, actor, p, o)
	}
	return nil
}

// ErrorFor gives err, or the denial where the caller no longer holds the permission on the object: what comes after a wait, for a provider say, is
// not told to who lost the right meanwhile, whether it is an answer or a failure. Otherwise as Check.
func (d *Decider) ErrorFor(ctx context.Context, p Permission, o Object, err error) error {
	if denied := d.Check(ctx, p, o); denied != nil {
		return denied
	}
	return err
}

// Holds reports whether the caller holds the permission on the object, and records nothing: for what is left out instead of refused.
// UNAUTHENTICATED or UNAVAILABLE.
func (d *Decider) Holds(ctx context.Context, p Permission, o Object) (bool, error) {
	_, held, err := d.caller(ctx)
	return err == nil && decide(held, p, o) == granted, err
}

// Permissions lists what the caller holds on the object, in the order of AllPermissions. Any caller may ask about itself.
// UNAUTHENTICATED or UNAVAILABLE as in Check.
func (d *Decider) Permissions(ctx context.Context, o Object) ([]Permission, error) {
	_, held, err := d.caller(ctx)
	if err != nil {
		return nil, err
	}
	permissions := []Permission{}
	for _, p := range AllPermissions() {
		if decide(held, p, o) == granted {
			permissions = append(permissions, p)
		}
	}
	return permissions, nil
}

// caller finds the caller of the context and the bindings that count for it.
func (d *Decider) caller(ctx context.Context) (Actor, []bindingsOf, error) {
	actor, err := authenticatedAt(ctx, d.now())
	if err != nil {
		return Actor{}, nil, err
	}
	s, err := d.standing(ctx, actor.question())
	if err != nil {
		return Actor{}, nil, err
	}
	if !s.of(actor, d.now()) {
		return Actor{}, nil, errUnauthenticated()
	}
	return actor, s.held, nil
}

// of reports whether the actor still is a caller, as far as its token goes.
func (s standing) of(a Actor, now time.Time) bool { return a.Credential == "" || s.token.live(now) }

// standing answers from the cache where that is proven fresh, and else reads the whole answer at once.
func (d *Decider) standing(ctx context.Context, q question) (standing, error) {
	if answer, ok, _ := d.cache.get(q, d.now()); ok {
		return answer, nil
	}
	return d.standingAnew(ctx, q)
}

// standingAnew reads it, whatever the cache has, together with all who ask the same.
func (d *Decider) standingAnew(ctx context.Context, q question) (standing, error) {
	read, err := d.reads.join(ctx, q, func() (snapshot, error) { return d.read(context.WithoutCancel(ctx), q) })
	if err != nil {
		return standing{}, problem.New(problem.Unavailable, "The rights of the caller cannot be read right now; try again.").Because(err)
	}
	return read.standing(q), nil
}

func (d *Decider) read(ctx context.Context, q question) (snapshot, error) {
	ctx, cancel := context.WithTimeout(acrossTenants(ctx), loadTimeout)
	defer cancel()
	_, _, generation := d.cache.get(question{}, d.now())
	read, err := d.readPolicy(ctx, d.db.DB, q)
	if err == nil {
		d.cache.put(q, read, generation)
	}
	return read, err
}

type decision int

const (
	undecided decision = iota // no binding says anything
	granted
	denied
)

// decide walks from the object up to the fleet. One deny anywhere beats every grant, but who administers the fleet answers to nobody below
// it in that: else any tenant's administrator could keep them from putting the tenant right.
func decide(held []bindingsOf, p Permission, o Object) decision {
	if !decides {
		return granted
	}
	if p == IAMManage && o != Fleet() && administersFleet(held) {
		return granted
	}
	result := undecided
	for _, name := range o.chain() {
		for _, h := range held {
			switch h.on(name, p) {
			case denied:
				return denied
			case granted:
				result = granted
			case undecided:
			}
		}
	}
	return result
}

// deny writes the denial down and says it. The row is written outside of any transaction of the caller, which is about to be
// rolled back, although the client may be gone already, and although it is about a tenant whose rows the caller does not see. A
// row that cannot be written changes nothing about the denial. To a caller with no denials left it says RATE_LIMITED instead, and
// leaves no row: no denial is told that is not written.
func (d *Decider) deny(ctx context.Context, actor Actor, p Permission, o Object) error {
	if err := d.denials.take(d.Denials, actor.Subject, d.now()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(acrossTenants(context.WithoutCancel(ctx)), denialTimeout)
	defer cancel()
	err := journal.Write(ctx, d.db.DB, Caller(ctx, actor.Subject), journal.Entry{
		TenantID: o.TenantID(), Action: string(p), Object: o.String(), Outcome: journal.Denied,
	})
	if err != nil {
		d.log.ErrorContext(ctx, "a denial is missing from the audit log", "actor", actor.Subject, "permission", p,
			"object", o.String(), "requestId", RequestID(ctx), "error", err)
	}
	return problem.New(problem.Forbidden, "This needs %s on %s.", p, o).
		With("permission", string(p)).With("object", o.String())
}
