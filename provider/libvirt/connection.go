package libvirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	golibvirt "github.com/digitalocean/go-libvirt"

	"better/compute/internal/guard"
	"better/compute/provider"
)

// read connects, and makes calls that change nothing. What comes back is nil or a *provider.Error.
func (c *client) read(ctx context.Context, calls func(*golibvirt.Libvirt) error) error {
	return c.connected(ctx, false, calls)
}

// change connects, and makes calls of which one or more change something. A failure to connect is before them.
func (c *client) change(ctx context.Context, calls func(*golibvirt.Libvirt) error) error {
	called := false
	err := c.connected(ctx, true, func(l *golibvirt.Libvirt) error { called = true; return calls(l) })
	if !called {
		return provider.NotSent(err)
	}
	return err
}

func (c *client) connected(ctx context.Context, changes bool, calls func(*golibvirt.Libvirt) error) error {
	if ctx.Err() != nil {
		return errorf(provider.Unavailable).Because(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	secured, err := c.dial(ctx)
	if err != nil {
		return err
	}
	wire := &framed{Conn: secured}
	defer func() { _ = wire.Close() }()
	defer context.AfterFunc(ctx, func() { _ = wire.Close() })()
	asked := false
	err = survive(func() error {
		l := golibvirt.NewWithDialer(wire)
		if err := l.ConnectToURI(c.uri()); err != nil {
			return err
		}
		asked = true
		return calls(l)
	})
	return classed(ctx, err, wire.nonsense(), changes && asked)
}

func (c *client) uri() golibvirt.ConnectURI {
	if c.config.Hypervisor == "test" {
		return golibvirt.TestDefault
	}
	return golibvirt.QEMUSystem
}

var errPanic = errors.New("the SDK panicked")

// survive takes a panic for an answer that cannot be read.
func survive(call func() error) (err error) {
	defer func() {
		if told := recover(); told != nil {
			err = fmt.Errorf("%w: %v", errPanic, told)
		}
	}()
	return call()
}

// dial connects with TLS, and waits for libvirtd's word that it takes the certificate.
func (c *client) dial(ctx context.Context) (net.Conn, error) {
	privateKey, err := c.account.Secret(ctx, c.config.PrivateKey)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(c.config.Certificate), []byte(privateKey))
	if err != nil {
		return nil, provider.Errorf(provider.SecretUnresolved, "The private key is not the one of the config's certificate.") // err may quote it
	}
	dialer := &net.Dialer{Control: c.options.Networks.Control}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.config.Address, strconv.Itoa(c.config.Port)))
	if err != nil {
		return nil, unreached(ctx, err)
	}
	secured := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.config.Address, RootCAs: c.roots, Certificates: []tls.Certificate{pair},
	})
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, unreached(ctx, err)
	}
	word := make([]byte, 1)
	if _, err := io.ReadFull(secured, word); err != nil || word[0] != 1 {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, unreached(ctx, err)
		}
		return nil, errorf(provider.Auth).Because(err)
	}
	return secured, nil
}

// unreached says why there is no connection.
func unreached(ctx context.Context, err error) error {
	refused, isRefused := errors.AsType[*guard.RefusedError](err)
	_, isUnknown := errors.AsType[*tls.CertificateVerificationError](err)
	_, isAlert := errors.AsType[tls.AlertError](err)
	switch {
	case isRefused:
		return provider.Errorf(provider.InvalidConfig, "The hypervisor cannot be called: %s.", refused).Because(err)
	case isUnknown, errors.As(err, new(x509.UnknownAuthorityError)):
		return provider.Errorf(provider.InvalidConfig, "The hypervisor's certificate is not one of its address by the config's authority.").Because(err)
	case isAlert:
		return errorf(provider.Auth).Because(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errorf(provider.Timeout).Because(err)
	}
	return errorf(provider.Unavailable).Because(err)
}

var messages = map[provider.Class]string{
	provider.Auth:            "The hypervisor refused the certificate.",
	provider.Forbidden:       "The certificate lacks a right at the hypervisor.",
	provider.NotFound:        "The hypervisor has no such machine.",
	provider.OfferGone:       "The account's config does not have this size any more.",
	provider.Conflict:        "The hypervisor is busy with the machine, or the machine is in a state that does not allow this.",
	provider.OutOfStock:      "The hypervisor has not enough room for a machine of this size.",
	provider.Unavailable:     "The hypervisor cannot be reached, or fails.",
	provider.Timeout:         "The hypervisor did not answer in time.",
	provider.UnknownOutcome:  "The hypervisor did not say what became of the request; it may have acted.",
	provider.InvalidResponse: "The answer of the hypervisor cannot be read.",
	provider.Unsupported:     "The hypervisor cannot do this.",
	provider.InvalidConfig:   "The hypervisor does not take what the account's config asks for; look at the pool, the image and the network.",
	provider.IdentityChanged: "The machine at the hypervisor is not the one that this operation ordered.",
	provider.Fatal:           "The hypervisor does not take this request.",
}

func errorf(class provider.Class) *provider.Error {
	return provider.Errorf(class, "%s", messages[class])
}

var codes = map[golibvirt.ErrorNumber]provider.Class{
	golibvirt.ErrAuthFailed:        provider.Auth,
	golibvirt.ErrAuthCancelled:     provider.Auth,
	golibvirt.ErrAuthUnavailable:   provider.Auth,
	golibvirt.ErrAccessDenied:      provider.Forbidden,
	golibvirt.ErrNoDomain:          provider.NotFound,
	golibvirt.ErrOperationInvalid:  provider.Conflict,
	golibvirt.ErrResourceBusy:      provider.Conflict,
	golibvirt.ErrOperationTimeout:  provider.Conflict, // a lock on the machine
	golibvirt.ErrNoSupport:         provider.Unsupported,
	golibvirt.ErrNoConnect:         provider.Unavailable,
	golibvirt.ErrNoStoragePool:     provider.InvalidConfig,
	golibvirt.ErrNoStorageVol:      provider.InvalidConfig,
	golibvirt.ErrNoNetwork:         provider.InvalidConfig,
	golibvirt.ErrXMLError:          provider.InvalidConfig,
	golibvirt.ErrConfigUnsupported: provider.InvalidConfig,
}

// classed says what a failure means: by libvirt's own code, else by how far the exchange got.
func classed(ctx context.Context, err, nonsense error, changes bool) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*provider.Error](err); ok {
		return own
	}
	if told, ok := errors.AsType[golibvirt.Error](err); ok {
		class, known := codes[golibvirt.ErrorNumber(told.Code)] //nolint:gosec // a number that is none is not known
		if !known {
			class = provider.Fatal
		}
		failure := errorf(class).Because(err)
		failure.Code = strconv.FormatUint(uint64(told.Code), 10)
		return failure
	}
	switch {
	case changes:
		return errorf(provider.UnknownOutcome).Because(errors.Join(err, nonsense))
	case nonsense != nil, errors.Is(err, errPanic):
		return errorf(provider.InvalidResponse).Because(errors.Join(err, nonsense))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errorf(provider.Timeout).Because(err)
	}
	return errorf(provider.Unavailable).Because(err)
}

// is reports whether libvirt gave one of the codes.
func is(err error, numbers ...golibvirt.ErrorNumber) bool {
	told, ok := errors.AsType[golibvirt.Error](err)
	for _, n := range numbers {
		if ok && int64(told.Code) == int64(n) {
			return true
		}
	}
	return false
}
