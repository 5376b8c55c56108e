// Package vendor owns how a driver calls its vendor's HTTP API, whichever SDK it does so with: where the calls may go, how many go out, and
// what a failed one means.
//
// It refuses to know any vendor; a driver tells it the vendor's origins, rate and error codes. The invariant: a call that changes something
// and may have reached the vendor is never said to have had no effect, unless the vendor says so.
package vendor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"better/compute/internal/guard"
	"better/compute/provider"
)

// Options is what a driver tells of its vendor.
type Options struct {
	// Name is what people call the vendor, as the subject of a sentence: "Hetzner Cloud".
	Name string
	// Origins are where its API is, in the form of Manifest.Endpoints. Nothing is sent anywhere else.
	Origins []string
	// Networks are those that the operator lets the driver reach beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
	// Roots are whose certificates count; nil means the system's.
	Roots *x509.CertPool
	// Rate is what the vendor lets an account ask. Zero: only what its answers say counts.
	Rate Rate
	// RequestID is the header that names a request for the vendor's support; empty means X-Request-Id.
	RequestID string
	// Code finds the vendor's own error code in an error of its SDK; empty when there is none.
	Code func(error) string
	// Codes are the error codes that mean more than the status that comes with them, or something else.
	Codes map[string]provider.Class
}

// Rate is how many requests an account may make.
type Rate struct {
	PerSecond float64
	// Burst is how many may come at once after a while without any.
	Burst int
}

// Vendor calls one vendor for one account. It is safe for concurrent use.
type Vendor struct {
	options Options
	http    *http.Client
}

// New makes a Vendor, with connections of its own.
func New(o Options) *Vendor {
	if o.Code == nil {
		o.Code = func(error) string { return "" }
	}
	if o.RequestID == "" {
		o.RequestID = "X-Request-Id"
	}
	client := guard.NewClient(guard.Options{Networks: o.Networks, Origins: o.Origins, Timeout: o.Timeout, Roots: o.Roots})
	client.Transport = &observed{next: client.Transport, bucket: newBucket(o.Rate)}
	return &Vendor{options: o, http: client}
}

// HTTP is for the SDK. What it is asked outside of Read and Change is neither counted nor classed.
func (v *Vendor) HTTP() *http.Client { return v.http }

// Close lets the connections go.
func (v *Vendor) Close() { v.http.CloseIdleConnections() }

// Read makes calls that change nothing. What comes back is nil or a *provider.Error.
func (v *Vendor) Read(ctx context.Context, calls func(context.Context) error) error {
	return v.call(ctx, &exchange{}, calls)
}

// Change makes one call that changes something. It goes out once: the SDK's own retries must be off.
func (v *Vendor) Change(ctx context.Context, call func(context.Context) error) error {
	return v.call(ctx, &exchange{changes: true}, call)
}

func (v *Vendor) call(ctx context.Context, e *exchange, call func(context.Context) error) error {
	err := survive(e.watch(ctx), call)
	if err == nil {
		return nil
	}
	if classed, ok := errors.AsType[*provider.Error](err); ok {
		return classed
	}
	return v.classed(e, err)
}

var errPanic = errors.New("the SDK panicked")

// survive takes a panic for an answer that cannot be read. SDKs are made for what their vendor answers, not for what else may come.
func survive(ctx context.Context, call func(context.Context) error) (err error) {
	defer func() {
		if told := recover(); told != nil {
			err = fmt.Errorf("%w: %v", errPanic, told)
		}
	}()
	return call(ctx)
}

// Errorf makes an error of the class in the words that all vendors share.
func (v *Vendor) Errorf(class provider.Class) *provider.Error {
	format, ok := messages[class]
	if !ok {
		format = messages[provider.Fatal]
	}
	return provider.Errorf(class, format, v.options.Name)
}

var messages = map[provider.Class]string{
	provider.InvalidConfig:    "%s does not take what the account's config asks for.",
	provider.Auth:             "%s refused the credentials.",
	provider.Forbidden:        "The credentials lack a right at %s.",
	provider.NotFound:         "%s has no such thing in this account.",
	provider.OfferGone:        "%s does not sell this offer any more.",
	provider.Conflict:         "%s is busy with the thing, or it is locked.",
	provider.OutOfStock:       "%s has none of this offer left.",
	provider.Quota:            "A limit of the account at %s is reached.",
	provider.Payment:          "%s wants an open invoice paid, or a means of payment, first.",
	provider.RateLimited:      "%s was asked too often.",
	provider.Unavailable:      "%s cannot be reached, or fails.",
	provider.Timeout:          "%s did not answer in time.",
	provider.UnknownOutcome:   "%s did not say what became of the request; it may have acted.",
	provider.InvalidResponse:  "The answer of %s cannot be read.",
	provider.SecretUnresolved: "The credentials for %s could not be resolved.",
	provider.Unsupported:      "%s cannot do this.",
	provider.IdentityChanged:  "The machine at %s is not the one that this operation ordered.",
	provider.Fatal:            "%s does not take this request.",
}

// Origin is where the API of an endpoint is, in the form of Manifest.Endpoints. An *Error of class InvalidConfig says that it is none.
func Origin(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", provider.Errorf(provider.InvalidConfig, "The endpoint is not an http or https URL without credentials.")
	}
	return u.Scheme + "://" + u.Host, nil
}
