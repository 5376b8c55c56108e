package server

import (
	"context"
	"errors"
	"net/http"
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

	// What is executed takes a slot of its operation and then one for each of its fields that is read or changed, for as long as that takes. There are
	// fewer of either than connections to the database, of which each field needs one: so no caller and no tenant has all of them.
	// A subscription has slots of fields alone, since most of its time it waits.
	operations *slots.Set
	fields     *slots.Set
	// live are the operations that call a provider: what hangs there does not keep their caller from anything else.
	live    *slots.Set
	wait    time.Duration // until an operation that has no slot is refused
	running prometheus.Gauge
}

func newAtOnce(l Limits, running prometheus.Gauge) atOnce {
	set := func(perSubject, perTenant int) *slots.Set {
		return slots.New(slots.Level{Name: limitSubject, PerKey: perSubject}, slots.Level{Name: limitTenant, PerKey: perTenant})
	}
	executed := func() *slots.Set { return set(l.OperationsPerSubject, l.OperationsPerTenant) }
	return atOnce{
		sockets: set(l.SocketsPerSubject, l.StreamsPerTenant), streams: set(l.StreamsPerSubject, l.StreamsPerTenant),
		operations: executed(), fields: executed(), live: executed(), wait: l.OperationWait, running: running,
	}
}

// keys are those of the context's caller and of its own tenants, those among the named and its service's.
func (q *quota) keys(ctx context.Context, tenants []string) []slots.Key {
	var keys []slots.Key
	for _, a := range q.accounts(ctx, tenants) {
		keys = append(keys, slots.Key{Level: a.limit, Name: a.name})
	}
	return keys
}

// operation waits for the slots of an operation. RATE_LIMITED when there was none for too long; details.limit says whose, "subject" or "tenant".
func (q *quota) operation(ctx context.Context, live bool, keys []slots.Key) (release func(), err error) {
	set := q.operations
	if live {
		set = q.live
	}
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	free, err := set.Take(ctx, keys...)
	if err == nil {
		q.running.Inc()
		return sync.OnceFunc(func() { q.running.Dec(); free() }), nil
	}
	full, ok := errors.AsType[*slots.FullError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	rule, message := "operations", "You have too many operations under way; wait for some of them."
	if full.Key.Level == limitTenant {
		rule, message = "tenant_operations", "The callers of this tenant have too many operations under way; try again later."
	}
	return nil, problem.New(problem.RateLimited, "%s", message).
		With("rule", rule).With("limit", full.Key.Level).With("retryAfterSeconds", 1)
}

// fieldsInTurn has each field of the operation that a resolver stands behind hold slots while it is resolved, but not those that wait for a
// provider. No such field is resolved within another, so none waits for one that waits for it.
func (q *quota) fieldsInTurn(op *operation, keys []slots.Key, live map[string]bool) {
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		field := graphql.GetFieldContext(ctx)
		if !field.IsResolver || live[field.Object+"."+field.Field.Name] {
			return inner(ctx, next)
		}
		release, err := q.fields.Take(ctx, keys...)
		if err != nil {
			return nil, err
		}
		defer release()
		return inner(ctx, next)
	}
}

// call waits for the slots of a REST call: those of an operation and, unless it waits for a provider, of its only field.
func (q *quota) call(ctx context.Context, live bool, tenants []string) (release func(), err error) {
	keys := q.keys(ctx, tenants)
	operation, err := q.operation(ctx, live, keys)
	if err != nil || live {
		return operation, err
	}
	field, err := q.fields.Take(ctx, keys...)
	if err != nil {
		operation()
		return nil, err
	}
	return func() { field(); operation() }, nil
}

// answering gives the slots of a call back once it is answered, since what it does is done then, however slowly the answer is read.
type answering struct {
	http.ResponseWriter
	release func()
}

func newAnswering(w http.ResponseWriter, release func()) *answering {
	return &answering{w, sync.OnceFunc(release)}
}

func (a *answering) WriteHeader(status int) {
	a.release()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answering) Write(b []byte) (int, error) {
	a.release()
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
	keys := []slots.Key{{Level: limitSubject, Name: caller}}
	if home := authz.ServiceTenant(caller); home != "" {
		keys = append(keys, slots.Key{Level: limitTenant, Name: home})
	}
	return q.sockets.Try(keys...)
}
