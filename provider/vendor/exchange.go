package vendor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"sync"
	"time"

	"better/compute/internal/guard"
	"better/compute/provider"
)

// exchange is what was seen of the requests of a call, underneath the SDK.
type exchange struct {
	changes bool

	mu     sync.Mutex
	sent   bool          // a connection was there, so bytes may have gone out
	status int           // of the last answer; 0 when there is none
	header http.Header   // likewise
	broken error         // what ended the reading of its body early
	wait   time.Duration // how long the bucket is empty for, when the request did not go out for that
}

type exchangeKey struct{}

func (e *exchange) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, exchangeKey{}, e)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sent, e.status, e.header, e.broken = true, 0, nil, nil
	}})
}

var errHeld = errors.New("the request was held back")

// observed counts and watches the requests of an exchange.
type observed struct {
	next   http.RoundTripper
	bucket *bucket
}

// RoundTrip makes a request when it is time for one, and notes what comes of it.
func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	e, watched := r.Context().Value(exchangeKey{}).(*exchange)
	if !watched {
		e = &exchange{}
	}
	if wait := o.bucket.await(r.Context()); wait > 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.wait = wait
		return nil, errHeld
	}
	response, err := o.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	o.bucket.learn(response)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.header = response.StatusCode, response.Header
	response.Body = &observedBody{response.Body, e}
	return response, nil
}

// CloseIdleConnections is what http.Client looks for.
func (o *observed) CloseIdleConnections() {
	if c, ok := o.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type observedBody struct {
	io.ReadCloser
	exchange *exchange
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.exchange.mu.Lock()
		defer b.exchange.mu.Unlock()
		b.exchange.broken = err
	}
	return n, err
}

// classed says what a failure means: by the vendor's own code, else by the status, else by how far the exchange got.
func (v *Vendor) classed(e *exchange, err error) *provider.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	code := v.options.Code(err)
	failure := v.Errorf(v.classOf(e, code, err))
	if refused, ok := errors.AsType[*guard.RefusedError](err); ok && !e.sent {
		failure = provider.Errorf(provider.InvalidConfig, "%s cannot be called: %s.", v.options.Name, refused)
	}
	failure.Code = plain(code)
	failure.RequestID = plain(e.header.Get(v.options.RequestID))
	if failure.Class == provider.RateLimited {
		failure.RetryAfter = max(e.wait, retryAfter(e.header))
	}
	return failure.Because(err)
}

func (v *Vendor) classOf(e *exchange, code string, err error) provider.Class {
	if e.wait > 0 {
		return provider.RateLimited
	}
	if class, known := v.options.Codes[code]; known && code != "" {
		return class
	}
	switch {
	case e.status >= 400:
		return e.refused()
	case e.changes && e.sent:
		return provider.UnknownOutcome
	case e.changes && e.status == 0:
		return provider.Unavailable // it did not go out, also where the time for that was up
	case errors.Is(err, errPanic), e.status != 0 && e.broken == nil, errors.Is(e.broken, guard.ErrTooLarge):
		return provider.InvalidResponse
	}
	timeout, ok := errors.AsType[net.Error](errors.Join(err, e.broken))
	if ok && timeout.Timeout() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return provider.Timeout
	}
	return provider.Unavailable
}

// refused is an answer that says that nothing was done, or a 5xx, which says nothing.
func (e *exchange) refused() provider.Class {
	switch {
	case e.changes && (e.status >= 500 || e.status == http.StatusRequestTimeout):
		return provider.UnknownOutcome
	case e.status >= 500:
		return provider.Unavailable
	}
	if class, ok := statuses[e.status]; ok {
		return class
	}
	return provider.Fatal
}

var statuses = map[int]provider.Class{
	http.StatusUnauthorized:     provider.Auth,
	http.StatusPaymentRequired:  provider.Payment,
	http.StatusForbidden:        provider.Forbidden,
	http.StatusNotFound:         provider.NotFound,
	http.StatusGone:             provider.NotFound,
	http.StatusConflict:         provider.Conflict,
	http.StatusLocked:           provider.Conflict,
	http.StatusRequestTimeout:   provider.Timeout,
	http.StatusTooManyRequests:  provider.RateLimited,
	http.StatusMethodNotAllowed: provider.Unsupported,
}

const longestWait = 24 * time.Hour

// retryAfter reads both forms of the header: seconds, and a date, which is taken against the vendor's own clock.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(until.Sub(now), 0), longestWait)
}

var plainPattern = regexp.MustCompile(`\A[A-Za-z0-9._/:-]{0,128}\z`)

// plain lets only short words of the vendor's through to people.
func plain(word string) string {
	if !plainPattern.MatchString(word) {
		return ""
	}
	return word
}
