package provider_test

import (
	"errors"
	"testing"

	"better/compute/provider"
)

// TestNotSent: what was not sent leaves no doubt, and keeps all that was said of it but the class.
func TestNotSent(t *testing.T) {
	t.Parallel()
	if err := provider.NotSent(nil); err != nil {
		t.Errorf("no error is %v", err)
	}
	if err := errors.New("a cause"); provider.ClassOf(provider.NotSent(err)) != provider.Unavailable || !errors.Is(provider.NotSent(err), err) {
		t.Errorf("what nobody has classed is %v", provider.NotSent(err))
	}
	for from, want := range map[provider.Class]provider.Class{
		provider.Timeout: provider.Unavailable, provider.InvalidResponse: provider.Unavailable, provider.UnknownOutcome: provider.Unavailable,
		provider.Auth: provider.Auth, provider.RateLimited: provider.RateLimited, provider.OfferGone: provider.OfferGone, provider.NotFound: provider.NotFound,
	} {
		err := provider.Errorf(from, "Words.")
		err.RequestID = "r-1"
		told, _ := errors.AsType[*provider.Error](provider.NotSent(err))
		if told == nil || told.Class != want || told.Message != "Words." || told.RequestID != "r-1" || err.Class != from {
			t.Errorf("%s: %+v, want class %s", from, told, want)
		}
	}
}
