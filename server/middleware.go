package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/go-chi/chi/v5"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/internal/refusal"
)

// bodyTime is how long a request body may take to arrive.
const bodyTime = 10 * time.Second

// request is what the access log needs to know from deeper down.
type request struct{ subject string }

type requestKey struct{}

// requestOf is never nil: outside of observe it is one that nobody reads.
func requestOf(ctx context.Context) *request {
	if info, ok := ctx.Value(requestKey{}).(*request); ok {
		return info
	}
	return &request{}
}

// identify gives each request an id, which its response, logs and audit rows carry. A client's own is kept when it is a
// plain word.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !plainWord(id) {
			var random [16]byte
			_, _ = rand.Read(random[:]) // never fails
			id = hex.EncodeToString(random[:])
		}
		w.Header().Set("X-Request-Id", id)
		ctx := authz.WithRequestID(r.Context(), id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, requestKey{}, &request{})))
	})
}

func plainWord(s string) bool {
	if len(s) < 8 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// observe logs and counts each request, and turns a panic into INTERNAL. The log has the path but neither query string, which
// can hold variables, nor body nor headers.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		func() {
			defer s.recoverRequest(rec, r)
			next.ServeHTTP(rec, r)
		}()
		if rec.status == 0 {
			rec.status = http.StatusOK // what net/http sends for a handler that wrote nothing
		}
		route := chi.RouteContext(r.Context()).RoutePattern()
		if route == "" {
			route = "none"
		}
		s.metrics.request(route, methodLabel(r.Method), rec.status)
		elapsed := time.Since(start)
		if !isUpgrade(r) && !strings.HasPrefix(w.Header().Get("Content-Type"), typeEvents) {
			s.metrics.seconds.WithLabelValues(route).Observe(elapsed.Seconds())
		}
		s.log.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", rec.status), slog.Int("bytes", rec.bytes),
			slog.Int64("elapsedMs", elapsed.Milliseconds()), slog.String("requestId", authz.RequestID(r.Context())), slog.String("subject", requestOf(r.Context()).subject))
	})
}

func (s *Server) recoverRequest(rec *recorder, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(value)
	}
	prob := s.presenter.internal(r.Context(), s.presenter.recovered(r.Context(), value))
	if rec.status == 0 {
		s.refuse(rec, r, prob)
	}
}

// methodLabel keeps a metric's label from being whatever a client sends as its method.
func methodLabel(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodOptions}, method) {
		return method
	}
	return "other"
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status, bytes int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += n
	return n, err
}

// Unwrap gives http.ResponseController the connection: deadlines, flush and hijack.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// secure sets the headers that keep browsers from doing more with an answer than show it. Handlers of pages widen the policy.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// sayGoodbye makes each answer the last of its connection once the server is about to stop: a client that went on would meet its
// end in the middle of a request.
func (s *Server) sayGoodbye(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() && !isUpgrade(r) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// checkOrigin refuses what a page of another site sends, unless that site is allowed; then it answers its CORS preflight.
func (s *Server) checkOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" {
			next.ServeHTTP(w, r)
			return
		}
		foreign := slices.Contains(s.config.AllowedOrigins, origin)
		if !foreign && !sameOrigin(origin, r.Host) {
			s.metrics.limit("origin")
			s.refuse(w, r, problem.New(problem.Forbidden, "Pages of this origin may not call this server."))
			return
		}
		if foreign {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
		}
		if foreign && r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", allowMethods)
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id")
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// readBody takes in the whole body before the handler runs: within the size limit and, so that no one can hold a connection by
// sending slowly, within bodyTime.
func (s *Server) readBody(next http.Handler) http.Handler {
	limit := s.config.Limits.BodyBytes
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || isUpgrade(r) {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a test's recorder has none
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			s.metrics.limit("body_bytes")
			s.refuse(w, r, problem.New(problem.PayloadTooLarge, "The request body is larger than %d bytes.", limit).With("limit", limit))
			return
		}
		if err != nil {
			s.refuse(w, r, problem.New(problem.InvalidInput, "The request body could not be read.").Because(err))
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		next.ServeHTTP(w, r)
	})
}

// chargeBody takes the points for reading a GraphQL request's JSON, in its body or in its query string. An upgrade has none that is read, and no
// caller yet.
func (s *Server) chargeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUpgrade(r) {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.quota.chargeBody(r.Context(), int(r.ContentLength)+len(r.URL.RawQuery)); err != nil {
			s.metrics.limit(ruleOf(err))
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admitCall takes the points of a call of the REST interface, and those for reading its body, and then waits for its turn.
func (s *Server) admitCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of readBody, in memory
		r.Body = io.NopCloser(bytes.NewReader(body))
		cost, live := 1, false
		if s.deps.CallCost != nil {
			cost, live = s.deps.CallCost(r.URL.Path)
		}
		tenants := tenantsOfBody(body)
		err := s.quota.charge(r.Context(), cost+bodyPoints(len(body)), tenants)
		var turn turn
		if err == nil {
			turn, err = s.quota.call(r.Context(), live, tenants)
		}
		if err != nil {
			if rule := ruleOf(err); rule != "" { // else its client gave up
				s.metrics.limit(rule)
			}
			s.refuse(w, r, err)
			return
		}
		defer turn.end()
		next.ServeHTTP(&answering{w, turn}, r)
	})
}

// refuse answers an error in the form of the interface that was called, with the status of its code.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	prob := problem.From(err)
	refusal.Headers(w, prob)
	s.fail(w, r, prob.Code.HTTPStatus(), prob)
}

// fail answers an error with a status that the transport's rules name.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	if r.URL.Path == graphqlPath {
		media := negotiate(r.Header.Values("Accept"))
		if media != typeGraphQL {
			media = typeJSON
		}
		writeResponse(w, status, media, &graphql.Response{Errors: gqlerror.List{s.presenter.present(r.Context(), err)}})
		return
	}
	refusal.WriteStatus(w, status, problem.From(err))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", typeJSON+utf8Suffix)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}
