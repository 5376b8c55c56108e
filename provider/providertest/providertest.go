// Package providertest holds what each driver's test must pass.
//
// It owns what a driver must do whatever its provider is like: the rules of package provider as checks. It refuses to know how a
// provider is brought into a situation; each driver's test arranges that on its own server, real or fake. The invariant: a check
// believes the provider's own books (Account.Sold), never what the driver says of itself.
package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"better/compute/provider"
)

// Config says how the suite brings a driver into each situation.
type Config struct {
	Driver provider.Driver
	// Configs are account configs that the schema must accept, BadConfigs ones that it must refuse, beside those that the suite makes.
	Configs, BadConfigs []string
	// Plain is a provider in good health.
	Plain Situation

	// ThreePages: the provider's lists come in three pages or more. EmptyLastPage: and the last one is empty. RepeatedPage: one
	// leads back to itself.
	ThreePages, EmptyLastPage, RepeatedPage Situation
	// ExtraFields: answers have fields that nobody knows.
	ExtraFields Situation
	// MissingPrice: an offer has no price. UnknownGPU: one has a GPU of no known family. OddIDs: offers and machines have ids that our
	// callers may not use; Account.OfferID is one.
	MissingPrice, UnknownGPU, OddIDs Situation

	// AnswerLost: the next order takes effect and its answer is lost. OrderFails: the next order has no effect, and its answer does
	// not say so. HalfAnswer: the next order takes effect and half of its answer comes.
	AnswerLost, OrderFails, HalfAnswer Situation
	// Spoilt: one of the requests of the next order is spoilt, before its paid call or at it.
	Spoilt SpoiltOrder
	// OutOfStock: Account.OfferID has just run out. OutOfStockLater: the provider takes the order, and finds that out then. OfferGone: it is not sold any more. Quota, Payment: the account may not buy more.
	OutOfStock, OutOfStockLater, OfferGone, Quota, Payment Situation
	// Locked: something else is done with the machine, so the next call that changes it is refused.
	Locked Situation

	// Unauthorized: the credentials are refused. Forbidden: the next call needs a right that they lack.
	Unauthorized, Forbidden Situation
	// RateLimited: the next call is one too many. RateLimitedFor: and the provider says to come back in 7 seconds.
	RateLimited, RateLimitedFor Situation
	// Down: the provider answers every call with 5xx or not at all. Hangs: the next call gets no answer. Garbage: the next call is
	// answered with something else than the API's form.
	Down, Hangs, Garbage Situation

	// InstallFails: the next install fails on the machine.
	InstallFails Situation
}

// Situation arranges an account at a provider. A situation that the driver cannot be in has no Arrange, and a Reason why.
type Situation struct {
	Arrange func(t *testing.T) *Account
	Reason  string
}

