package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/authz"
	"better/compute/internal/problem"
)

// serveEvents runs one operation as an event stream, in the distinct connections mode of graphql-sse: a `next` event for
// each response, then `complete`. At drain the stream ends without `complete`, by which the client knows to resume.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, params *graphql.RawParams) {
	actor, _ := authz.ActorFrom(r.Context())
	release, err := s.quota.eventStream(actor.Subject)
	if err != nil {
		s.metrics.limit("streams_per_subject")
		s.refuse(w, r, problem.New(problem.RateLimited, "You have too many open streams.").
			With("limit", s.config.Limits.StreamsPerSubject).With("retryAfterSeconds", 1))
		return
	}
	defer release()
	op, refusal := s.engine.prepare(r.Context(), params)
	if refusal == nil && op.kind() == ast.Mutation && r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.fail(w, r, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "A mutation must be sent by POST."))
		return
	}
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()

	ends := s.draining
	if op != nil && op.kind() != ast.Subscription {
		ends = r.Context() // it is answered before the server stops, as any request
	}
	ctx, cancel := streamContext(r.Context(), ends, actor)
	defer cancel()
	events := openEvents(w)
	if refusal != nil {
		_ = events.next(refusal)
		_ = events.complete()
		return
	}
	var pings sync.WaitGroup
	pings.Go(func() { events.keepAlive(ctx, cancel, s.config.Limits.KeepAlive) })
	defer pings.Wait()
	defer cancel()
	if err := s.engine.run(ctx, op, events.next); err != nil {
		return
	}
	s.endEvents(ctx, events)
}

// endEvents says why a stream is over, unless the server drains or the client is gone.
func (s *Server) endEvents(ctx context.Context, events *events) {
	if ctx.Err() != nil {
		if !errors.Is(context.Cause(ctx), errCredentialEnded) {
			return
		}
		_ = events.next(s.engine.refuse(context.WithoutCancel(ctx), problem.New(problem.Unauthenticated, "The credential has ended.")))
	}
	_ = events.complete()
}

var errCredentialEnded = errors.New("the caller's credential has ended")

// streamContext ends with the request, with what else ends it, and with the caller's credential (errCredentialEnded). That an API token
// was revoked is for what feeds the stream to see.
func streamContext(ctx, ends context.Context, actor authz.Actor) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	cancel := func() { cancelCause(nil) }
	stop := context.AfterFunc(ends, cancel)
	if actor.Withdrawn != nil {
		go func() {
			select {
			case <-ctx.Done():
			case <-actor.Withdrawn:
				cancelCause(errCredentialEnded)
			}
		}()
	}
	if actor.Expires.IsZero() {
		return ctx, func() { stop(); cancel() }
	}
	ctx, cancelDeadline := context.WithDeadlineCause(ctx, actor.Expires, errCredentialEnded)
	return ctx, func() { stop(); cancelDeadline(); cancel() }
}

// events writes an event stream. A client that does not take an event within the write time loses the connection.
type events struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

func openEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", typeEvents+utf8Suffix)
	w.Header().Set("X-Accel-Buffering", "no") // or a proxy holds events back
	w.WriteHeader(http.StatusOK)
	e := &events{w: w, control: http.NewResponseController(w)}
	_ = e.write(":\n\n")
	return e
}

func (e *events) next(resp *graphql.Response) error {
	return e.write(fmt.Sprintf("event: next\ndata: %s\n\n", encodeResponse(resp)))
}

func (e *events) complete() error { return e.write("event: complete\ndata:\n\n") }

func (e *events) write(event string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.w.Write([]byte(event)); err != nil {
		return err
	}
	return e.control.Flush()
}

// keepAlive sends comments, so that proxies keep the stream open and a dead client is noticed.
func (e *events) keepAlive(ctx context.Context, dead context.CancelFunc, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if e.write(":\n\n") != nil {
				dead()
				return
			}
		}
	}
}
