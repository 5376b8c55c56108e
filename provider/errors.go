package provider

import (
	"errors"
	"fmt"
	"time"
)

// Class says what an error means for what to do next.
type Class string

// The classes.
const (
	// InvalidConfig: the account's config cannot work.
	InvalidConfig Class = "invalid_config"
	// Auth: the credentials were refused. The account is called no more until somebody has updated it.
	Auth Class = "auth"
	// Forbidden: the credentials are good and lack a right.
	Forbidden Class = "forbidden"
	// NotFound: there is no such machine, order or install.
	NotFound Class = "not_found"
	// OfferGone: the offer is not sold (any more).
	OfferGone Class = "offer_gone"
	// Conflict: the provider is busy with the thing, or it is locked; may pass.
	Conflict Class = "conflict"
	// OutOfStock: none is left.
	OutOfStock Class = "out_of_stock"
	// Quota: a limit of the account at the provider.
	Quota Class = "quota"
	// Payment: the provider wants money first.
	Payment Class = "payment"
	// RateLimited: asked too often; RetryAfter says when to come again. Costs no attempt.
	RateLimited Class = "rate_limited"
	// Unavailable: the provider, or the machine, cannot be reached or fails; may pass. The call had no effect.
	Unavailable Class = "unavailable"
	// Timeout: as Unavailable, by time.
	Timeout Class = "timeout"
	// UnknownOutcome: the call may have had its effect. Only for calls that change something.
	UnknownOutcome Class = "unknown_outcome"
	// InvalidResponse: the provider's answer makes no sense.
	InvalidResponse Class = "invalid_response"
	// SecretUnresolved: a secret reference could not be resolved.
	SecretUnresolved Class = "secret_unresolved"
	// Unsupported: the provider cannot do it.
	Unsupported Class = "unsupported"
	// SSHUnreachable, SSHAuth, SSHHostKey: a machine could not be reached over SSH, refused the login, or showed another host key.
	SSHUnreachable Class = "ssh_unreachable"
	SSHAuth        Class = "ssh_auth"
	SSHHostKey     Class = "ssh_host_key"
	// IdentityChanged: the machine is not the one it was.
	IdentityChanged Class = "identity_changed"
	// InstallError: installing failed on the machine.
	InstallError Class = "install"
	// Fatal: nothing of the above, and no sense in trying again.
	Fatal Class = "fatal"
)

// Error is a failure of a provider call, classed by the driver.
type Error struct {
	Class Class
	// Message is fit for the tenant: no secret, and no raw body of the provider's.
	Message string
	// RetryAfter is how long the provider asked to wait; zero when it did not.
	RetryAfter time.Duration
	// Code and RequestID are the provider's own, for its support.
	Code      string
	RequestID string
	// Log has the last lines of a failed install.
	Log   []string
	cause error
}

// Errorf makes an Error. A %w in the format is kept as the cause, for logs and errors.Is; its text does appear in Message, so wrap
// only what is fit for the tenant and use Because for the rest.
func Errorf(class Class, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Class: class, Message: err.Error(), cause: errors.Unwrap(err)}
}

// Because keeps err as the cause without showing its text.
func (e *Error) Because(err error) *Error {
	c := *e
	c.cause = err
	return &c
}

// Error is for logs.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s (%v)", e.Class, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// ClassOf is the class of the *Error in err's chain; what no driver has classed counts as Unavailable.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Unavailable
}

// NotSent is the error of what goes before a call that changes something, say a look for the id of an offer: that call was not made, whatever has
// failed. So what would leave room for doubt becomes Unavailable, and what says more stays as it is.
func NotSent(err error) error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return Errorf(Unavailable, "What is needed before the request could not be had.").Because(err)
	case e.Class != Timeout && e.Class != InvalidResponse && e.Class != UnknownOutcome:
		return err
	}
	c := *e
	c.Class = Unavailable
	return &c
}

// Retryable reports whether the same call may succeed later without anybody changing anything.
func (c Class) Retryable() bool {
	switch c {
	case Conflict, OutOfStock, RateLimited, Unavailable, Timeout, UnknownOutcome, InvalidResponse, SSHUnreachable:
		return true
	default:
		return false
	}
}