// Account is one account at a provider of its own, for one test.
type Account struct {
	Client provider.Client
	// Secret stands in the account's credentials. It must appear in no error.
	Secret string
	// OfferID is an offer that can be ordered, in our form.
	OfferID string
	// MachineID is a machine of the account that nobody has ordered through an operation, in our form; empty when it has none.
	MachineID string
	// Sold counts the machines that the provider has sold to the operation and not taken back.
	Sold func(operationID string) int
	// Payload is what an install can be tried with; nil when the driver's installs need more than a test has.
	Payload func(generation int) provider.Payload
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	t.Run("manifest", func(t *testing.T) { t.Parallel(); testManifest(t, c) })
	run(t, "offers", c.Plain, testOffers)
	run(t, "machines", c.Plain, testMachines)
	run(t, "ended context", c.Plain, testEndedContext)
	t.Run("endpoints", func(t *testing.T) { t.Parallel(); testEndpoints(t, c) })
	run(t, "filters", c.Plain, testFilters)
	run(t, "secret unresolved", c.Plain, func(t *testing.T, _ *Account) { testSecretUnresolved(t, c) })

	same := func(t *testing.T, a *Account) { testSameLists(t, c, a) }
	run(t, "three pages", c.ThreePages, same)
	run(t, "empty last page", c.EmptyLastPage, same)
	run(t, "extra fields", c.ExtraFields, same)
	run(t, "repeated page", c.RepeatedPage, testRepeatedPage)
	run(t, "missing price", c.MissingPrice, testMissingPrice)
	run(t, "unknown gpu", c.UnknownGPU, testUnknownGPU)

	for name, situation := range map[string]Situation{"plain": c.Plain, "odd ids": c.OddIDs} {
		run(t, "order/"+name, situation, func(t *testing.T, a *Account) { testOrder(t, c.Driver.Manifest().Capabilities.ClaimMode, a) })
		run(t, "claims/"+name, situation, testClaims)
		run(t, "bootstrap/"+name, situation, testBootstrap)
	}
	run(t, "release of another's machine", c.Plain, testReleaseOfAnothers)
	run(t, "answer lost", c.AnswerLost, testUnknownOutcome(1))
	run(t, "half answer", c.HalfAnswer, testUnknownOutcome(1))
	run(t, "order fails", c.OrderFails, testUnknownOutcome(0))
	t.Run("spoilt order", func(t *testing.T) { testSpoiltOrders(t, c.Spoilt) })

	run(t, "out of stock", c.OutOfStock, testRefusedOrder(provider.OutOfStock))
	run(t, "out of stock later", c.OutOfStockLater, testRefusedOrder(provider.OutOfStock))
	run(t, "locked", c.Locked, testLocked)
	run(t, "offer gone", c.OfferGone, testRefusedOrder(provider.OfferGone))
	run(t, "quota", c.Quota, testRefusedOrder(provider.Quota))
	run(t, "payment", c.Payment, testRefusedOrder(provider.Payment))

	run(t, "unauthorized", c.Unauthorized, testUnauthorized)
	run(t, "forbidden", c.Forbidden, testCheckFails(provider.Forbidden))
	run(t, "rate limited", c.RateLimited, testRateLimited(0))
	run(t, "rate limited for a time", c.RateLimitedFor, testRateLimited(7*time.Second))
	run(t, "down", c.Down, testDown)
	run(t, "hangs", c.Hangs, testCheckFails(provider.Timeout))
	run(t, "garbage", c.Garbage, testGarbage)
	run(t, "install fails", c.InstallFails, testInstallFails)
}

func run(t *testing.T, name string, s Situation, test func(*testing.T, *Account)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		if s.Arrange == nil {
			if s.Reason == "" {
				t.Fatal("the situation is neither arranged nor is there a reason why not")
			}
			t.Skip(s.Reason)
		}
		a := s.Arrange(t)
		t.Cleanup(func() {
			if err := a.Client.Close(); err != nil {
				t.Errorf("closing the client: %v", err)
			}
		})
		test(t, a)
	})
}

// limit is for calls that must come back whatever the provider does.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// operation gives an operation id at the length limit, another one for each test and name.
func operation(t *testing.T, name string) string {
	t.Helper()
	id := "op-" + name + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	return (id + strings.Repeat("0", 63))[:63]
}

// orderer skips the test when the driver promises no orders.
func orderer(t *testing.T, a *Account) provider.Orderer {
	t.Helper()
	o, ok := a.Client.(provider.Orderer)
	if !ok {
		t.Skip("the driver orders nothing")
	}
	return o
}

func bootstrapper(t *testing.T, a *Account) provider.Bootstrapper {
	t.Helper()
	b, ok := a.Client.(provider.Bootstrapper)
	if !ok {
		t.Skip("the driver bootstraps nothing")
	}
	return b
}

// failed checks that err is a driver's error of one of the classes, fit to be shown.
func failed(t *testing.T, a *Account, what string, err error, classes ...provider.Class) *provider.Error {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Fatalf("%s: got %v, want a *provider.Error of class %v", what, err, classes)
	}
	matched := false
	for _, class := range classes {
		matched = matched || e.Class == class
	}
	if !matched {
		t.Fatalf("%s: got %v, want class %v", what, e, classes)
	}
	if e.Message == "" {
		t.Errorf("%s: no message", what)
	}
	if a.Secret != "" && strings.Contains(fmt.Sprintf("%v %+v %s", e, e, e.Message), a.Secret) {
		t.Errorf("%s: the error shows the secret", what)
	}
	return e
}

// await polls until done, and fails the test when it takes minutes.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
