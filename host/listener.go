package host

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
)

const (
	maxBody    = 16 << 10
	maxHeaders = 16 << 10
	// A peer that dawdles in its handshake or its header holds a connection no longer than this.
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 5 * time.Minute
)

// NewServer is the agent listener; the caller serves it with ServeTLS and empty file names.
func NewServer(s *Service, ca *pki.CA, agents Agents, log *slog.Logger) *http.Server {
	// HTTP/1 only: a connection carries one request at a time and can be closed with its answer.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: handler(s, ca, agents, log), TLSConfig: tlsConfig(ca), Protocols: protocols,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaders,
		// Handshakes that fail are what the internet is full of.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// tlsConfig asks for a host's certificate, which the join does not have yet. There are no session tickets: a resumed session would
// skip the look at a certificate that has ended since. Each handshake asks for the authorities of its time, so that a rotation
// needs no restart.
func tlsConfig(ca *pki.CA) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: ca.Renewing(), SessionTicketsDisabled: true,
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool(),
	}
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := base.Clone()
		c.ClientCAs = ca.Pool()
		return c, nil
	}
	return config
}

// handler serves the agent protocol. A connection speaks only by its requests, and each is checked against the database, so a host
// that was removed gets nothing more on a connection that it had open before; the refusal closes it.
func handler(s *Service, ca *pki.CA, agents Agents, log *slog.Logger) http.Handler {
	l := &listener{ca: ca, log: log, now: s.now}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/join", handle(l, func(r *http.Request, in JoinRequest) (*JoinResponse, error) {
		// Whose the token is, the token tells.
		return s.Join(postgres.WithScope(r.Context(), postgres.AllTenants()), in)
	}))
	mux.Handle("POST /v1/heartbeat", handle(l, func(r *http.Request, in HeartbeatRequest) (*HeartbeatResponse, error) {
		return asPeer(r, l, in, func(ctx context.Context, p Peer, in HeartbeatRequest) (*HeartbeatResponse, error) {
			return s.Heartbeat(postgres.WithScope(ctx, postgres.Tenants(p.TenantID)), p, in)
		})
	}))
	mux.Handle("POST /v1/renew", handle(l, func(r *http.Request, in RenewRequest) (*RenewResponse, error) {
		return asPeer(r, l, in, func(ctx context.Context, p Peer, in RenewRequest) (*RenewResponse, error) {
			// A key must not be another host's, whichever tenant's that is.
			return s.Renew(postgres.WithScope(ctx, postgres.AllTenants()), p, in)
		})
	}))
	mux.Handle("GET /v1/agent/{arch}", l.download(agents))
	mux.Handle("/", handle(l, func(*http.Request, struct{}) (*struct{}, error) {
		return nil, problem.New(problem.NotFound, "There is no such call.")
	}))
	return mux
}

type listener struct {
	ca  *pki.CA
	log *slog.Logger
	now func() time.Time
}

func handle[In, Out any](l *listener, call func(*http.Request, In) (*Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(authz.WithRequestID(r.Context(), id.New("req")))
		w.Header().Set("X-Request-Id", authz.RequestID(r.Context()))
		in, err := read[In](w, r)
		var out *Out
		if err == nil {
			out, err = call(r, in)
		}
		if err != nil {
			l.refuse(w, r, err)
			return
		}
		l.write(w, r, http.StatusOK, out)
	})
}

// asPeer makes the call as the host whose certificate the connection has.
func asPeer[In, Out any](r *http.Request, l *listener, in In, call func(context.Context, Peer, In) (*Out, error)) (*Out, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, problem.New(problem.Unauthenticated, "This needs the certificate of a host.")
	}
	cert := r.TLS.VerifiedChains[0][0]
	tenantID, hostID, ok := l.ca.HostOf(cert)
	// The handshake looked at its end, but the connection may be older than that.
	if !ok || l.now().After(cert.NotAfter) {
		return nil, problem.New(problem.Unauthenticated, "This needs the certificate of a host that has not expired.")
	}
	return call(r.Context(), Peer{TenantID: tenantID, HostID: hostID, Serial: pki.SerialText(cert)}, in)
}

func read[In any](w http.ResponseWriter, r *http.Request) (in In, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return in, problem.New(problem.PayloadTooLarge, "The body is longer than %d bytes.", maxBody)
	}
	if err != nil {
		return in, problem.New(problem.InvalidInput, "The body cannot be read.").Because(err)
	}
	if _, ok := any(in).(struct{}); ok {
		return in, nil
	}
	if _, err := strictjson.Parse(body); err != nil {
		return in, problem.New(problem.InvalidInput, "The body is not good JSON: %s.", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, problem.New(problem.InvalidInput, "The body does not have the form of this call.").Because(err)
	}
	return in, nil
}

// refuse answers with the error, and ends a connection that has no business here.
func (l *listener) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	ctx, requestID := r.Context(), authz.RequestID(r.Context())
	if p.Code == problem.Internal {
		l.log.ErrorContext(ctx, "an agent's request failed", "requestId", requestID, "path", r.URL.Path, "error", err)
		p = p.With("requestId", requestID)
	} else {
		l.log.InfoContext(ctx, "an agent was refused", "requestId", requestID, "path", r.URL.Path, "remote", r.RemoteAddr,
			"code", p.Code, "reason", p.Details["reason"])
	}
	switch p.Code {
	case problem.Unauthenticated, problem.Forbidden:
		w.Header().Set("Connection", "close")
	case problem.RateLimited, problem.Unavailable:
		w.Header().Set("Retry-After", "1")
	default:
	}
	type body struct {
		Code    problem.Code   `json:"code"`
		Message string         `json:"message"`
		Details map[string]any `json:"details,omitempty"`
	}
	l.write(w, r, p.Code.HTTPStatus(), map[string]body{"error": {p.Code, p.Message, p.Details}})
}

func (l *listener) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		l.log.WarnContext(r.Context(), "writing an answer", "requestId", authz.RequestID(r.Context()), "error", err)
	}
}
