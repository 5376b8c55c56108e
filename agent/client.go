package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	callTimeout = 30 * time.Second
	maxAnswer   = 1 << 20
	// The path of the identity that only the agent listener's certificate carries.
	listenerPath = "/agent-listener"
)

// errWrongServer: the other side is not the server that this agent was delivered for.
var errWrongServer = errors.New("the server is not the one that this agent was made for")

// answerError is an answer of the server that is not a success.
type answerError struct {
	status     int
	retryAfter time.Duration
	Code       string `json:"code"`
	Message    string `json:"message"`
	Details    struct {
		Reason      string `json:"reason"`
		SkewSeconds int64  `json:"skewSeconds"`
	} `json:"details"`
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the server answered %d %s %s: %s", e.status, e.Code, e.Details.Reason, e.Message)
}

func removed(err error) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && answer.Details.Reason == "HOST_REMOVED"
}

// refusedByTLS reports whether the server ended the connection with an alert, as it does for a certificate that it
// cannot verify. What an alert says is not exported by crypto/tls.
func refusedByTLS(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// client talks to one server. After the join its identity can be exchanged while calls are under way.
type client struct {
	base string
	http *http.Client
	host atomic.Pointer[identity]
}

// newJoinClient verifies the server with the pins alone.
func newJoinClient(server, pins string) (*client, error) {
	c := &client{}
	return c, c.dial(server, func(cs tls.ConnectionState) error { return verifyPinned(cs, strings.Split(pins, ",")) })
}

// newClient presents the host's certificate, and verifies the server with the bundle that came with it.
func newClient(server string, host *identity, now func() time.Time) (*client, error) {
	c := &client{}
	c.host.Store(host)
	return c, c.dial(server, func(cs tls.ConnectionState) error {
		return verifyListener(cs.PeerCertificates, c.current().roots, now())
	})
}

func (c *client) dial(server string, verify func(tls.ConnectionState) error) error {
	base, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("server URL: %w", err)
	}
	c.base = strings.TrimSuffix(base.String(), "/")
	c.http = &http.Client{
		Timeout: callTimeout,
		// A redirect would carry the token somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        1,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13,
				// Trust comes from the pin or the stored bundle, and the name is a URI: the standard check knows
				// neither. VerifyConnection runs for every connection, a resumed one too.
				InsecureSkipVerify: true, //nolint:gosec // see above
				VerifyConnection: func(cs tls.ConnectionState) error {
					if err := verify(cs); err != nil {
						return fmt.Errorf("%w: %w", errWrongServer, err)
					}
					return nil
				},
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if host := c.current(); host != nil {
						return &host.pair, nil
					}
					return &tls.Certificate{}, nil
				},
			},
		},
	}
	return nil
}

func (c *client) current() *identity { return c.host.Load() }

// use makes the next connection present another certificate, and lets no old connection be used again.
func (c *client) use(host *identity) {
	c.host.Store(host)
	c.http.CloseIdleConnections()
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) join(ctx context.Context, in joinRequest) (joinResponse, error) {
	return post[joinResponse](ctx, c, "/v1/join", in)
}

func (c *client) heartbeat(ctx context.Context, in heartbeatRequest) (heartbeatResponse, error) {
	return post[heartbeatResponse](ctx, c, "/v1/heartbeat", in)
}

func (c *client) renew(ctx context.Context, in renewRequest) (renewResponse, error) {
	return post[renewResponse](ctx, c, "/v1/renew", in)
}

func post[Out any](ctx context.Context, c *client, path string, in any) (out Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encoding the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return out, readAnswerError(resp, text)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("reading the answer: %w", err)
	}
	return out, nil
}

func readAnswerError(resp *http.Response, text []byte) error {
	var body struct {
		Error answerError `json:"error"`
	}
	// An answer in another form, of a proxy say, still has a status.
	_ = json.Unmarshal(text, &body)
	body.Error.status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		body.Error.retryAfter = interval(seconds)
	}
	return &body.Error
}

// verifyPinned accepts a server whose chain has a CA with a pinned key that signed the leaf.
func verifyPinned(cs tls.ConnectionState, pins []string) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("it sent no certificate")
	}
	roots := x509.NewCertPool()
	found := false
	for _, cert := range cs.PeerCertificates[1:] {
		// Whoever wrote the rest of the certificate: only the holder of the pinned key can have signed the leaf.
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if slices.Contains(pins, "sha256:"+hex.EncodeToString(sum[:])) {
			roots.AddCert(cert)
			found = true
		}
	}
	if !found {
		return errors.New("no certificate that it sent has a pinned key")
	}
	// The machine's clock may be wrong by years before it has joined. The server must get to hear of it to say so
	// (CLOCK_SKEW), so here the leaf is judged at a time at which it is valid.
	return verifyListener(cs.PeerCertificates, roots, cs.PeerCertificates[0].NotBefore)
}

func verifyListener(chain []*x509.Certificate, roots *x509.CertPool, at time.Time) error {
	if len(chain) == 0 {
		return errors.New("it sent no certificate")
	}
	leaf, between := chain[0], x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	// The CA signs for hosts too, so a good chain alone does not make a server.
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" || leaf.URIs[0].Path != listenerPath {
		return errors.New("its certificate is not an agent listener's")
	}
	return nil
}

// transient reports whether a call that failed so may succeed later: a clock may be set right.
func transient(err error) bool {
	if errors.Is(err, errWrongServer) {
		return false
	}
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.status == http.StatusTooManyRequests || answer.status >= 500 || answer.Details.Reason == "CLOCK_SKEW"
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
