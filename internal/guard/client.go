package guard

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Options says whom a client may reach.
type Options struct {
	// Networks are the operator's, beside the public internet.
	Networks Networks
	// Origins are all that requests go to: `host[:port]` for https, or `scheme://host[:port]`.
	Origins []string
	// Timeout bounds each exchange, from dialling to the last byte of the answer; 0 is 30 seconds.
	Timeout time.Duration
	// AnswerBytes bounds the body of an answer, decompressed; 0 is 16 MiB.
	AnswerBytes int64
	// Resolver and Roots are the system's when nil.
	Resolver *net.Resolver
	Roots    *x509.CertPool
}

// ErrTooLarge is what reading an answer's body ends with where the bound is.
var ErrTooLarge = errors.New("the answer is larger than it may be")

// NewClient makes a client with connections of its own, which follows no redirect and uses no proxy. Its CloseIdleConnections lets go of
// the connections.
func NewClient(o Options) *http.Client {
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, Control: o.Networks.Control, Resolver: o.Resolver}
	base := &http.Transport{
		Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: timeout,
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		ForceAttemptHTTP2: true, MaxConnsPerHost: 16, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     &transport{base: base, origins: o.Origins, answerBytes: cmp.Or(o.AnswerBytes, 16<<20)},
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Allows reports whether an entry of a list of origins is the URL's. An entry without a scheme stands for https. A host in other than
// ASCII letters is nobody's: what it is folded to is the resolver's choice.
func Allows(origin string, u *url.URL) bool {
	scheme, host, found := strings.Cut(origin, "://")
	if !found {
		scheme, host = "https", origin
	}
	foreign := strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII })
	return !foreign && strings.EqualFold(u.Scheme, scheme) && strings.EqualFold(u.Host, host)
}

type transport struct {
	base        *http.Transport
	origins     []string
	answerBytes int64
}

// RoundTrip makes a request to an origin on the list, and no other.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	listed := slices.ContainsFunc(t.origins, func(origin string) bool { return Allows(origin, r.URL) })
	if !listed || r.Host != "" && r.Host != r.URL.Host {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &RefusedError{r.URL.Scheme + "://" + r.URL.Host, "is not the provider's"}
	}
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: t.answerBytes}
	return response, nil
}

// CloseIdleConnections is what http.Client looks for.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

type boundedBody struct {
	io.ReadCloser
	left int64 // -1 once there was more
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}
