package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/internal/slots"
)

// atOnce is how many things of each caller, and of each tenant, go on at a time.
type atOnce struct {
	sockets *slots.Set // WebSockets: of a caller, and of the services of a tenant
	streams *slots.Set // event streams of a caller, running subscriptions of a tenant

	// What is executed takes the slots of its operation and then those of each of its fields that is read or changed, for as long as that takes. There
	// are fewer of either than connections to the database, of which each field needs one: so no caller and no tenant has all of them.
	// A subscription has none while it waits: each event is an operation.
	operations turns
	fields     *slots.Set
	// live are the operations that call a provider: what hangs there does not keep their caller from anything else.
	live turns
	wait time.Duration // until an operation that has no slot is refused
}

func newAtOnce(l Limits, running prometheus.Gauge) atOnce {
	set := func(perSubject, perTenant int) *slots.Set {
		return slots.New(slots.Level{Name: limitSubject, PerKey: perSubject}, slots.Level{Name: limitTenant, PerKey: perTenant})
	}
	executed := func() *slots.Set { return set(l.OperationsPerSubject, l.OperationsPerTenant) }
	inTurn := func() turns { return turns{unanswered: executed(), executed: executed(), running: running} }
	return atOnce{
		sockets: set(l.SocketsPerSubject, l.StreamsPerTenant), streams: set(l.StreamsPerSubject, l.StreamsPerTenant),
		operations: inTurn(), fields: executed(), live: inTurn(), wait: l.OperationWait,
	}
}

// turns are the slots of operations. One has those of its tenants while it is executed, and those of its caller until it is answered, since a large
// answer is memory for as long as it is read: however slowly that goes, it keeps nobody but its caller from anything.
type turns struct {
	unanswered *slots.Set // of a caller, and of the services of a tenant
	executed   *slots.Set // of a tenant
	running    prometheus.Gauge
}

// smallAnswer is what takes no memory worth counting: it is with the client, or with the system, after one paced write.
const smallAnswer = paceBytes

// turn is the slots that one operation has; the zero value has none.
type turn struct{ executed, answered func() }

// take waits for a turn until ctx ends. The error is a FullError.
func (t turns) take(ctx context.Context, keys callerKeys) (turn, error) {
	answered, err := t.unanswered.Take(ctx, keys.caller...)
	if err != nil {
		return turn{}, err
	}
	executed, err := t.executed.Take(ctx, keys.tenants...)
	if err != nil {
		answered()
		return turn{}, err
	}
	t.running.Inc()
	return turn{sync.OnceFunc(func() { t.running.Dec(); executed() }), answered}, nil
}

// tell ends the execution, before an answer is written that may keep its caller's slots until end.
func (t turn) tell(small bool) {
	if t.executed == nil {
		return
	}
	t.executed()
	if small {
		t.answered()
	}
}

func (t turn) end() { t.tell(true) }

// callerKeys are what the slots of a caller's operation are of: the caller, with the tenant whose service it is, and its own tenants.
type callerKeys struct{ caller, tenants []slots.Key }

func (k callerKeys) all() []slots.Key { return slices.Concat(k.caller, k.tenants) }

// keys are those of the context's caller and of its own tenants, those among the named and its service's.
func (q *quota) keys(ctx context.Context, tenants []string) callerKeys {
	actor, _ := authz.ActorFrom(ctx)
	keys := callerKeys{caller: keysOf(actor.Subject)}
	for _, tenant := range q.own(ctx, tenants) {
		keys.tenants = append(keys.tenants, slots.Key{Level: limitTenant, Name: tenant})
	}
	return keys
}

// keysOf are those of a caller, and of the tenant whose service it is: that has as many as its administrators like.
func keysOf(caller authz.Subject) []slots.Key {
	keys := []slots.Key{{Level: limitSubject, Name: caller}}
	if home := authz.ServiceTenant(caller); home != "" {
		keys = append(keys, slots.Key{Level: limitTenant, Name: home})
	}
	return keys
}

// operation waits for the turn of an operation. RATE_LIMITED when it did not come for too long; details.limit says by whose slots, "subject" or "tenant".
func (q *quota) operation(ctx context.Context, live bool, keys callerKeys) (turn, error) {
	turns := q.operations
	if live {
		turns = q.live
	}
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	t, err := turns.take(ctx, keys)
	full, ok := errors.AsType[*slots.FullError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) {
		return t, err
	}
	rule, message := "operations", "You have too many operations under way; wait for some of them."
	if full.Key.Level == limitTenant {
		rule, message = "tenant_operations", "The callers of this tenant have too many operations under way; try again later."
	}
	return turn{}, problem.New(problem.RateLimited, "%s", message).
		With("rule", rule).With("limit", full.Key.Level).With("retryAfterSeconds", 1)
}

// fieldsInTurn has each field of the operation that a resolver stands behind hold slots while it is resolved, but not those that wait for a
// provider. No such field is resolved within another, so none waits for one that waits for it.
func (q *quota) fieldsInTurn(op *operation, keys callerKeys, live map[string]bool) {
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		field := graphql.GetFieldContext(ctx)
		if !field.IsResolver || live[field.Object+"."+field.Field.Name] {
			return inner(ctx, next)
		}
		release, err := q.fields.Take(ctx, keys.all()...)
		if err != nil {
			return nil, err
		}
		defer release()
		return inner(ctx, next)
	}
}

// call waits for the turn of a REST call: that of an operation and, unless it waits for a provider, the slots of its only field.
func (q *quota) call(ctx context.Context, live bool, tenants []string) (turn, error) {
	keys := q.keys(ctx, tenants)
	t, err := q.operation(ctx, live, keys)
	if err != nil || live {
		return t, err
	}
	field, err := q.fields.Take(ctx, keys.all()...)
	if err != nil {
		t.end()
		return turn{}, err
	}
	return turn{func() { field(); t.executed() }, t.answered}, nil
}

// answering tells a call's turn of its answer, which is written at once, since what the call does is done then.
type answering struct {
	http.ResponseWriter
	turn turn
}

func (a *answering) Write(b []byte) (int, error) {
	a.turn.tell(len(b) <= smallAnswer)
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// subscription takes a slot for a subscription in each of the caller's tenants among those named.
func (q *quota) subscription(ctx context.Context, tenants []string) (release func(), err error) {
	var keys []slots.Key
	for _, tenant := range q.own(ctx, tenants) {
		keys = append(keys, slots.Key{Level: limitTenant, Name: tenant})
	}
	if release, err = q.streams.Try(keys...); err != nil {
		return nil, problem.New(problem.RateLimited, "The callers of this tenant have too many open streams.").
			With("rule", "streams_per_tenant").With("limit", q.streamsPerTenant).With("retryAfterSeconds", 1)
	}
	return release, nil
}

// eventStream takes a slot for an event stream of the caller.
func (q *quota) eventStream(caller authz.Subject) (release func(), err error) {
	return q.streams.Try(slots.Key{Level: limitSubject, Name: caller})
}

// socket takes a slot for a caller's WebSocket, and one among those of the tenant whose service it is. The error is a FullError.
func (q *quota) socket(caller authz.Subject) (release func(), err error) {
	return q.sockets.Try(keysOf(caller)...)
}
